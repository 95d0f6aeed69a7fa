"""Measure steps of a training run into a folder: a table for each step, and the joined table.

The figures over training read the joined table.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Sequence

import numpy as np
import xarray as xr

import anisoscope
from anisoscope.config.measure_config import CLOUD_NULLS, FIRST_LOOK, MeasureConfig
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.registry import FAMILIES
from anisoscope.results import join, joined_files
from anisoscope.results.missing_names import as_table
from anisoscope.results.summary import OWN
from anisoscope.sources import array_checks, array_chunks, arrays
from anisoscope.sources.array_checks import VectorsLike
from anisoscope.sources.folds import cut_chunks, warn_of_few
from anisoscope.sources.recording.recorder import Recorder
from anisoscope.utils.errors import RunError, as_value_error
from anisoscope.utils.files import user_path
from anisoscope.utils.progress import library_call
from anisoscope.utils.settings import LARGEST_SEED

MADE_BY = "anisoscope.measure_step"
TABLES = "measurements"
STEP_FOLDS = 8


def measure_step(
    x: Recorder | VectorsLike,
    step: int,
    folder: str | os.PathLike[str],
    *,
    clusters: ArrayLike | Sequence[object] | None = None,
    layer_names: Sequence[str] | None = None,
    families: str | Sequence[str] = FIRST_LOOK,
    nulls: str | Sequence[str] = CLOUD_NULLS,
    seed: int = 0,
) -> xr.Dataset:
    """Measure one step of any training loop, and add it to a folder for figures over training.

    Args:
        x: a Recorder, which then begins its next sample; or vectors as for `measure`.
        step: the training step, a whole number from 0 to 2^31 - 1.
        folder: a new folder, or one that this function has written. It holds
            measurements/<step>.nc, and results.nc and results.csv of all steps; only these two
            are overwritten.
        clusters: as for `measure`; a Recorder provides its own.
        layer_names: names that match layers across steps; a Recorder uses its hook points.
        families: as for `measure`.
        nulls: as for `measure`.
        seed: random seed of the folds and the null models.

    Returns:
        A Dataset of all steps so far, with the dimensions (step, statistic, layer, …).

    Raises:
        ValueError: the step exists already, its layers differ from earlier steps, or it cannot be
            measured; the message is one line, and the folder is unchanged.

    >>> import tempfile
    >>> layers = np.random.default_rng(0).standard_normal((2, 3, 256, 8))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for step, x in zip((0, 100), layers):
    ...         table = measure_step([*x], step, f"{folder}/run", families="similarity", nulls=())
    >>> table.step.values.tolist()
    [0, 100]
    """
    whole = isinstance(step, int | np.integer) and not isinstance(step, bool | np.bool_)
    if not whole or not 0 <= step <= LARGEST_SEED:
        raise ValueError(f"step is {step!r}; pass a whole number from 0 to {LARGEST_SEED}")
    kinds = array_checks.VECTOR_INPUTS
    settings = array_checks.make_settings(families, kinds, nulls, STEP_FOLDS, seed)
    root, positions, recorder = user_path(folder), None, x if isinstance(x, Recorder) else None
    with as_value_error(), lock_folder(root), library_call():
        tables = read_other_steps(root, int(step))
        if recorder is not None:
            x, clusters, positions = recorder.sample().values()
            x = [*x]
            layer_names = recorder.reservoir.names
        vectors = array_checks.read_vectors(x, clusters, positions)
        if vectors.texts is not None:
            raise ValueError("measure_step reads layers (points, width); pass a Recorder for texts")
        layer_names = array_checks.choose_names(layer_names, vectors)
        known = _layer_names(tables[min(tables)]) if tables else None
        if known is not None and layer_names is not None and {*known} == {*layer_names}:
            layers = dict(zip(layer_names, vectors.layers, strict=True))
            vectors = vectors._replace(layers=[layers[name] for name in known])
            layer_names = known
        raw = _measure(vectors, int(step), root.name, settings)
        if layer_names is not None:
            raw = raw.assign_coords(layer_name=("layer", list(layer_names)))
        for other, table in tables.items():
            if (now := _describe_layers(raw)) != (before := _describe_layers(table)):
                raise ValueError(
                    f"folder: {root} has a table of step {other} with {before}, and this step has "
                    f"{now}; name another folder"
                )
        tables = dict(sorted((tables | {int(step): raw}).items()))
        path = root / TABLES / f"{step}.nc"
        try:
            joined_files.write_table(raw, path)
            clouds = {cloud for table in tables.values() for cloud in table["cloud"].values}
            present = tuple(null for null in CLOUD_NULLS if null in clouds)
            attributes = tables[max(tables)].attrs | {"provenance": _describe(tables)}
            join.write_joined(root, tables, tuple(FAMILIES), present, attributes)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    if recorder is not None:
        recorder.start_over()
    return as_table(joined_files.read_table(root / "results.nc"))


def _measure(
    vectors: array_checks.Vectors, step: int, run: str, settings: MeasureConfig
) -> xr.Dataset:
    """Make the table of replicates of a step."""
    chunks = cut_chunks(vectors, 1, STEP_FOLDS, settings.seed)
    warn_of_few(vectors, chunks)
    values, attributes = array_chunks.measure_chunks(vectors, chunks, settings)
    attributes |= {"config": "{}", "anisoscope": anisoscope.__version__}
    raw = arrays.raw_table(values, attributes).assign_coords(step=step)
    raw.attrs |= {"layer_0": OWN, "run": run, "corpus": "a training of one's own"}
    return raw.assign_attrs(made_by=json.dumps({"by": MADE_BY}))


def _describe(tables: dict[int, xr.Dataset]) -> str:
    """Describe what steps are made of; they may differ in the number of vectors."""
    points, last = {int(table.attrs["points"]) for table in tables.values()}, tables[max(tables)]
    count = " to ".join(f"{number:,}" for number in sorted({min(points), max(points)}))
    parts = f"{last.sizes['layer']} hook points", f"{count} vectors at a step"
    return "; ".join([*parts, f"D={last.attrs['width']}"])


def _layer_names(table: xr.Dataset) -> list[str] | None:
    return table["layer_name"].values.tolist() if "layer_name" in table.coords else None


def _describe_layers(table: xr.Dataset) -> str:
    names = _layer_names(table) or "no names"
    return f"{table.sizes['layer']} layers of a width of {table.attrs['width']}, names {names}"


def read_other_steps(root: pathlib.Path, step: int) -> dict[int, xr.Dataset]:
    """Read the tables of other steps; ValueError where the folder holds other files or this step."""
    paths = sorted(path for path in (root / TABLES).glob("*.nc") if path.stem.isdecimal())
    try:
        tables = {int(path.stem): joined_files.read_table(path) for path in paths}
    except RunError as error:
        why = str(error).partition(";")[0]
        raise ValueError(f"folder: {why}; move the file away to go on without its step") from error
    others = sorted(path.name for path in root.glob("*") if path.name != TABLES)
    content = others[0] if others and not tables else None
    if any(MADE_BY not in table.attrs.get("made_by", "") for table in tables.values()):
        content = TABLES
    if step in tables:
        content = f"a table of step {step}"
    if content is not None:
        raise ValueError(
            f"folder: {root} has {content}, and nothing is overwritten; name another folder"
        )
    return tables


@contextlib.contextmanager
def lock_folder(root: pathlib.Path) -> Iterator[None]:
    """Let one thread of one process write at a time; a refusal leaves no new folder."""
    import fcntl  # missing on Windows

    new = not root.exists()
    root.mkdir(parents=True, exist_ok=True)
    folder = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
        if new:
            with contextlib.suppress(OSError):  # it holds tables
                root.rmdir()
