"""Open arrays of a .zarr folder or a NetCDF file, decoded by xarray's rules.

A missing chunk reads as a fill value. A chunk that was lost would turn into numbers that nobody
wrote, so missing chunks are refused.
"""

import base64
import functools
import math
import pathlib
import struct
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr
from xarray.core import indexing

from anisoscope.utils.files import read_json

NAMES = ".zarray", "zarr.json"  # files with the description of an array, in versions 2 and 3
FILLS = "_FillValue", "missing_value"
SCALES = "scale_factor", "add_offset"
DIMENSIONS = "_ARRAY_DIMENSIONS"  # attribute of arrays that xarray writes in version 2
ADVICE = "write the vectors again"


class Stored(NamedTuple):
    """An array that is not read yet."""

    shape: tuple[int, ...]
    itemsize: int
    least: int  # bytes needed to read any part
    open: Callable[[], Any]  # returns an array, or an undecoded variable

    @property
    def bytes(self) -> int:
        return math.prod(self.shape) * self.itemsize


def open_netcdf(path: pathlib.Path) -> dict[str, Stored]:
    """Open the variables of a NetCDF file."""
    with open(path, "rb") as file:
        hdf = file.read(4) == b"\x89HDF"

    def read(name: str, variable: xr.Variable) -> xr.Variable:
        if hdf:
            _check_hdf_chunks(path, name)
        return variable

    return {
        name: Stored(x.shape, x.dtype.itemsize, 0, functools.partial(read, name, x))
        for name, x in xr.open_dataset(path, decode_cf=False).variables.items()
    }


def _check_hdf_chunks(path: pathlib.Path, name: str) -> None:
    """Raise ValueError where a part of an array was never written."""
    import h5py

    with h5py.File(path) as file:
        array = file[name]
        if array.chunks:
            per_axis = zip(array.shape, array.chunks, strict=True)
            count = math.prod(math.ceil(size / width) for size, width in per_axis)
            written = array.id.get_num_chunks()
        else:
            count, written = int(array.size > 0), int(array.id.get_storage_size() > 0)
    if written < count:
        raise ValueError(
            f"only {written} of {count} chunks of {name} are written, the others would be read as a "
            "fill value; write the vectors again"
        )


def decode_vectors(array: Any) -> Any:
    """Decode numbers by the attributes of a variable, and keep the names of dimensions."""
    if not isinstance(array, xr.Variable):
        return array
    return xr.DataArray(xr.conventions.decode_cf_variable("vectors", array, decode_times=False))


def decode_labels(array: Any) -> np.ndarray:
    """Decode whole numbers exactly.

    With a fill value xarray would return float64, in which large labels become equal.
    """
    attrs = array.attrs if isinstance(array, xr.Variable) else {}
    if not {*FILLS} & attrs.keys() or {*SCALES} & attrs.keys():
        return np.asarray(decode_vectors(array))
    labels = xr.conventions.decode_cf_variable(
        "labels", array, mask_and_scale=False, decode_times=False
    )
    label_P = np.asarray(labels)
    for name in FILLS:
        missing = name in attrs and np.isin(label_P, attrs[name]).sum()
        if missing:
            raise ValueError(
                f"{missing} of {label_P.size} labels are missing ({name}): leave their points out"
            )
    return label_P


def open_zarr(path: pathlib.Path) -> dict[str, Stored]:
    """Open an array or a group of arrays, of version 2 or 3 of the format."""
    if _read_description(path):
        return {"vectors": _open_zarr_array(path)}
    folders = [folder for folder in sorted(path.iterdir()) if _read_description(folder)]
    return {folder.name: _open_zarr_array(folder) for folder in folders}


def _read_description(folder: pathlib.Path) -> dict[str, Any]:
    """Read the description in the folder of an array; {} for other folders."""
    name = next((name for name in NAMES if (folder / name).is_file()), None)
    about = read_json(folder / name, ADVICE) if name else {}
    return about if about.get("node_type", "array") == "array" else {}


def _open_zarr_array(folder: pathlib.Path) -> Stored:
    import tensorstore

    about = _read_description(folder)
    first = "node_type" not in about  # version 2
    driver, kvstore = "zarr" if first else "zarr3", {"driver": "file", "path": str(folder)}
    spec = {"driver": driver, "kvstore": kvstore}
    try:
        store = tensorstore.open(spec, open=True, read=True).result()
    except (
        ValueError
    ) as error:  # types unknown to TensorStore, as strings: other arrays are still read
        return Stored(tuple(about["shape"]), 0, 0, functools.partial(_refuse, error))
    chunks = Chunks(store)
    attrs = about.get("attributes", {})
    if first and (folder / ".zattrs").is_file():
        attrs = read_json(folder / ".zattrs", ADVICE)
        if DIMENSIONS in attrs and about["fill_value"] is not None:
            attrs["_FillValue"] = about["fill_value"]
    attrs |= {name: _decode_fill(attrs[name], chunks.dtype) for name in FILLS if name in attrs}
    dims = about.get("dimension_names") or attrs.pop(DIMENSIONS, None) or [None] * store.ndim
    dims = [name or f"dim_{axis}" for axis, name in enumerate(dims)]
    variable = xr.Variable(dims, indexing.LazilyIndexedArray(chunks), attrs)

    def read() -> xr.Variable:
        _check_zarr_chunks(store, folder.name)
        return variable

    least = math.prod(store.chunk_layout.read_chunk.shape) * chunks.dtype.itemsize
    return Stored(store.shape, chunks.dtype.itemsize, least, read)


def _refuse(error: ValueError) -> None:
    raise error


class Chunks(xr.backends.BackendArray):
    """An array of TensorStore, as xarray reads it."""

    def __init__(self, store: Any) -> None:
        self.store, self.shape, self.dtype = store, store.shape, np.dtype(store.dtype.numpy_dtype)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> np.ndarray:
        return indexing.explicit_indexing_adapter(
            key,
            self.shape,
            indexing.IndexingSupport.OUTER,
            lambda index: np.asarray(self.store.oindex[index]),
        )


def _decode_fill(value: Any, dtype: np.dtype) -> Any:
    """Decode a fill value of JSON: a number, a word such as NaN, or the bytes of a float64."""
    if not isinstance(value, str) or dtype.kind != "f":
        return value
    try:
        return float(value)
    except ValueError:
        return struct.unpack("<d", base64.b64decode(value))[0]


def _check_zarr_chunks(store: Any, name: str) -> None:
    """Raise ValueError where a chunk is missing."""

    def is_stored(part: Any) -> bool:
        return part.storage_statistics(query_fully_stored=True).result().fully_stored

    if is_stored(store):
        return
    width = store.chunk_layout.read_chunk.shape
    counts = [math.ceil(size / chunk) for size, chunk in zip(store.shape, width, strict=True)]
    for place in np.ndindex(*counts):
        part = tuple(
            slice(number * chunk, min((number + 1) * chunk, size))
            for number, chunk, size in zip(place, width, store.shape, strict=True)
        )
        if not is_stored(store[part]):
            raise ValueError(
                f"chunk {'.'.join(map(str, place))} of {name} is missing, and would be read as its "
                "fill value; copy the store again, or write chunks of fill values with "
                "write_empty_chunks=True"
            )
