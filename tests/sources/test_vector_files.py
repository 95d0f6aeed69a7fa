"""A file of vectors is measured as its array is: labels to the last bit, and nothing that is not
there.
"""

import os

import h5netcdf
import h5py
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from safetensors.flax import save_file as save_jax
from safetensors.numpy import save_file

from anisoscope import measure
from anisoscope.metrics import convert
from anisoscope.sources import vector_files

VECTORS = np.float32(np.random.default_rng(0).normal(size=(2, 96, 6)) * np.arange(1, 7))
LABELS = np.repeat(np.arange(12), 8)


def netcdf(path, engine):
    dims = ("layer", "point", "width")
    dataset = xr.Dataset({"groups": ("point", LABELS), "vectors": (dims, VECTORS)})
    dataset.to_netcdf(path, engine=engine)


WRITERS = {
    "a.npy": lambda path: np.save(path, VECTORS),  # without labels
    "a.npz": lambda path: np.savez(path, groups=LABELS, vectors=VECTORS),
    "a.safetensors": lambda path: save_file({"groups": LABELS, "vectors": VECTORS}, path),
    "three.nc": lambda path: netcdf(path, "scipy"),
    "four.nc": lambda path: netcdf(path, "h5netcdf"),
}


@pytest.mark.parametrize("name", WRITERS)
def test_every_format_gives_what_the_array_gives(name, tmp_path, monkeypatch):
    WRITERS[name](tmp_path / name)
    labels = None if name == "a.npy" else LABELS
    options = {"families": "similarity", "nulls": (), "folds": 4}
    axes = None if name.endswith(".nc") else ("layer", "point", "width")
    monkeypatch.setenv("HOME", str(tmp_path))
    found = measure(f"~/{name}", axes=axes, **options)
    expected = measure([*VECTORS], labels, **options)
    for quantity in ("mean_cosine", "drift"):
        np.testing.assert_array_equal(found[quantity], expected[quantity])


def test_labels_keep_all_their_bits_and_bfloat16_is_read(tmp_path):
    path, label_P, place_P = tmp_path / "a.safetensors", LABELS << 32, (np.arange(96) % 8) + 2**32
    save_file({"groups": label_P, "token_positions": place_P, "vectors": VECTORS}, path)
    file = vector_files.load_vectors(path)
    np.testing.assert_array_equal(file.clusters, label_P)
    np.testing.assert_array_equal(file.token_positions, place_P)
    for kind in (jnp.bfloat16, jnp.float8_e4m3fn, jnp.float8_e5m2):
        vectors = jnp.asarray(VECTORS, kind)
        save_jax({"vectors": vectors, "clusters": jnp.arange(96)}, path)
        file = vector_files.load_vectors(path)
        found = convert.as_float32(file.vectors, "vectors")
        np.testing.assert_array_equal(found, np.asarray(vectors, np.float32))
        np.testing.assert_array_equal(file.clusters, np.arange(96))


FRAME = pd.DataFrame(VECTORS[0], columns=[*"abcdef"])
COLUMNS = {
    "named.csv": lambda path: FRAME.assign(s=LABELS).to_csv(path, index=False),
    "counted.csv": lambda path: pd.DataFrame(VECTORS[0]).to_csv(path, index=False),
    "bare.csv": lambda path: np.savetxt(path, VECTORS[0], delimiter=","),
    "a.parquet": lambda path: FRAME.assign(s=LABELS).to_parquet(path),
    "lists.parquet": lambda path: pd.DataFrame({"x": [*VECTORS[0]], "s": LABELS}).to_parquet(path),
}


@pytest.mark.parametrize("name", COLUMNS)
def test_a_table_of_numbers_holds_a_vector_in_each_row(name, tmp_path):
    COLUMNS[name](tmp_path / name)
    clusters = None if name in ("counted.csv", "bare.csv") else "s"
    file = vector_files.load_vectors(tmp_path / name, clusters=clusters)
    np.testing.assert_array_equal(np.float32(file.vectors), VECTORS[0])
    if clusters:
        np.testing.assert_array_equal(file.clusters, LABELS)


@pytest.mark.parametrize("kind", [float, int])
def test_a_column_of_one_whole_number_is_a_coordinate(kind, tmp_path):
    frame = (9 * FRAME).astype(kind).assign(dead=0)
    frame.to_csv(tmp_path / "a.csv", index=False)
    found = vector_files.load_vectors(tmp_path / "a.csv").vectors
    np.testing.assert_allclose(found, frame)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (FRAME.assign(place=LABELS), "column place holds whole numbers, and others fractions"),
        (FRAME.assign(text="a", word="b"), "columns text, word hold no numbers; name labels by"),
        (FRAME.rename(columns={"a": ""}), "pandas writes an index: write it with index=False"),
        (FRAME[:0], "it has no rows"),
    ],
)
def test_a_column_that_is_no_coordinate_is_refused(frame, words, tmp_path):
    frame.to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(ValueError, match=words):
        vector_files.load_vectors(tmp_path / "a.csv")


def test_arrays_are_chosen_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", early=VECTORS[0], late=VECTORS[1], s=LABELS)
    file = vector_files.load_vectors(tmp_path / "a.npz", ["late", "early"], "s")
    assert [*file.vectors] == ["late", "early"]
    np.testing.assert_array_equal(file.clusters, LABELS)
    for names in ((["none"], "s"), (["late"], "none")):
        with pytest.raises(ValueError, match="no array 'none'; it holds early, late, s"):
            vector_files.load_vectors(tmp_path / "a.npz", *names)


def test_other_labels_are_named_and_a_mask_is_read(tmp_path):
    path = tmp_path / "a.npz"
    np.savez(path, vectors=VECTORS[0], labels=LABELS, loss=LABELS / 2, steps=np.arange(3))
    with pytest.warns(UserWarning, match="labels, loss have an entry for each point and are not"):
        assert vector_files.load_vectors(path).clusters is None
    mask = np.ones((2, 96))
    np.savez(path, hidden=VECTORS, attention_mask=mask, ids=mask)
    with pytest.raises(
        ValueError, match=r"holds hidden .* name what to measure: --vectors=hidden,ids "
    ):
        vector_files.load_vectors(path)
    np.savez(path, vectors=VECTORS, attention_mask=mask, ids=mask)
    with pytest.warns(UserWarning, match="a.npz: ids has an entry"):
        np.testing.assert_array_equal(vector_files.load_vectors(path).mask, mask)


def test_a_file_that_holds_no_numbers_of_its_own_is_refused_at_once(tmp_path):
    """A pipe would wait for its writer; zeros that fill the memory, and files of others."""
    np.savez_compressed(tmp_path / "zeros.npz", vectors=np.zeros((2**22, 9), np.float32))
    for suffix in vector_files.VECTOR_SUFFIXES[:-1]:
        os.mkfifo(tmp_path / f"pipe{suffix}")
    with h5py.File(tmp_path / "own.nc", "w") as file:
        file["vectors"] = VECTORS[0]
    with h5py.File(tmp_path / "link.nc", "w") as file:
        file["vectors"] = h5py.ExternalLink("own.nc", "vectors")
    with h5py.File(tmp_path / "part.nc", "w") as file:
        whole = h5py.VirtualLayout((96, 6), "f4")
        whole[:] = h5py.VirtualSource("own.nc", "vectors", shape=(96, 6))
        file.create_virtual_dataset("vectors", whole)
    forged = xr.Dataset({"vectors": (("p", "d"), np.int16(VECTORS[0]), {"scale_factor": "a"})})
    forged.to_netcdf(tmp_path / "forged.nc", engine="scipy")
    for name, words in (
        ("zeros.npz", "of repeated numbers, which are no vectors"),
        *((f"pipe{suffix}", "no regular file") for suffix in vector_files.VECTOR_SUFFIXES[:-1]),
        ("link.nc", "kept in another file"),
        ("part.nc", "kept in another file"),
        ("forged.nc", "cannot be read"),
    ):
        with pytest.raises(ValueError, match=words) as error:
            vector_files.load_vectors(tmp_path / name)
        assert "\n" not in str(error.value)


@pytest.mark.parametrize("chunks", [None, (32, 6)])
def test_a_part_of_a_netcdf_that_was_never_written_is_no_zeros(chunks, tmp_path):
    """As of a process that was killed."""
    with h5netcdf.File(tmp_path / "a.nc", "w") as file:
        file.dimensions = {"point": 96, "width": 6}
        array = file.create_variable("vectors", ("point", "width"), "f4", chunks=chunks)
        if chunks:
            array[:64] = VECTORS[0, :64]
    message = "2 of 3 chunks of vectors" if chunks else "0 of 1 chunks of vectors"
    with pytest.raises(ValueError, match=message):
        vector_files.load_vectors(tmp_path / "a.nc")


def test_packed_numbers_are_unpacked_and_their_fill_value_is_refused(tmp_path):
    packed = np.rint(VECTORS[0] * 1000).astype(np.int16)
    attrs = {"scale_factor": 0.001, "add_offset": 3.0, "_FillValue": np.int16(-9)}
    packed[packed == -9] = -8
    path = tmp_path / "a.nc"
    xr.Dataset({"vectors": (("p", "d"), packed, attrs)}).to_netcdf(path)
    found = np.array(vector_files.load_vectors(path).vectors)
    np.testing.assert_allclose(found, packed * 0.001 + 3, rtol=1e-6)
    packed[5, 2] = -9
    xr.Dataset({"vectors": (("p", "d"), packed, attrs)}).to_netcdf(tmp_path / "b.nc")
    with pytest.raises(ValueError, match="not finite"):
        measure(tmp_path / "b.nc")


@pytest.mark.parametrize(("first", "words"), [(2**53, "merge neighboring"), (0, "1 of 96")])
def test_labels_that_a_fill_value_makes_floats_are_never_merged(first, words, tmp_path):
    label_P = LABELS + first
    label_P[:1] = -1 if first == 0 else first
    arrays = {"clusters": ("p", label_P, {"_FillValue": -1}), "vectors": (("p", "d"), VECTORS[0])}
    xr.Dataset(arrays).to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.raises(ValueError, match=words):
        measure(tmp_path / "a.nc")


def test_a_file_that_cannot_be_read_is_one_line(tmp_path):
    path = tmp_path / "a.npz"
    for write, words in (
        (lambda: None, "there is no file"),
        (lambda: path.write_bytes(b"no archive"), "cannot be read"),
        (lambda: np.savez(path, a=np.array([{}], object)), "allow_pickle=False"),
        (
            lambda: np.savez(path, a=VECTORS[0], b=VECTORS[1]),
            r"holds a \(96, 6\), b \(96, 6\); name .* --vectors=a,b ",
        ),
    ):
        write()
        with pytest.raises(ValueError, match=words) as error:
            vector_files.load_vectors(path)
        assert "\n" not in str(error.value)
    with open(tmp_path / "two.npy", "wb") as file:
        np.save(file, VECTORS[0])
        np.save(file, VECTORS[1])
    with pytest.raises(ValueError, match="bytes follow its array"):
        vector_files.load_vectors(tmp_path / "two.npy")
