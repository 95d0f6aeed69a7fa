"""Vectors in a file: .npy, .npz, .safetensors, .zarr or NetCDF; never a pickle, which can run anything."""

import pathlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from anisoscope.utils.errors import UserError

VECTORS = "vectors"
LABELS = {"clusters": ("clusters", "groups"), "positions": ("positions",)}  # arrays of these names need not be named


def npy(path: pathlib.Path) -> Mapping[str, Any]:
    return {VECTORS: np.load(path, mmap_mode="r", allow_pickle=False)}


def npz(path: pathlib.Path) -> Mapping[str, Any]:
    return np.load(path, allow_pickle=False)


def safetensors(path: pathlib.Path) -> Mapping[str, Any]:
    from safetensors.numpy import load_file  # JAX's would cut labels to 32 bits

    return load_file(path)


def zarr(path: pathlib.Path) -> Mapping[str, Any]:
    """An array, or a group of them, of either version of the format."""
    import tensorstore

    def opened(folder: pathlib.Path) -> Any:
        driver = "zarr" if (folder / ".zarray").exists() else "zarr3"
        return tensorstore.open(
            {"driver": driver, "kvstore": {"driver": "file", "path": str(folder)}}, open=True
        ).result()

    if any((path / name).exists() for name in (".zarray", "zarr.json")) and not _inside(path):
        return {VECTORS: opened(path)}
    return {folder.name: opened(folder) for folder in _inside(path)}


def _inside(path: pathlib.Path) -> list[pathlib.Path]:
    return sorted(
        folder
        for folder in path.iterdir()
        if folder.is_dir() and any((folder / name).exists() for name in (".zarray", "zarr.json"))
    )


def netcdf(path: pathlib.Path) -> Mapping[str, Any]:
    import xarray as xr

    return dict(xr.open_dataset(path).variables)


READERS: dict[str, Callable[[pathlib.Path], Mapping[str, Any]]] = {
    ".npy": npy,
    ".npz": npz,
    ".safetensors": safetensors,
    ".zarr": zarr,
    ".nc": netcdf,
    ".netcdf": netcdf,
}


class Found(NamedTuple):
    vectors: Any  # (points, width), (layers, points, width) or a list of layers, not yet read
    cluster_P: np.ndarray | None
    position_P: np.ndarray | None


def load(path: pathlib.Path, layers: tuple[str, ...], clusters: str, positions: str) -> Found:
    """The arrays of these names, or those called vectors, clusters and positions where they are empty.

    The vectors may also be the only array there is. UserError, one line, where that cannot be had.
    """
    if path.suffix.lower() not in READERS:
        raise UserError(f"vectors.path {path} is none of {', '.join(READERS)}: write the vectors in one of these")
    if not path.exists():
        raise UserError(f"vectors.path {path} does not exist: check --config.vectors.path=")
    try:
        arrays = READERS[path.suffix.lower()](path)
        found = {name: arrays[name] for name in arrays}
    except (OSError, ValueError, KeyError, TypeError, EOFError, ImportError) as error:
        raise UserError(
            f"vectors.path {path} cannot be read ({_first_line(error)}); pickled arrays never are"
        ) from error
    except Exception as error:  # safetensors and zip files have errors of their own
        raise UserError(f"vectors.path {path} is damaged ({_first_line(error)}): write it again") from error
    wanted = {"clusters": clusters, "positions": positions}
    labels = [_labels(found, name, LABELS[what], path) for what, name in wanted.items()]
    if layers:
        return Found([_named(found, name, path) for name in layers], *labels)
    others = [name for name in found if np.ndim(found[name]) in (2, 3)]
    if VECTORS not in found and len(others) != 1:
        raise UserError(
            f"vectors.path {path} holds {_listed(found)}; name those to measure, as --config.vectors.layers=a,b"
        )
    return Found(found[VECTORS if VECTORS in found else others[0]], *labels)


def _labels(found: dict[str, Any], name: str, usual: tuple[str, ...], path: pathlib.Path) -> np.ndarray | None:
    """Of the array of this name, or where none is given of the first of the usual names that is there."""
    name = name or next((one for one in usual if one in found), "")
    return np.asarray(_named(found, name, path)) if name else None


def _named(found: dict[str, Any], name: str, path: pathlib.Path) -> Any:
    if name not in found:
        raise UserError(f"vectors.path {path} has no array {name!r}; it holds {_listed(found)}")
    return found[name]


def _listed(found: dict[str, Any]) -> str:
    shown = [f"{name} {tuple(array.shape)}" for name, array in list(found.items())[:8]]
    return ", ".join(shown + ["…"] * (len(found) > 8)) or "no array"


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
