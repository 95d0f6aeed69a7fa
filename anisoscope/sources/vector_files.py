"""Read vectors from .npy, .npz, .safetensors or NetCDF files, and measure a file into a folder.

Pickles are never read: a pickle can run any code.
"""

import contextlib
import functools
import hashlib
import json
import math
import pathlib
import zipfile
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.vectors_config import VectorsConfig
from anisoscope.measurement.families.comparison_family import NEEDS_OTHER_CLOUDS
from anisoscope.results import join, joined_files, step_files
from anisoscope.results.replicates_table import missing_families
from anisoscope.sources import array_chunks, arrays
from anisoscope.sources.array_checks import Vectors, read_vectors
from anisoscope.sources.folds import Chunk, cut_chunks, describe
from anisoscope.utils import memory
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar, compile_notice

VECTORS = "vectors"
STEP = 0  # a file is one checkpoint
NETCDF = (".nc", ".netcdf")
SUFFIXES = (".npy", ".npz", ".safetensors", *NETCDF)


class FileVectors(NamedTuple):
    """Vectors of a file, with clusters and token positions if it has them."""

    vectors: Any  # (points, width), (layers, points, width) or a list of layers
    cluster_P: np.ndarray | None
    position_P: np.ndarray | None


def load(
    path: pathlib.Path, layers: tuple[str, ...] = (), clusters: str = "", token_positions: str = ""
) -> FileVectors:
    """Open vectors, read layer by layer where the format allows it, and read their labels.

    Args:
        path: a file of one of `SUFFIXES`.
        layers: names of arrays; else `vectors`, or the only array of two or three dimensions.
        clusters: the name of the labels; else `clusters` or `groups`, if present.
        token_positions: likewise; else `token_positions`.

    Raises:
        ValueError: the file cannot be read, or does not fit into memory; in one line.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"{path} has an unknown format; pass a file of {', '.join(SUFFIXES)}")
    if not path.exists():
        raise ValueError(f"{path} does not exist; check the path")
    with explain_failure(path):
        arrays = open_arrays(path)
    names = layers or (VECTORS,)
    if not layers and VECTORS not in arrays:
        names = tuple(name for name, array in arrays.items() if array.ndim in (2, 3))
    listed = ", ".join(f"{name} {array.shape}" for name, array in [*arrays.items()][:8])
    if not layers and len(names) != 1:
        raise ValueError(
            f"{path} holds {listed}; name the arrays to measure, as --config.vectors.layers=a,b"
        )
    clusters = clusters or next((name for name in ("clusters", "groups") if name in arrays), "")
    token_positions = token_positions or "token_positions" * ("token_positions" in arrays)
    chosen = [name for name in (*names, clusters, token_positions) if name]
    if missing := [name for name in chosen if name not in arrays]:
        raise ValueError(f"{path} has no array {missing[0]!r}; it holds {listed}")
    with explain_failure(path):
        if path.suffix.lower() in NETCDF:
            check_written(path, chosen)
        labels = [np.asarray(arrays[x]) if x else None for x in (clusters, token_positions)]
    vectors = [arrays[name] for name in names]
    return FileVectors(vectors if layers else vectors[0], *labels)


def open_arrays(path: pathlib.Path) -> dict[str, Any]:
    """Open the arrays of a file by name; those of .npy and NetCDF are read when sliced."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        array = np.load(path, mmap_mode="r", allow_pickle=False)
        if behind := path.stat().st_size - array.offset - array.nbytes:
            raise ValueError(f"{behind:,} bytes follow its array; save several arrays in an .npz")
        return {VECTORS: array}
    if suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            check_size(sum(member.file_size for member in archive.infolist()))
        return dict(np.load(path, allow_pickle=False))
    if suffix == ".safetensors":
        from safetensors import safe_open

        check_size(path.stat().st_size)
        file = safe_open(path, "np")  # reading as JAX arrays would cut labels to 32 bits
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118, no dictionary
    dataset = xr.open_dataset(path, decode_times=False)
    return {name: xr.DataArray(array) for name, array in dataset.variables.items()}


def check_size(takes: int) -> None:
    """Raise ValueError where a file that is read whole does not fit into memory."""
    available = memory.machine_memory()
    if available is not None and takes > available:
        raise ValueError(
            f"it takes {memory.format_bytes(takes)}, and {memory.format_bytes(available)} are "
            "available: save it as .npy or NetCDF, which are read layer by layer, and pass "
            "num_chunks=2 or more"
        )


def check_written(path: pathlib.Path, names: list[str]) -> None:
    """Raise ValueError where a part of an array in HDF5 was never written: it reads as 0."""
    with open(path, "rb") as file:
        if file.read(4) != b"\x89HDF":
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


@contextlib.contextmanager
def explain_failure(path: pathlib.Path) -> Iterator[None]:
    """Reduce any error of a library to a ValueError of one line."""
    try:
        yield
    except Exception as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{path} cannot be read ({why})") from error


@contextlib.contextmanager
def explain_path(config: VectorsConfig) -> Iterator[None]:
    """Turn a ValueError about arrays into a UserError that names the file."""
    try:
        yield
    except ValueError as error:
        message = str(error).replace("pass num_chunks=", "pass --config.vectors.num_chunks=")
        path = config.vectors.path
        raise UserError(f"vectors.path {path}: {message.removeprefix(path).strip()}") from error


def open_vectors(config: VectorsConfig) -> tuple[Vectors, list[Chunk]]:
    """Open the vectors and cut them into chunks; UserError where that fails."""
    names, measure = config.vectors, config.measure
    with explain_path(config):
        file = load(pathlib.Path(names.path), names.layers, names.clusters, names.token_positions)
        vectors = read_vectors(*file)
        return vectors, cut_chunks(vectors, names.num_chunks, measure.folds, measure.seed)


def measure_file(
    config: VectorsConfig, file: tuple[Vectors, list[Chunk]], root: pathlib.Path, name: str
) -> None:
    """Measure what measurements/0.nc lacks, then write results.nc, batches.nc and results.csv."""
    settings, path = config.measure, root / f"measurements/{STEP}.nc"
    source = pathlib.Path(config.vectors.path)
    with open(source, "rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    # what decides which vectors form a cloud; only tables that share it are joined
    made_by = asdict(config.vectors) | {
        "sha256": digest,
        "folds": settings.folds,
        "seed": settings.seed,
    }
    del made_by["path"]
    table = step_files.read_same_clouds(path, made_by)
    missing = missing_families(table, settings.families, settings.nulls, NEEDS_OTHER_CLOUDS)
    attributes = describe(*file) | {
        "run": name,
        "corpus": source.name,
        "config": json.dumps(asdict(config)),
        "corpus_sha256": digest,
    }
    attributes["provenance"] = (
        f"{source.name}; {len(file[0].layers)} layers of {attributes['points']:,} vectors; "
        f"D={attributes['width']}; folds: {attributes['folds_in_words']}"
    )
    if missing:
        progress = functools.partial(bar, label=f"{name}: measure", unit="layer")
        chosen = MeasureConfig(**asdict(settings) | {"families": missing})
        with explain_path(config), compile_notice():
            values, found = array_chunks.measure_chunks(*file, chosen, progress)
        new = arrays.raw_table(values, found | attributes | {"made_by": json.dumps(made_by)})
        if layers := config.vectors.layers:
            new = new.assign_coords(layer_name=("layer", list(layers)))
        step_files.write_step(path, table, new, missing)
        table = joined_files.read_table(path)  # so that joining again is bit-equal
    join.write(root, {STEP: table}, settings.families, settings.nulls, table.attrs | attributes)
    if degenerate := table.attrs.get(array_chunks.DEGENERATE):
        print(f"{name}: {degenerate}")
    print(f"{name}: {attributes['folds_in_words']}; {root / 'results.nc'}, {root / 'results.csv'}")
