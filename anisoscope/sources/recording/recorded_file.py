"""A .zarr folder, version 2, without compression: which xarray, zarr and `experiments/vectors.py`
read.
"""

import os
import pathlib
import shutil
import urllib.parse
from typing import Any

import numpy as np

from anisoscope.utils import files

SUFFIX = ".zarr"


def refuse(path: pathlib.Path) -> None:
    """ValueError where nothing may be written there."""
    if path.suffix != SUFFIX:
        raise ValueError(f"to is {path}; a folder is written whose name ends with {SUFFIX}")
    if path.exists() or path.is_symlink():
        raise ValueError(
            f"to: {path} exists, and nothing is overwritten: name another, or move it away"
        )
    if not path.parent.is_dir():
        raise ValueError(f"to: there is no folder {path.parent} to write {path.name} in")


def write(
    path: pathlib.Path, arrays: dict[str, tuple[tuple[str, ...], np.ndarray]], about: dict[str, Any]
) -> None:
    """{name: (dimensions, array)}, all or nothing. Of three dimensions each of the first is a chunk
    of its own.
    """
    refuse(path)
    begun = files.begun(path)
    begun.mkdir()
    try:
        files.write_json(begun / ".zgroup", {"zarr_format": 2})
        files.write_json(begun / ".zattrs", about)
        for name, (dims, array) in arrays.items():
            _array(begun / encoded(name), dims, np.ascontiguousarray(array))
        refuse(path)
        os.rename(begun, path)
    finally:
        shutil.rmtree(begun, ignore_errors=True)


def encoded(name: str) -> str:
    """A name as a part of a path, percent-encoded: never a path, never hidden."""
    encoded = urllib.parse.quote(name, safe=" ")
    return f"%2E{encoded[1:]}" if encoded.startswith(".") else encoded


def _array(folder: pathlib.Path, dims: tuple[str, ...], array: np.ndarray) -> None:
    folder.mkdir()
    chunks = (1, *array.shape[1:]) if array.ndim == 3 else array.shape
    described = {"zarr_format": 2, "shape": array.shape, "chunks": chunks, "dtype": array.dtype.str}
    described |= {"compressor": None, "filters": None, "fill_value": None, "order": "C"}
    files.write_json(folder / ".zarray", described)
    files.write_json(folder / ".zattrs", {"_ARRAY_DIMENSIONS": dims})
    for number, part in enumerate(array if array.ndim == 3 else [array]):
        place = [number if array.ndim == 3 else 0] + [0] * (array.ndim - 1)
        files.write(folder / ".".join(map(str, place)), part.tobytes(), synced=False)
