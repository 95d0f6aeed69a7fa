"""Read vectors from .npy, .npz, .safetensors or NetCDF files, and from tables.

Pickles are never read: a pickle can run any code.
"""

import contextlib
import importlib
import json
import math
import os
import pathlib
import stat
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope.sources.column_files import open_columns
from anisoscope.utils import memory
from anisoscope.utils.errors import did_you_mean
from anisoscope.utils.extras import required_by
from anisoscope.utils.files import user_path

VECTORS = "vectors"
LABELS = ("clusters", "groups", "token_positions", "mask", "attention_mask")
FLOAT8 = {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}  # of .safetensors: of ml_dtypes
LARGE_FILE, REPEATS = 2**27, 200  # bytes; vectors compress a few times, zeros a thousand times
COLUMNS = (".csv", ".parquet")
VECTOR_SUFFIXES = (".npy", ".npz", ".safetensors", ".nc", ".netcdf", *COLUMNS)


class FileArrays(NamedTuple):
    """What a file holds for `measure`; None where it has no such array."""

    vectors: Any
    clusters: np.ndarray | None
    token_positions: np.ndarray | None
    mask: np.ndarray | None


def load_vectors(
    path: str | os.PathLike[str], vectors: Sequence[str] = (), clusters: str | None = None
) -> FileArrays:
    """Open vectors, read layer by layer where the format allows it, and read their labels.

    Vectors are the arrays of these names, each a layer; or the array `vectors`, or the only one of
    two axes or more. Labels are `clusters` (or the array of that name, or `groups`),
    `token_positions`, and `mask` or `attention_mask`. A warning names what else has an entry for
    each point.

    Raises:
        ValueError: the file cannot be read, or does not fit into memory; the message is one line.
    """
    path = user_path(path)
    known = LABELS if clusters is None else (*LABELS, clusters)
    with refusing(path), required_by(str(path)):
        arrays = open_arrays(path, known)
    names = [*vectors] or choose_vectors(path, arrays, known)
    clusters = clusters or ("clusters" if "clusters" in arrays else "groups")
    if lacking := [x for x in (*vectors, *known[len(LABELS) :]) if x not in arrays]:
        advice = did_you_mean(lacking[0], arrays)
        what = f"{path} has no array {lacking[0]!r}"
        raise ValueError(f"{what}; {advice}it holds {', '.join(arrays)}")
    found = [name for name in {*LABELS, clusters} if name in arrays]
    with refusing(path):
        check_written(path, [*names, *found])
        labels = {name: np.asarray(arrays[name]) for name in found}
        for name in names:
            np.asarray(arrays[name][:0])  # fails where it cannot be unpacked
    layers = {name: arrays.pop(name) for name in names}
    shape = layers[names[0]].shape
    _warn_of_unread(path, shape, {x: arrays[x] for x in arrays.keys() - labels.keys()})
    return FileArrays(
        layers if len(vectors) > 1 else layers[names[0]],
        labels.get(clusters),
        labels.get("token_positions"),
        labels.get("mask", labels.get("attention_mask")),
    )


@contextlib.contextmanager
def refusing(path: pathlib.Path) -> Iterator[None]:
    """Turn any error of any library that reads the file into a ValueError of one line."""
    try:
        yield
    except ImportError:
        raise
    except FileNotFoundError as error:
        raise ValueError(f"there is no file {path}") from error
    except Exception as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read ({why})") from error


def choose_vectors(path: pathlib.Path, arrays: dict[str, Any], labels: Sequence[str]) -> list[str]:
    """Return the name of the array to measure; ValueError where there are none or several."""
    names = [name for name, x in arrays.items() if x.ndim > 1 and name not in labels]
    names = [VECTORS] if VECTORS in arrays else names
    if len(names) != 1:
        listed = ", ".join(f"{name} {array.shape}" for name, array in [*arrays.items()][:8])
        raise ValueError(
            f"{path} holds {listed}; name what to measure: --vectors={','.join(names[:8]) or 'NAME'} "
            "in the command; in Python open the file and pass a dict of its layers"
        )
    return names


def _warn_of_unread(path: pathlib.Path, shape: tuple[int, ...], others: dict[str, Any]) -> None:
    """Warn where other arrays have an entry for each point, or for each text or token."""
    counts = {shape[-2:-1], shape[-3:-2], shape[-3:-1]} - {()}
    if names := sorted(name for name, array in others.items() if array.shape in counts):
        warnings.warn(
            f"{path}: {', '.join(names)} {'have' if len(names) > 1 else 'has'} an entry for each "
            f"point and {'are' if len(names) > 1 else 'is'} not read; labels are read by the names "
            f"{', '.join(LABELS)}, or passed as arguments",
            stacklevel=4,
        )


def open_arrays(path: pathlib.Path, labels: Sequence[str]) -> dict[str, Any]:
    """Open the arrays of a file by name; those of .npy and NetCDF are read when sliced."""
    suffix = path.suffix.lower()
    if suffix not in VECTOR_SUFFIXES:
        if path.is_dir():
            raise ValueError("it is a folder; name a file in it")
        raise ValueError(f"its format is unknown; pass a file of {', '.join(VECTOR_SUFFIXES)}")
    if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe waits for who writes
        raise ValueError("it is no regular file")
    if suffix == ".npy":
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if behind := path.stat().st_size - array.offset - array.nbytes:
            raise ValueError(f"{behind:,} bytes follow its array; save several arrays in an .npz")
        return {VECTORS: array}
    if suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            check_members(archive.infolist())
        return dict(np.load(path, allow_pickle=False))
    if suffix in COLUMNS:
        check_file_size(path.stat().st_size)
        return open_columns(path, labels, VECTORS)
    if suffix == ".safetensors":
        check_file_size(path.stat().st_size)
        return _open_safetensors(path)
    engine = "h5netcdf" if is_hdf5(path) else "scipy"
    importlib.import_module(engine)  # xarray's own error is several lines
    check_links(path)
    dataset = xr.open_dataset(path, decode_times=False, engine=engine)
    return {name: xr.DataArray(array) for name, array in dataset.variables.items()}


def _open_safetensors(path: pathlib.Path) -> dict[str, Any]:
    """Read all tensors; those of 8-bit floats, which NumPy does not name, by their bytes."""
    import ml_dtypes
    from safetensors import safe_open

    file = safe_open(path, "np")  # reading as JAX arrays would cut labels to 32 bits
    kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118
    if not {*kinds.values()} & FLOAT8.keys():
        return {name: file.get_tensor(name) for name in kinds}
    with open(path, "rb") as raw:
        header = json.loads(raw.read(int.from_bytes(raw.read(8), "little")))
        content = np.frombuffer(raw.read(), np.uint8)
    arrays = {}
    for name, kind in kinds.items():
        if kind in FLOAT8:
            entry = content[slice(*header[name]["data_offsets"])]
            arrays[name] = entry.view(getattr(ml_dtypes, FLOAT8[kind])).reshape(
                header[name]["shape"]
            )
        else:
            arrays[name] = file.get_tensor(name)
    return arrays


def check_members(members: list[zipfile.ZipInfo]) -> None:
    """Raise ValueError where arrays do not fit into memory, or repeat as no vectors do."""
    check_file_size(sum(member.file_size for member in members))
    for member in members:
        if member.file_size > max(LARGE_FILE, REPEATS * member.compress_size):
            small, large = map(memory.format_bytes, (member.compress_size, member.file_size))
            raise ValueError(
                f"{small} of it hold {large} of repeated numbers, which are no vectors"
            )


def check_links(path: pathlib.Path) -> None:
    """Raise ValueError where a file in HDF5 reads other files."""
    if not is_hdf5(path):
        return
    import h5py

    with h5py.File(path) as file:
        for name in file:
            link = file.get(name, getlink=True)
            array = None if isinstance(link, h5py.ExternalLink) else file.get(name)
            outside = isinstance(array, h5py.Dataset) and (array.is_virtual or array.external)
            if isinstance(link, h5py.ExternalLink) or outside:
                raise ValueError(f"{name} is kept in another file; write its numbers into this one")


def check_file_size(takes: int) -> None:
    """Raise ValueError where a file that is read whole does not fit into memory."""
    available = memory.machine_memory()
    if available is not None and takes > available:
        raise ValueError(
            f"it takes {memory.format_bytes(takes)}, and {memory.format_bytes(available)} are "
            "available: save it as .npy or NetCDF, which are read by layer, and pass num_chunks=2"
        )


def is_hdf5(path: pathlib.Path) -> bool:
    """Return whether a file begins as HDF5 does, which NetCDF 4 is."""
    with open(path, "rb") as file:
        return file.read(4) == b"\x89HDF"


def check_written(path: pathlib.Path, names: list[str]) -> None:
    """Raise ValueError where a part of an array in HDF5 was never written: it reads as 0."""
    if not is_hdf5(path):
        return
    import h5py

    with h5py.File(path) as file:
        for array in (file[name] for name in names):
            count, written = int(array.size > 0), int(array.id.get_storage_size() > 0)
            if array.chunks:
                per_axis = zip(array.shape, array.chunks, strict=True)
                count = math.prod(math.ceil(size / width) for size, width in per_axis)
                written = array.id.get_num_chunks()
            if written < count:
                raise ValueError(
                    f"only {written} of {count} chunks of {array.name[1:]} are written, and the "
                    "others would be read as 0; write the vectors again"
                )
