"""A file of vectors, measured into a run's folder: python main.py
--config=experiments/vectors.py.
"""

import functools
import hashlib
import json
import pathlib
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.vectors_config import VectorsConfig
from anisoscope.measurement.families.comparison_family import OF_OTHERS
from anisoscope.metrics.convert import as_arrays
from anisoscope.results import join, joined_files, replicates_table, step_files
from anisoscope.sources import array_checks, arrays, vector_files
from anisoscope.sources.array_chunks import Piece, of_layers, pieces_of
from anisoscope.sources.degenerate import DEGENERATE
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar

STEP = 0  # a file is one checkpoint


class Opened(NamedTuple):
    layers: list[Any]  # not yet read
    cluster_P: np.ndarray | None
    pieces: list[Piece]


def opened(config: VectorsConfig) -> Opened:
    """The file's vectors and what is resampled of them; UserError, one line, where that cannot
    be.
    """
    path = pathlib.Path(config.vectors.path)
    names = config.vectors
    chosen = names.layers, names.clusters, names.positions, names.pieces
    vectors, cluster_P, position_P = vector_files.load(path, *chosen)
    try:
        layers = array_checks.layers_of(as_arrays(vectors))
        points, settings = np.shape(layers[0])[0], config.measure
        pieces = pieces_of(
            points, cluster_P, position_P, names.pieces, settings.folds, settings.seed
        )
    except ValueError as error:
        raise UserError(f"vectors.path {path}: {error}") from error
    return Opened(layers, cluster_P, pieces)


def run(config: VectorsConfig, of: Opened, root: pathlib.Path, name: str) -> None:
    """Write measurements/0.nc, of which only what is missing is measured, then results.nc,
    batches.nc, results.csv.
    """
    settings, made_by, tables = config.measure, _made_by(config), root / "measurements"
    standing = step_files.plan(tables, [STEP], settings.families, settings.nulls, made_by)[STEP]
    missing = {name: clouds for name, clouds in standing.missing.items() if name not in OF_OTHERS}
    about = {
        "run": name,
        "corpus": pathlib.Path(config.vectors.path).name,
        "config": json.dumps(asdict(config)),
    }
    about |= arrays.described(of.layers, of.cluster_P, of.pieces) | {
        "corpus_sha256": made_by["sha256"]
    }
    vectors = f"{len(of.layers)} layers of {about['points']:,} vectors; D={about['width']}"
    sizes = f"{vectors}; folds: {about['folds_in_words']}"
    about["provenance"] = f"{about['corpus']}; {sizes}"
    table = standing.table
    if missing:
        dataset = _measured(config, of, missing, about | {"made_by": json.dumps(made_by)}, name)
        step_files.keep(dataset, STEP, standing._replace(missing=missing), tables)
        # as it is joined the next time, to the bit
        table = joined_files.read_table(tables / f"{STEP}.nc")
    join.write(root, {STEP: table}, settings.families, settings.nulls, table.attrs | about)
    if DEGENERATE in table.attrs:
        print(f"{name}: {table.attrs[DEGENERATE]}")
    print(f"{name}: {about['folds_in_words']}; {root / 'results.nc'}, {root / 'results.csv'}")


def _measured(
    config: VectorsConfig, of: Opened, missed: replicates_table.Missing, about: dict, name: str
) -> xr.Dataset:
    families = replicates_table.families_of(missed, config.measure.families)
    nulls = tuple(
        null for null in config.measure.nulls if any(null in clouds for clouds in missed.values())
    )
    settings = MeasureConfig(
        families=families, nulls=nulls, folds=config.measure.folds, seed=config.measure.seed
    )
    try:
        shown = functools.partial(bar, label=f"{name}: measure", unit="layer")
        values, doubtful = of_layers(of.layers, of.pieces, settings, shown)
    except ValueError as error:
        words = str(error).replace("pass pieces=", "pass --config.vectors.pieces=")
        raise UserError(f"vectors.path {config.vectors.path}: {words}") from error
    table = arrays.raw_table(values, about | doubtful)
    names = config.vectors.layers
    return table.assign_coords(layer_name=("layer", list(names))) if names else table


def _made_by(config: VectorsConfig) -> dict[str, Any]:
    """What decides which vectors make up a cloud: tables of others are not joined."""
    path, digest = pathlib.Path(config.vectors.path), hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(str(file.relative_to(path)).encode())
            with open(file, "rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    names = config.vectors
    return {
        "sha256": digest.hexdigest(),
        "folds": config.measure.folds,
        "seed": config.measure.seed,
        "layers": names.layers,
        "clusters": names.clusters,
        "positions": names.positions,
        "pieces": names.pieces,
    }
