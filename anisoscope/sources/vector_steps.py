"""Arrays of a .zarr folder or a NetCDF file, in numbers as their attributes say: both by xarray's
own rules.

A chunk that is missing stands for a fill value, and where it was lost for numbers that nobody
wrote: it is refused.
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

from anisoscope.utils import memory
from anisoscope.utils.files import read_json

NAMES = ".zarray", "zarr.json"  # of an array's description, in version 2 and 3
FILLS = "_FillValue", "missing_value"
SCALES = "scale_factor", "add_offset"
DIMENSIONS = "_ARRAY_DIMENSIONS"  # by which xarray tells its own arrays of version 2


class Stored(NamedTuple):
    """An array that is not yet read."""

    shape: tuple[int, ...]
    dtype: np.dtype | str  # str: a type that NumPy has not
    at_once: bool  # reading any part of it takes all of it
    vectors: Callable[[], Any]
    labels: Callable[[], Any] | None = None

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * self.dtype.itemsize

    def as_labels(self) -> np.ndarray:
        return np.asarray((self.labels or self.vectors)())


def netcdf(path: pathlib.Path) -> dict[str, Stored]:
    variables = xr.open_dataset(path, decode_cf=False).variables
    return {name: _of_netcdf(path, name, variable) for name, variable in variables.items()}


def _of_netcdf(path: pathlib.Path, name: str, variable: xr.Variable) -> Stored:
    def checked(of: Callable[[xr.Variable], Any]) -> Any:
        with open(path, "rb") as file:
            if file.read(4) == b"\x89HDF":
                _check_written(path, name)
        return of(variable)

    vectors, labels = (functools.partial(checked, of) for of in (_vectors, _labels))
    return Stored(variable.shape, variable.dtype, False, vectors, labels)


def _check_written(path: pathlib.Path, name: str) -> None:
    """ValueError where a part of an array was never written."""
    import h5py

    with h5py.File(path) as file:
        array = file[name]
        if array.chunks:
            wanted = math.prod(
                -(-size // width) for size, width in zip(array.shape, array.chunks, strict=True)
            )
            there = array.id.get_num_chunks()
        else:
            wanted, there = int(array.size > 0), int(array.id.get_storage_size() > 0)
    if there < wanted:
        raise ValueError(
            f"only {there} of {wanted} chunks of {name} are written, others would be read as a fill value"
        )


def _vectors(variable: xr.Variable) -> xr.DataArray:
    """With names of dimensions, which tell where the width is."""
    return xr.DataArray(xr.conventions.decode_cf_variable("vectors", variable, decode_times=False))


def _labels(variable: xr.Variable) -> np.ndarray:
    """Whole numbers as they stand: beside a fill value xarray makes them float64, where large ones
    are equal.
    """
    if any(name in variable.attrs for name in SCALES):
        return np.asarray(_vectors(variable))
    labels = xr.conventions.decode_cf_variable(
        "labels", variable, mask_and_scale=False, decode_times=False
    )
    label_P = np.asarray(labels)
    for name in FILLS:
        if name in variable.attrs and (
            missing := int(np.isin(label_P, variable.attrs[name]).sum())
        ):
            raise ValueError(
                f"{missing} of {label_P.size} labels are missing ({name}): leave their points out"
            )
    return label_P


class Chunks(xr.backends.BackendArray):
    """What TensorStore holds, as xarray asks for it."""

    def __init__(self, store: Any) -> None:
        self.store, self.shape, self.dtype = store, store.shape, np.dtype(store.dtype.numpy_dtype)

    def __getitem__(self, key: indexing.ExplicitIndexer) -> np.ndarray:
        return indexing.explicit_indexing_adapter(
            key, self.shape, indexing.IndexingSupport.OUTER, self._read
        )

    def _read(self, key: tuple[Any, ...]) -> np.ndarray:
        return np.asarray(self.store.oindex[key])


def zarr(path: pathlib.Path) -> dict[str, Stored]:
    """An array, or a group of them, of either version of the format."""
    if _described(path):
        return {"vectors": _array(path)}
    return {folder.name: _array(folder) for folder in sorted(path.iterdir()) if _described(folder)}


def _described(folder: pathlib.Path) -> dict[str, Any]:
    """What an array's folder says of it; of anything else nothing."""
    name = next((name for name in NAMES if (folder / name).is_file()), None)
    about = read_json(folder / name, "write the vectors again") if name else {}
    return about if about.get("node_type", "array") == "array" else {}


def _array(folder: pathlib.Path) -> Stored:
    about = _described(folder)
    variable = functools.cache(functools.partial(_variable, folder))
    vectors, labels = (lambda of=of: of(variable()) for of in (_vectors, _labels))
    dtype = np.dtype(about.get("dtype") or about.get("data_type", float))
    return Stored(tuple(about["shape"]), dtype, False, vectors, labels)


def _variable(folder: pathlib.Path) -> xr.Variable:
    """Not decoded, as xarray would have it."""
    import tensorstore

    about = _described(folder)
    old = "node_type" not in about
    spec = {
        "driver": "zarr" if old else "zarr3",
        "kvstore": {"driver": "file", "path": str(folder)},
    }
    store = tensorstore.open(spec, open=True, read=True).result()
    _check(store, folder.name)
    attrs = about.get("attributes", {})
    if old and (folder / ".zattrs").is_file():
        attrs = read_json(folder / ".zattrs", "write the vectors again")
        if DIMENSIONS in attrs and about["fill_value"] is not None:
            attrs["_FillValue"] = about["fill_value"]
    chunks = Chunks(store)
    fills = {name: _fill(attrs[name], chunks.dtype) for name in FILLS if name in attrs}
    dims = about.get("dimension_names") or attrs.pop(DIMENSIONS, None) or [None] * store.ndim
    dims = [name or f"dim_{place}" for place, name in enumerate(dims)]
    return xr.Variable(dims, indexing.LazilyIndexedArray(chunks), attrs | fills)


def _fill(value: Any, dtype: np.dtype) -> Any:
    """As JSON has it: a number, a word as NaN, or of version 3 the bytes of a float64."""
    if not isinstance(value, str) or dtype.kind != "f":
        return value
    try:
        return float(value)
    except ValueError:
        return struct.unpack("<d", base64.b64decode(value))[0]


def _check(store: Any, name: str) -> None:
    """ValueError where a chunk is not there, or is more than can be read."""
    if store.dtype.numpy_dtype.kind in "SUO":
        raise ValueError(
            f"{name} holds words, which are not read from a .zarr: write numbers in their place"
        )
    chunk, there = store.chunk_layout.read_chunk.shape, memory.of_machine()
    takes = math.prod(chunk) * store.dtype.numpy_dtype.itemsize
    if there is not None and takes > there:
        raise ValueError(
            f"a chunk of {name} takes {memory.format_bytes(takes)}, and {memory.format_bytes(there)} are available"
        )
    if store.storage_statistics(query_fully_stored=True).result().fully_stored:
        return
    for place in np.ndindex(
        *(-(-size // width) for size, width in zip(store.shape, chunk, strict=True))
    ):
        starts = [number * width for number, width in zip(place, chunk, strict=True)]
        part = store[
            tuple(
                slice(a, min(a + n, size))
                for a, n, size in zip(starts, chunk, store.shape, strict=True)
            )
        ]
        if not part.storage_statistics(query_fully_stored=True).result().fully_stored:
            where = ".".join(map(str, place))
            raise ValueError(
                f"chunk {where} of {name} is missing, and would be read as its fill value: copy the store again, or, "
                "where all of the chunk is that value, write it with write_empty_chunks=True"
            )
