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
from tests.program import refuse
from tests.sources.test_vectors import CONFIG, LABELS, VECTORS


def test_labels_keep_all_their_bits(tmp_path):
    label_P, place_P = LABELS << 32, (np.arange(96) % 8) + 2**32
    save_file(
        {"groups": label_P, "positions": place_P, "vectors": VECTORS}, tmp_path / "a.safetensors"
    )
    found = vector_files.load(tmp_path / "a.safetensors", (), "", "")
    np.testing.assert_array_equal(found.cluster_P, label_P)
    np.testing.assert_array_equal(found.position_P, place_P)


def test_bfloat16_is_read(tmp_path):
    vectors = jnp.asarray(VECTORS, jnp.bfloat16)
    save_jax({"vectors": vectors}, tmp_path / "a.safetensors")
    found = vector_files.load(tmp_path / "a.safetensors", (), "", "")
    np.testing.assert_array_equal(
        convert.as_float32(found.vectors, "vectors"), np.asarray(vectors, np.float32)
    )


CHUNKED = {
    "two.zarr": ("zarr", {"chunks": [32, 6]}),
    "slashes.zarr": ("zarr", {"chunks": [32, 6], "dimension_separator": "/"}),
    "filled.zarr": ("zarr", {"chunks": [32, 6], "fill_value": 5.0}),
    "three.zarr": (
        "zarr3",
        {
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [32, 6]}},
            "fill_value": 5.0,
        },
    ),
    "sharded.zarr": (
        "zarr3",
        {
            "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [96, 6]}},
            "codecs": [{"name": "sharding_indexed", "configuration": {"chunk_shape": [32, 6]}}],
        },
    ),
}


def stored(path, driver, metadata, array, written=slice(None)):
    metadata = metadata | (
        {"dtype": array.dtype.str} if driver == "zarr" else {"data_type": array.dtype.name}
    )
    spec = {
        "driver": driver,
        "kvstore": {"driver": "file", "path": str(path)},
        "metadata": metadata,
    }
    store = tensorstore.open(spec, create=True, dtype=array.dtype, shape=array.shape).result()
    store[written] = array[written]


def loaded(path, **names):
    found = vector_files.load(path, **{"layers": (), "clusters": "", "positions": ""} | names)
    return found._replace(vectors=np.asarray(found.vectors))


@pytest.mark.parametrize("inside", ["", "layer"])
@pytest.mark.parametrize("name", CHUNKED)
def test_a_chunk_that_is_missing_is_no_chunk_of_zeros(name, inside, tmp_path):
    stored(tmp_path / name / inside, *CHUNKED[name], VECTORS[0])
    np.testing.assert_array_equal(loaded(tmp_path / name).vectors, VECTORS[0])
    lacking = tmp_path / f"lacking_{name}"
    stored(lacking / inside, *CHUNKED[name], VECTORS[0], slice(64))
    words = f"chunk 2.0 of {inside or lacking.name} is missing"
    refuse(tmp_path / "run", words, CONFIG, f"--config.vectors.path={lacking}")


PACKED = {"scale_factor": 0.001, "add_offset": 3.0}
SMALL = np.rint(VECTORS[0] * 1000).astype(np.int16)


@pytest.mark.parametrize("name", ["a.nc", "two.zarr", "three.zarr"])
def test_packed_numbers_are_those_that_their_attributes_say(name, tmp_path):
    if name == "a.nc":
        xr.Dataset(
            {"vectors": (("p", "d"), SMALL, PACKED | {"_FillValue": np.int16(-9)})}
        ).to_netcdf(tmp_path / name)
    else:
        driver, metadata = CHUNKED[name]
        three = driver == "zarr3"
        # as xarray writes them
        fill = {"attributes": PACKED | {"_FillValue": -9}} if three else {"fill_value": -9}
        stored(tmp_path / name, driver, metadata | fill, SMALL)
        if not three:
            (tmp_path / name / ".zattrs").write_text(
                json.dumps(PACKED | {"_ARRAY_DIMENSIONS": ["p", "d"]})
            )
    expected = np.where(SMALL == -9, np.nan, SMALL * 0.001 + 3)
    np.testing.assert_allclose(loaded(tmp_path / name).vectors, expected, rtol=1e-6)


def test_fill_values_of_floats_are_read_as_xarray_writes_them(tmp_path):
    rounded = VECTORS[0].round()
    for fill, value in (("NaN", np.nan), ("AAAAAAAAFEA=", 5)):
        path = tmp_path / f"{value}.zarr"
        stored(
            path, "zarr3", CHUNKED["three.zarr"][1] | {"attributes": {"_FillValue": fill}}, rounded
        )
        np.testing.assert_array_equal(
            loaded(path).vectors, np.where(rounded == value, np.nan, rounded)
        )


@pytest.mark.parametrize("name", ["a.nc", "a.zarr"])
def test_labels_beside_a_fill_value_keep_all_their_bits(name, tmp_path):
    """As float64, in which xarray reads them, every second one is another's."""
    label_P, attrs = LABELS + 2**53, {"_FillValue": -1}
    for missing in (0, 1):
        path = tmp_path / f"{missing}_{name}"
        label_P[:missing] = -1
        if name == "a.nc":
            arrays = {"clusters": ("p", label_P, attrs), "vectors": (("p", "d"), VECTORS[0])}
            xr.Dataset(arrays).to_netcdf(path, engine="h5netcdf")
        else:
            stored(path / "clusters", "zarr3", {"attributes": attrs}, label_P)
            stored(path / "vectors", *CHUNKED["three.zarr"], VECTORS[0])
        if missing:
            refuse(
                tmp_path / "run",
                "1 of 96 labels are missing (_FillValue)",
                CONFIG,
                f"--config.vectors.path={path}",
            )
        else:
            np.testing.assert_array_equal(loaded(path).cluster_P, label_P)
            assert loaded(path).cluster_P.dtype == int


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        ("a.nc", ("hidden", "token")),
        ("two.zarr", ("token", "layer", "hidden")),
        ("three.zarr", ("width", "point")),
    ],
)
def test_dimensions_in_another_order_are_refused(name, dims, tmp_path):
    array = VECTORS[0] if len(dims) == 2 else VECTORS
    if name == "a.nc":
        xr.Dataset({"vectors": (dims, array)}).to_netcdf(tmp_path / name)
    else:
        driver = "zarr" if name == "two.zarr" else "zarr3"
        named = {"dimension_names": dims} if driver == "zarr3" else {}
        stored(tmp_path / name / "vectors", driver, named, array)
        if not named:
            about = json.dumps({"_ARRAY_DIMENSIONS": dims})
            (tmp_path / name / "vectors" / ".zattrs").write_text(about)
    with pytest.raises(ValueError, match=f"have the dimensions {', '.join(dims)}; transpose them"):
        measure(tmp_path / name)
    refuse(tmp_path / "run", "transpose them", CONFIG, f"--config.vectors.path={tmp_path / name}")


@pytest.mark.parametrize("chunks", [None, (32, 6)])
def test_what_of_a_netcdf_was_never_written_is_no_zeros(chunks, tmp_path):
    """As of a process that was killed."""
    with h5netcdf.File(tmp_path / "a.nc", "w") as file:
        file.dimensions = {"point": 96, "width": 6}
        array = file.create_variable("vectors", ("point", "width"), "f4", chunks=chunks)
        if chunks:
            array[:64] = VECTORS[0, :64]
    words = "2 of 3 chunks of vectors" if chunks else "0 of 1 chunks of vectors"
    refuse(tmp_path / "run", words, CONFIG, f"--config.vectors.path={tmp_path / 'a.nc'}")


def test_rows_of_a_store_are_read_without_the_others(tmp_path):
    stored(tmp_path / "a.zarr", *CHUNKED["two.zarr"], VECTORS[0])
    found, rows_P = (
        vector_files.load(tmp_path / "a.zarr", (), "", "").vectors,
        np.array([3, 40, 95]),
    )
    np.testing.assert_array_equal(found[rows_P], VECTORS[0, rows_P])
    stored(tmp_path / "b.zarr", "zarr3", {}, VECTORS[0].astype(jnp.bfloat16))
    vectors = vector_files.load(tmp_path / "b.zarr", (), "", "").vectors
    np.testing.assert_array_equal(
        convert.as_float32(vectors, "vectors"), VECTORS[0].astype(jnp.bfloat16).astype(np.float32)
    )
