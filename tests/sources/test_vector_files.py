"""What is read of a file of vectors: chunks, packed numbers, labels to the last bit, and nothing
that is not there.
"""

import json

import h5netcdf
import jax.numpy as jnp
import numpy as np
import pytest
import tensorstore
import xarray as xr
from safetensors.flax import save_file as save_jax
from safetensors.numpy import save_file

from anisoscope import measure
from anisoscope.metrics import convert
from anisoscope.sources import vector_files

VECTORS = np.random.default_rng(0).normal(size=(2, 96, 6)).astype(np.float32) * np.arange(1, 7)
VECTORS = VECTORS.astype(np.float32)
LABELS = np.repeat(np.arange(12), 8)


def grid(shape):
    return {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": shape}}}


SHARDS = {"codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [32, 6]}}]}
CHUNKED = {
    "two.zarr": ("zarr", {"chunks": [32, 6]}),
    "slashes.zarr": ("zarr", {"chunks": [32, 6], "dimension_separator": "/"}),
    "filled.zarr": ("zarr", {"chunks": [32, 6], "fill_value": 5.0}),
    "three.zarr": ("zarr3", grid([32, 6]) | {"fill_value": 5.0}),
    "sharded.zarr": ("zarr3", grid([96, 6]) | SHARDS),
}


def store(path, driver, metadata, array, written=slice(None)):
    kind = {"dtype": array.dtype.str} if driver == "zarr" else {"data_type": array.dtype.name}
    spec = {"driver": driver, "kvstore": {"driver": "file", "path": str(path)}}
    spec["metadata"] = metadata | kind
    opened = tensorstore.open(spec, create=True, dtype=array.dtype, shape=array.shape).result()
    opened[written] = array[written]


def read(path, **names):
    return np.asarray(vector_files.load(path, **names).vectors)


def test_labels_keep_all_their_bits_and_bfloat16_is_read(tmp_path):
    path, label_P, place_P = tmp_path / "a.safetensors", LABELS << 32, (np.arange(96) % 8) + 2**32
    save_file({"groups": label_P, "token_positions": place_P, "vectors": VECTORS}, path)
    file = vector_files.load(path)
    np.testing.assert_array_equal(file.cluster_P, label_P)
    np.testing.assert_array_equal(file.position_P, place_P)
    vectors = jnp.asarray(VECTORS, jnp.bfloat16)
    save_jax({"vectors": vectors}, path)
    found = convert.as_float32(vector_files.load(path).vectors, "vectors")
    np.testing.assert_array_equal(found, np.asarray(vectors, np.float32))


@pytest.mark.parametrize("inside", ["", "layer"])
@pytest.mark.parametrize("name", CHUNKED)
def test_a_chunk_that_is_missing_is_no_chunk_of_zeros(name, inside, tmp_path):
    store(tmp_path / name / inside, *CHUNKED[name], VECTORS[0])
    np.testing.assert_array_equal(read(tmp_path / name), VECTORS[0])
    lacking = tmp_path / f"lacking_{name}"
    store(lacking / inside, *CHUNKED[name], VECTORS[0], slice(64))
    with pytest.raises(ValueError, match=f"chunk 2.0 of {inside or lacking.name} is missing"):
        vector_files.load(lacking)


@pytest.mark.parametrize("chunks", [None, (32, 6)])
def test_what_of_a_netcdf_was_never_written_is_no_zeros(chunks, tmp_path):
    """As of a process that was killed."""
    with h5netcdf.File(tmp_path / "a.nc", "w") as file:
        file.dimensions = {"point": 96, "width": 6}
        array = file.create_variable("vectors", ("point", "width"), "f4", chunks=chunks)
        if chunks:
            array[:64] = VECTORS[0, :64]
    words = "2 of 3 chunks of vectors" if chunks else "0 of 1 chunks of vectors"
    with pytest.raises(ValueError, match=words):
        vector_files.load(tmp_path / "a.nc")


PACKED = {"scale_factor": 0.001, "add_offset": 3.0}
SMALL = np.rint(VECTORS[0] * 1000).astype(np.int16)


@pytest.mark.parametrize("name", ["a.nc", "two.zarr", "three.zarr"])
def test_packed_numbers_are_those_that_their_attributes_say(name, tmp_path):
    path = tmp_path / name
    if name == "a.nc":
        attrs = PACKED | {"_FillValue": np.int16(-9)}
        xr.Dataset({"vectors": (("p", "d"), SMALL, attrs)}).to_netcdf(path)
    elif name == "three.zarr":  # as xarray writes them
        attrs = {"attributes": PACKED | {"_FillValue": -9}}
        store(path, "zarr3", CHUNKED[name][1] | attrs, SMALL)
    else:
        store(path, "zarr", CHUNKED[name][1] | {"fill_value": -9}, SMALL)
        (path / ".zattrs").write_text(json.dumps(PACKED | {"_ARRAY_DIMENSIONS": ["p", "d"]}))
    expected = np.where(SMALL == -9, np.nan, SMALL * 0.001 + 3)
    np.testing.assert_allclose(read(path), expected, rtol=1e-6)


@pytest.mark.parametrize(("fill", "value"), [("NaN", np.nan), ("AAAAAAAAFEA=", 5)])
def test_fill_values_of_floats_are_read_as_xarray_writes_them(fill, value, tmp_path):
    rounded = VECTORS[0].round()
    attrs = {"attributes": {"_FillValue": fill}}
    store(tmp_path / "a.zarr", "zarr3", CHUNKED["three.zarr"][1] | attrs, rounded)
    expected = np.where(rounded == value, np.nan, rounded)
    np.testing.assert_array_equal(read(tmp_path / "a.zarr"), expected)


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("name", ["a.nc", "a.zarr"])
def test_labels_with_a_fill_value_keep_all_their_bits(name, missing, tmp_path):
    """As float64, in which xarray reads them, every second one is another's."""
    label_P, attrs, path = LABELS + 2**53, {"_FillValue": -1}, tmp_path / name
    label_P[:missing] = -1
    if name == "a.nc":
        arrays = {"clusters": ("p", label_P, attrs), "vectors": (("p", "d"), VECTORS[0])}
        xr.Dataset(arrays).to_netcdf(path, engine="h5netcdf")
    else:
        store(path / "clusters", "zarr3", {"attributes": attrs}, label_P)
        store(path / "vectors", *CHUNKED["three.zarr"], VECTORS[0])
    if missing:
        with pytest.raises(ValueError, match="1 of 96 labels are missing"):
            vector_files.load(path)
    else:
        found = vector_files.load(path).cluster_P
        np.testing.assert_array_equal(found, label_P)
        assert found.dtype == int


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("a.nc", ("hidden", "token")),
        ("two.zarr", ("token", "layer", "hidden")),
        ("three.zarr", ("width", "point")),
    ],
)
def test_dimensions_in_another_order_are_refused(name, dims, tmp_path):
    path, array = tmp_path / name, VECTORS[0] if len(dims) == 2 else VECTORS
    if name == "a.nc":
        xr.Dataset({"vectors": (dims, array)}).to_netcdf(path)
    elif name == "three.zarr":
        store(path / "vectors", "zarr3", {"dimension_names": dims}, array)
    else:
        store(path / "vectors", "zarr", {}, array)
        about = json.dumps({"_ARRAY_DIMENSIONS": dims})
        (path / "vectors" / ".zattrs").write_text(about)
    with pytest.raises(ValueError, match=f"have the dimensions {', '.join(dims)}; transpose them"):
        measure(path)


def test_rows_of_a_store_are_read_without_the_others(tmp_path):
    store(tmp_path / "a.zarr", *CHUNKED["two.zarr"], VECTORS[0])
    rows_P = np.array([3, 40, 95])
    vectors = vector_files.load(tmp_path / "a.zarr").vectors
    np.testing.assert_array_equal(vectors[rows_P], VECTORS[0, rows_P])
    rounded = VECTORS[0].astype(jnp.bfloat16)
    store(tmp_path / "b.zarr", "zarr3", {}, rounded)
    vectors = vector_files.load(tmp_path / "b.zarr").vectors
    found = convert.as_float32(vectors, "vectors")
    np.testing.assert_array_equal(found, rounded.astype(np.float32))


def test_what_is_no_file_of_vectors_is_one_line(tmp_path):
    path = tmp_path / "a.npz"
    for write, words in (
        (lambda: None, "does not exist"),
        (lambda: path.write_bytes(b"no archive"), "cannot be read"),
        (lambda: np.savez(path, a=np.array([{}], object)), "pickled arrays are never"),
        (lambda: np.savez(path, a=VECTORS[0], b=VECTORS[1]), r"holds a \(96, 6\), b \(96, 6\); na"),
    ):
        write()
        with pytest.raises(ValueError, match=words) as error:
            vector_files.load(path)
        assert "\n" not in str(error.value)
    with pytest.raises(ValueError, match="has no array 'c'"):
        vector_files.load(path, ("a", "c"))
