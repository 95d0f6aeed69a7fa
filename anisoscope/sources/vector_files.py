"""Read vectors from .npy, .npz, .safetensors or NetCDF files.

Pickles are never read: a pickle can run any code.
"""

import importlib
import math
import pathlib
import zipfile
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.utils import memory
from anisoscope.utils.extras import required_by

VECTORS = "vectors"
LABELS = ("clusters", "groups", "token_positions")
SUFFIXES = (".npy", ".npz", ".safetensors", ".nc", ".netcdf")


def load_vectors(path: pathlib.Path) -> tuple[Any, np.ndarray | None, np.ndarray | None]:
    """Open vectors, read layer by layer where the format allows it; read clusters and positions.

    Vectors are the array `vectors`, or the only one of two or three dimensions; labels are
    `clusters` or `groups`, and `token_positions`; None where the file has none.

    Raises:
        ValueError: the file cannot be read, or does not fit into memory; the message is one line.
    """
    try:
        with required_by(str(path)):
            arrays = open_arrays(path)
        names = [name for name, array in arrays.items() if array.ndim in (2, 3)]
        names = [VECTORS] if VECTORS in arrays else names
        if len(names) != 1:
            listed = ", ".join(f"{name} {array.shape}" for name, array in [*arrays.items()][:8])
            raise ValueError(f"it holds {listed}; name the array to measure `vectors`")
        found = [name for name in LABELS if name in arrays]
        check_written(path, [*names, *found])
        labels = {name: np.asarray(arrays[name]) for name in found}
    except ImportError:
        raise
    except Exception as error:  # any error of any library
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read ({why})") from error
    clusters = labels.get("clusters", labels.get("groups"))
    return arrays[names[0]], clusters, labels.get("token_positions")


def open_arrays(path: pathlib.Path) -> dict[str, Any]:
    """Open the arrays of a file by name; those of .npy and NetCDF are read when sliced."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ValueError(f"its format is unknown; pass a file of {', '.join(SUFFIXES)}")
    if suffix == ".npy":
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if behind := path.stat().st_size - array.offset - array.nbytes:
            raise ValueError(f"{behind:,} bytes follow its array; save several arrays in an .npz")
        return {VECTORS: array}
    if suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            check_file_size(sum(member.file_size for member in archive.infolist()))
        return dict(np.load(path, allow_pickle=False))
    if suffix == ".safetensors":
        from safetensors import safe_open

        check_file_size(path.stat().st_size)
        file = safe_open(path, "np")  # reading as JAX arrays would cut labels to 32 bits
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dictionary
    engine = "h5netcdf" if is_hdf5(path) else "scipy"
    importlib.import_module(engine)  # xarray's own error is several lines
    dataset = xr.open_dataset(path, decode_times=False, engine=engine)
    return {name: xr.DataArray(array) for name, array in dataset.variables.items()}


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
