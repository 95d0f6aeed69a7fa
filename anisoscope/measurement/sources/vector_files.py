"""Vectors in a file: .npy, .npz, .safetensors, .zarr or NetCDF; never a pickle, which can run anything.

What an array is, and what reading it takes, is known before it is read.
"""

import functools
import math
import pathlib
import re
import zipfile
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import numpy as np

from anisoscope.measurement.sources.stored import Stored, netcdf, zarr
from anisoscope.utils import memory
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import check_regular

VECTORS = "vectors"
LABELS = {"clusters": ("clusters", "groups"), "positions": ("positions",)}  # arrays of these names need not be named


def npy(path: pathlib.Path) -> dict[str, Stored]:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if behind := path.stat().st_size - array.offset - array.nbytes:
        raise ValueError(f"{behind:,} bytes stand behind its array, as where two are saved in one file; save an .npz")
    return {VECTORS: Stored(array.shape, array.nbytes, 0, lambda: array)}


def npz(path: pathlib.Path) -> dict[str, Stored]:
    archive = zipfile.ZipFile(path)

    def whole(name: str) -> np.ndarray:
        with archive.open(name) as file:
            return np.lib.format.read_array(file, allow_pickle=False)

    arrays = {}
    for name in archive.namelist():
        with archive.open(name) as file:
            shape, dtype = _header(file)
        size = math.prod(shape) * dtype.itemsize
        arrays[name.removesuffix(".npy")] = Stored(shape, size, size, functools.partial(whole, name))
    return arrays


def _header(file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype]:
    reader = np.lib.format.read_array_header_2_0
    if np.lib.format.read_magic(file) == (1, 0):
        reader = np.lib.format.read_array_header_1_0
    shape, _, dtype = reader(file)
    if dtype.hasobject:
        raise ValueError("it holds Python's own objects")
    return shape, dtype


def safetensors(path: pathlib.Path) -> dict[str, Stored]:
    from safetensors import safe_open

    file = safe_open(path, "np")  # JAX's would cut labels to 32 bits
    arrays = {}
    for name in file.keys():  # noqa: SIM118, it is no dictionary
        part = file.get_slice(name)
        bits = re.search(r"\d+", part.get_dtype())
        size = math.prod(part.get_shape()) * (int(bits[0]) if bits else 8) // 8
        arrays[name] = Stored(tuple(part.get_shape()), size, size, functools.partial(file.get_tensor, name))
    return arrays


READERS: dict[str, Callable[[pathlib.Path], dict[str, Stored]]] = {
    ".npy": npy,
    ".npz": npz,
    ".safetensors": safetensors,
    ".zarr": zarr,
    ".nc": netcdf,
    ".netcdf": netcdf,
}


class Found(NamedTuple):
    vectors: Any  # (points, width), (layers, points, width) or a list of layers
    cluster_P: np.ndarray | None
    position_P: np.ndarray | None


def load(path: pathlib.Path, layers: tuple[str, ...], clusters: str, positions: str) -> Found:
    """The arrays of these names, or those called vectors, clusters and positions where they are empty.

    The vectors may also be the only array there is. UserError, one line, where that cannot be had.
    """
    if path.suffix.lower() not in READERS:
        raise UserError(f"vectors.path {path} is none of {', '.join(READERS)}: write the vectors in one of these")
    try:
        return _loaded(path, layers, clusters, positions)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(f"vectors.path {path} does not exist: check --config.vectors.path=") from error
    except (OSError, ValueError, KeyError, TypeError, EOFError, ImportError, zipfile.BadZipFile) as error:
        never = "; pickled arrays never are" if re.search("pickle|Python's own", str(error)) else ""
        raise UserError(f"vectors.path {path} cannot be read ({_first_line(error)}){never}") from error
    except Exception as error:  # safetensors and zip files have errors of their own
        if memory.is_out(error):
            raise UserError(
                f"vectors.path {path}: out of memory ({_first_line(error)}); save it as .npy or .zarr"
            ) from error
        raise UserError(f"vectors.path {path} is damaged ({_first_line(error)}): write it again") from error


def _loaded(path: pathlib.Path, layers: tuple[str, ...], clusters: str, positions: str) -> Found:
    for file in path.rglob("*") if path.is_dir() else [path]:
        if not file.is_dir():
            try:
                if not check_regular(file) and file == path:  # files of /proc say no size either
                    raise ValueError("it is empty")
            except ValueError as error:
                raise UserError(f"vectors.path {file}: {error}; name a regular file that holds arrays") from error
    arrays = READERS[path.suffix.lower()](path)
    labels = {
        what: name or next((one for one in LABELS[what] if one in arrays), "")
        for what, name in (("clusters", clusters), ("positions", positions))
    }
    others = [name for name, one in arrays.items() if len(one.shape) in (2, 3)]
    if not layers and VECTORS not in arrays and len(others) != 1:
        raise UserError(
            f"vectors.path {path} holds {_listed(arrays)}; name those to measure, as --config.vectors.layers=a,b"
        )
    names = layers or (VECTORS if VECTORS in arrays else others[0],)
    for name in (*labels.values(), *names):
        if name and name not in arrays:
            raise UserError(f"vectors.path {path} has no array {name!r}; it holds {_listed(arrays)}")
    takes = sum(arrays[name].at_once for name in names) + sum(arrays[name].size for name in labels.values() if name)
    there = memory.of_machine()
    if there is not None and takes > there:
        raise UserError(
            f"vectors.path {path} takes {memory.format_bytes(takes)} to read, and {memory.format_bytes(there)} are "
            "available: save it as .npy, or as .zarr in small chunks, which are read layer by layer"
        )
    vectors = [arrays[name].vectors() for name in names]
    label_Ps = (np.asarray(arrays[name].as_labels()) if name else None for name in labels.values())
    return Found(vectors if layers else vectors[0], *label_Ps)


def _listed(arrays: dict[str, Stored]) -> str:
    shown = [f"{name} {one.shape}" for name, one in list(arrays.items())[:8]]
    return ", ".join(shown + ["…"] * (len(arrays) > 8)) or "no array"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
