"""Read vectors from .npy, .npz, .safetensors, .zarr or NetCDF files; never from pickles.

A pickle can run any code. The shape of an array, and the memory that reading takes, are known
before it is read.
"""

import contextlib
import functools
import math
import pathlib
import re
import zipfile
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from anisoscope.sources.vector_stores import (
    Stored,
    decode_labels,
    decode_vectors,
    open_netcdf,
    open_zarr,
)
from anisoscope.utils import memory

VECTORS = "vectors"


class FileVectors(NamedTuple):
    """Vectors of a file, with clusters and token positions if it has them."""

    vectors: Any  # (points, width), (layers, points, width) or a list of layers
    cluster_P: np.ndarray | None
    position_P: np.ndarray | None


def open_npy(path: pathlib.Path) -> dict[str, Stored]:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if behind := path.stat().st_size - array.offset - array.nbytes:
        raise ValueError(f"{behind:,} bytes follow its array; save several arrays in an .npz")
    return {VECTORS: Stored(array.shape, array.itemsize, 0, lambda: array)}


def open_npz(path: pathlib.Path) -> dict[str, Stored]:
    archive, arrays = zipfile.ZipFile(path), {}
    for name in archive.namelist():
        with archive.open(name) as file:
            first = np.lib.format.read_magic(file) == (1, 0)
            read_header = (
                np.lib.format.read_array_header_1_0
                if first
                else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read_header(file)
        if dtype.hasobject:
            raise ValueError("it holds Python objects; pickled arrays are never read")
        read = functools.partial(lambda name: np.load(path, allow_pickle=False)[name], name)
        size = math.prod(shape) * dtype.itemsize
        arrays[name.removesuffix(".npy")] = Stored(shape, dtype.itemsize, size, read)
    return arrays


def open_safetensors(path: pathlib.Path) -> dict[str, Stored]:
    from safetensors import safe_open

    file, arrays = safe_open(path, "np"), {}  # reading as JAX arrays would cut labels to 32 bits
    for name in file.keys():  # noqa: SIM118, not a dictionary
        part = file.get_slice(name)
        shape, bits = tuple(part.get_shape()), re.search(r"\d+", part.get_dtype())  # BOOL has none
        itemsize = math.ceil(int(bits.group()) / 8) if bits else 1
        read = functools.partial(file.get_tensor, name)
        arrays[name] = Stored(shape, itemsize, math.prod(shape) * itemsize, read)
    return arrays


READERS: dict[str, Callable[[pathlib.Path], dict[str, Stored]]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".safetensors": open_safetensors,
    ".zarr": open_zarr,
    ".nc": open_netcdf,
    ".netcdf": open_netcdf,
}


def load(
    path: pathlib.Path,
    layers: tuple[str, ...] = (),
    clusters: str = "",
    token_positions: str = "",
    num_chunks: int = 1,
) -> FileVectors:
    """Open vectors, read layer by layer where the format allows it, and read their labels.

    Args:
        path: a file of one of `READERS`.
        layers: names of arrays; else `vectors`, or the only array of two or three dimensions.
        clusters: the name of the labels; else `clusters` or `groups`, if present.
        token_positions: likewise; else `token_positions`.
        num_chunks: number of chunks that are measured, for the estimate of memory.

    Raises:
        ValueError: the file cannot be read, or does not fit into memory; in one line.
    """
    if path.suffix.lower() not in READERS:
        raise ValueError(f"{path} has an unknown format; pass a file of {', '.join(READERS)}")
    if not path.exists():
        raise ValueError(f"{path} does not exist; check the path")
    with explain_failure(path):
        arrays = READERS[path.suffix.lower()](path)
    names = layers or (VECTORS,)
    if not layers and VECTORS not in arrays:
        names = tuple(name for name, array in arrays.items() if len(array.shape) in (2, 3))
    listed = ", ".join(f"{name} {array.shape}" for name, array in [*arrays.items()][:8])
    if not layers and len(names) != 1:
        raise ValueError(
            f"{path} holds {listed}; name the arrays to measure, as --config.vectors.layers=a,b"
        )
    labels = [
        label or next((name for name in found if name in arrays), "")
        for label, found in (
            (clusters, ("clusters", "groups")),
            (token_positions, ("token_positions",)),
        )
    ]
    for name in (*names, *labels):
        if name and name not in arrays:
            raise ValueError(f"{path} has no array {name!r}; it holds {listed}")
    takes = sum(arrays[name].bytes for name in labels if name)
    for name in names:
        array = arrays[name]
        # layers read chunk by chunk take the memory of the largest chunk, at least in float32
        chunk = math.prod(array.shape[-2:]) * max(4, array.itemsize) // max(1, num_chunks)
        whole = array.least == array.bytes
        takes = takes + array.bytes if whole else max(takes, chunk, array.least)
    available = memory.machine_memory()
    if available is not None and takes > available:
        raise ValueError(
            f"{path} takes {memory.format_bytes(takes)} to read, and "
            f"{memory.format_bytes(available)} are available: save it as .npy, or as .zarr in "
            "small chunks, which are read layer by layer, and pass num_chunks=2 or more"
        )
    with explain_failure(path):
        vectors = [decode_vectors(arrays[name].open()) for name in names]
        label_Ps = [decode_labels(arrays[name].open()) if name else None for name in labels]
    return FileVectors(vectors if layers else vectors[0], *label_Ps)


@contextlib.contextmanager
def explain_failure(path: pathlib.Path) -> Iterator[None]:
    """Reduce any error of a library to a ValueError of one line."""
    try:
        yield
    except Exception as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read ({why})") from error
