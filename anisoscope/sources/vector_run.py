"""Measure a file of vectors into a run's folder: python main.py --config=experiments/vectors.py."""

import functools
import hashlib
import json
import pathlib
from dataclasses import asdict
from typing import Any, NamedTuple

import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.vectors_config import VectorsConfig
from anisoscope.measurement.families.comparison_family import NEEDS_OTHER_CLOUDS
from anisoscope.results import join, joined_files, step_files
from anisoscope.results.replicates_table import missing_families
from anisoscope.sources import array_checks, array_chunks, arrays, vector_files
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar

STEP = 0  # a file is one checkpoint


class OpenFile(NamedTuple):
    """The vectors of a file, and their chunks."""

    vectors: array_checks.Vectors
    chunks: list[array_chunks.Chunk]


def open_file(config: VectorsConfig) -> OpenFile:
    """Open the vectors and cut them into chunks; UserError where that fails."""
    names, measure = config.vectors, config.measure
    try:
        file = vector_files.load(
            pathlib.Path(names.path),
            names.layers,
            names.clusters,
            names.token_positions,
        )
    except ValueError as error:
        raise UserError(f"vectors.path {error}") from error
    try:
        vectors = array_checks.read_vectors(*file)
        chunks = array_chunks.cut_chunks(vectors, names.num_chunks, measure.folds, measure.seed)
    except ValueError as error:
        raise UserError(f"vectors.path {names.path}: {error}") from error
    return OpenFile(vectors, chunks)


def run(config: VectorsConfig, file: OpenFile, root: pathlib.Path, name: str) -> None:
    """Measure what measurements/0.nc lacks, then write results.nc, batches.nc and results.csv."""
    settings, made_by, path = config.measure, _made_by(config), root / f"measurements/{STEP}.nc"
    table = step_files.read_same_clouds(path, made_by)
    missing = missing_families(table, settings.families, settings.nulls, NEEDS_OTHER_CLOUDS)
    about = array_chunks.describe(*file) | {
        "run": name,
        "corpus": pathlib.Path(config.vectors.path).name,
        "config": json.dumps(asdict(config)),
        "corpus_sha256": made_by["sha256"],
    }
    about["provenance"] = (
        f"{about['corpus']}; {len(file.vectors.layers)} layers of {about['points']:,} vectors; "
        f"D={about['width']}; folds: {about['folds_in_words']}"
    )
    if missing:
        dataset = _measure(config, file, missing, about | {"made_by": json.dumps(made_by)}, name)
        step_files.write_step(path, table, dataset, missing)
        table = joined_files.read_table(path)  # so that joining again is bit-equal
    join.write(root, {STEP: table}, settings.families, settings.nulls, table.attrs | about)
    if degenerate := table.attrs.get(array_chunks.DEGENERATE):
        print(f"{name}: {degenerate}")
    print(f"{name}: {about['folds_in_words']}; {root / 'results.nc'}, {root / 'results.csv'}")


def _measure(
    config: VectorsConfig,
    file: OpenFile,
    families: tuple[str, ...],
    about: dict[str, Any],
    name: str,
) -> xr.Dataset:
    measure = config.measure
    settings = MeasureConfig(
        families=families, nulls=measure.nulls, folds=measure.folds, seed=measure.seed
    )
    progress = functools.partial(bar, label=f"{name}: measure", unit="layer")
    try:
        values, degenerate = array_chunks.measure_chunks(
            file.vectors.layers, file.chunks, settings, progress
        )
    except ValueError as error:
        words = str(error).replace("pass num_chunks=", "pass --config.vectors.num_chunks=")
        raise UserError(f"vectors.path {config.vectors.path}: {words}") from error
    table = arrays.raw_table(values, about | degenerate)
    names = config.vectors.layers
    return table.assign_coords(layer_name=("layer", list(names))) if names else table


def _made_by(config: VectorsConfig) -> dict[str, Any]:
    """List what decides which vectors form a cloud; only tables that share it are joined."""
    names = config.vectors
    path, digest = pathlib.Path(names.path), hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(str(file.relative_to(path)).encode())
            with open(file, "rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    made_by = {"sha256": digest.hexdigest()}
    made_by |= {"folds": config.measure.folds, "seed": config.measure.seed}
    return made_by | {
        name: getattr(names, name)
        for name in ("layers", "clusters", "token_positions", "num_chunks")
    }
