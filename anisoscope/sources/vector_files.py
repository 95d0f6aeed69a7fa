"""Vectors in a file: .npy, .npz, .safetensors, .zarr or NetCDF; never a pickle, which can run
anything.

What an array is, and what reading it takes, is known before it is read.
"""

import functools
import math
import pathlib
import re
import zipfile
from collections.abc import Callable
from typing import IO, Any, NamedTuple

import jax.numpy as jnp
import numpy as np

from anisoscope.sources.vector_steps import Stored, netcdf, zarr
from anisoscope.utils import memory
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import check_regular

VECTORS = "vectors"
LABELS = {"clusters": ("clusters", "groups"), "positions": ("positions",)}  # found by these names
LONGEST_LABEL = 4096  # bytes of a word
TYPES = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": jnp.bfloat16, "BOOL": "?"}  # safetensors
TYPES |= {f"{kind}{8 * size}": f"{kind.lower()}{size}" for kind in "IU" for size in (1, 2, 4, 8)}


def npy(path: pathlib.Path) -> dict[str, Stored]:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    if behind := path.stat().st_size - array.offset - array.nbytes:
        raise ValueError(
            f"{behind:,} bytes stand behind its array, as where two are saved in one file; save an .npz"
        )
    return {VECTORS: Stored(array.shape, array.dtype, False, lambda: array)}


def npz(path: pathlib.Path) -> dict[str, Stored]:
    archive = zipfile.ZipFile(path)

    def whole(name: str) -> np.ndarray:
        with archive.open(name) as file:
            return np.lib.format.read_array(file, allow_pickle=False)

    arrays = {}
    for name in archive.namelist():
        with archive.open(name) as file:
            shape, dtype = _header(file)
        part = Stored(shape, dtype, True, functools.partial(whole, name))
        arrays[name.removesuffix(".npy")] = part
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
        kind = part.get_dtype()
        dtype = np.dtype(TYPES[kind]) if kind in TYPES else kind
        whole = functools.partial(file.get_tensor, name)
        arrays[name] = Stored(tuple(part.get_shape()), dtype, True, whole)
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


def load(
    path: pathlib.Path, layers: tuple[str, ...], clusters: str, positions: str, pieces: int = 1
) -> Found:
    """The arrays of these names, or those called vectors, clusters and positions where they are
    empty.

    The vectors may also be the only array there is. UserError, one line, where that cannot be had.
    """
    if path.suffix.lower() not in READERS:
        raise UserError(
            f"vectors.path {path} is none of {', '.join(READERS)}: write the vectors in one of these"
        )
    try:
        return _loaded(path, layers, clusters, positions, pieces)
    except UserError:
        raise
    except FileNotFoundError as error:
        raise UserError(
            f"vectors.path {path} does not exist: check --config.vectors.path="
        ) from error
    except (
        OSError,
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        ImportError,
        zipfile.BadZipFile,
    ) as error:
        never = "; pickled arrays never are" if re.search("pickle|Python's own", str(error)) else ""
        raise UserError(
            f"vectors.path {path} cannot be read ({_first_line(error)}){never}"
        ) from error
    except Exception as error:  # safetensors and zip files have errors of their own
        if memory.is_out(error):
            raise UserError(
                f"vectors.path {path}: out of memory ({_first_line(error)}); save it as .npy or .zarr"
            ) from error
        raise UserError(
            f"vectors.path {path} is damaged ({_first_line(error)}): write it again"
        ) from error


def _loaded(
    path: pathlib.Path, layers: tuple[str, ...], clusters: str, positions: str, pieces: int
) -> Found:
    for file in path.rglob("*") if path.is_dir() else [path]:
        if not file.is_dir():
            try:
                if not check_regular(file) and file == path:  # files of /proc say no size either
                    raise ValueError("it is empty")
            except ValueError as error:
                raise UserError(
                    f"vectors.path {file}: {error}; name a regular file that holds arrays"
                ) from error
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
            raise UserError(
                f"vectors.path {path} has no array {name!r}; it holds {_listed(arrays)}"
            )
    _check_types(path, {name: arrays[name] for name in names}, words=False)
    told = {what: arrays[name] for what, name in labels.items() if name}
    _check_types(path, told, words=True)
    points = arrays[names[0]].shape[-2:-1]
    for what, one in told.items():
        if one.shape[:1] != points:
            raise UserError(
                f"vectors.path {path}: {what} have shape {one.shape}; one for each point is needed, {points}"
            )
    takes, available = sum(one.size for one in told.values()), memory.of_machine()
    pieces = pieces if pieces in range(1, 2**31) else 1  # others are refused where points are cut
    for name in names:  # of what is read layer by layer, a piece at a time, the largest is enough
        one = arrays[name]
        piece = math.prod(one.shape[-2:]) * max(4, one.dtype.itemsize) // pieces
        takes = takes + one.size if one.at_once else max(takes, piece)
    if available is not None and takes > available:
        raise UserError(
            f"vectors.path {path} takes {memory.format_bytes(takes)} to read, and "
            f"{memory.format_bytes(available)} are available: save it as .npy, or as .zarr in small "
            "chunks, which are read layer by layer, and take pieces=2 or more"
        )
    vectors = [arrays[name].vectors() for name in names]
    label_Ps = {what: one.as_labels() for what, one in told.items()}
    return Found(vectors if layers else vectors[0], *map(label_Ps.get, LABELS))


def _check_types(path: pathlib.Path, arrays: dict[str, Stored], words: bool) -> None:
    """Raise UserError, before they are read, where arrays are not numbers, or short words."""
    for name, one in arrays.items():
        if isinstance(one.dtype, str):
            advice = "save it as float32 or bfloat16"
            raise UserError(f"vectors.path {path}: {name} has type {one.dtype}, not read; {advice}")
        if one.dtype.kind in "SU" and (not words or one.dtype.itemsize > LONGEST_LABEL):
            what = f"words of {one.dtype.itemsize:,} bytes each"
            raise UserError(
                f"vectors.path {path}: {name} holds {what}; write numbers in their place"
            )


def _listed(arrays: dict[str, Stored]) -> str:
    shown = [f"{name} {one.shape}" for name, one in list(arrays.items())[:8]]
    return ", ".join(shown + ["…"] * (len(arrays) > 8)) or "no array"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
