"""Measure a file of vectors into a run's folder: python main.py --config=experiments/vectors.py."""

import contextlib
import functools
import hashlib
import json
import pathlib
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.vectors_config import VectorsConfig
from anisoscope.measurement.families.comparison_family import NEEDS_OTHER_CLOUDS
from anisoscope.results import join, joined_files, step_files
from anisoscope.results.replicates_table import missing_families
from anisoscope.sources import array_checks, array_chunks, arrays, vector_files
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar, compile_notice

STEP = 0  # a file is one checkpoint


class OpenFile(NamedTuple):
    """The vectors of a file, and their chunks."""

    vectors: array_checks.Vectors
    chunks: list[array_chunks.Chunk]


def open_file(config: VectorsConfig) -> OpenFile:
    """Open the vectors and cut them into chunks; UserError where that fails."""
    names, measure = config.vectors, config.measure
    with explain_path(config):
        file = vector_files.load(
            pathlib.Path(names.path), names.layers, names.clusters, names.token_positions
        )
        vectors = array_checks.read_vectors(*file)
        chunks = array_chunks.cut_chunks(vectors, names.num_chunks, measure.folds, measure.seed)
    return OpenFile(vectors, chunks)


@contextlib.contextmanager
def explain_path(config: VectorsConfig) -> Iterator[None]:
    """Turn a ValueError about arrays into a UserError that names the file."""
    try:
        yield
    except ValueError as error:
        message = str(error).replace("pass num_chunks=", "pass --config.vectors.num_chunks=")
        path = config.vectors.path
        raise UserError(f"vectors.path {path}: {message.removeprefix(path).strip()}") from error


def run(config: VectorsConfig, file: OpenFile, root: pathlib.Path, name: str) -> None:
    """Measure what measurements/0.nc lacks, then write results.nc, batches.nc and results.csv."""
    settings, made_by, path = config.measure, _made_by(config), root / f"measurements/{STEP}.nc"
    table = step_files.read_same_clouds(path, made_by)
    missing = missing_families(table, settings.families, settings.nulls, NEEDS_OTHER_CLOUDS)
    attributes = array_chunks.describe(*file) | {
        "run": name,
        "corpus": pathlib.Path(config.vectors.path).name,
        "config": json.dumps(asdict(config)),
        "corpus_sha256": made_by["sha256"],
    }
    attributes["provenance"] = (
        f"{attributes['corpus']}; {len(file.vectors.layers)} layers of {attributes['points']:,} vectors; "
        f"D={attributes['width']}; folds: {attributes['folds_in_words']}"
    )
    if missing:
        progress = functools.partial(bar, label=f"{name}: measure", unit="layer")
        chosen = MeasureConfig(
            families=missing,
            **{field: getattr(settings, field) for field in ("nulls", "folds", "seed")},
        )
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


def _made_by(config: VectorsConfig) -> dict[str, Any]:
    """List what decides which vectors form a cloud; only tables that share it are joined."""
    path, digest = pathlib.Path(config.vectors.path), hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            digest.update(str(file.relative_to(path)).encode())
            with open(file, "rb") as content:
                digest.update(hashlib.file_digest(content, "sha256").digest())
    made_by = asdict(config.vectors) | {"sha256": digest.hexdigest()}
    made_by |= {"folds": config.measure.folds, "seed": config.measure.seed}
    return {name: value for name, value in made_by.items() if name != "path"}
