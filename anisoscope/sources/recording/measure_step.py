"""Measure a step of a training into a folder: a table per step, and the joined table.

The figures over training read the joined table.
"""

import contextlib
import json
import os
import pathlib
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

import anisoscope
from anisoscope.config.measure_config import CLOUD_NULLS
from anisoscope.measurement.families.registry import FAMILIES, find_family, quantities
from anisoscope.results import join, joined_files
from anisoscope.results.averages import BLOCK
from anisoscope.sources import array_checks, array_chunks, arrays
from anisoscope.sources.recording.recorder import Recorder
from anisoscope.utils.errors import RunError
from anisoscope.utils.settings import LARGEST_SEED

MADE_BY = "anisoscope.measure_step"
TABLES = "measurements"
FOLDS = 8


def measure_step(
    x: Any,
    step: int,
    folder: Any,
    clusters: Any,
    names: Sequence[str] | None,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    seed: int,
) -> xr.Dataset:
    """Measure and write as `anisoscope.measure_step` documents."""
    root, positions, recorder = pathlib.Path(folder), None, x if isinstance(x, Recorder) else None
    whole = isinstance(step, int | np.integer) and not isinstance(step, bool | np.bool_)
    if not whole or not 0 <= step <= LARGEST_SEED:
        raise ValueError(f"step is {step!r}; pass a whole number from 0 to {LARGEST_SEED}")
    step = int(step)
    chosen = array_checks.choose_families(families, array_checks.VECTOR_INPUTS)
    settings = array_checks.make_settings(chosen, nulls, FOLDS, seed)
    with lock_folder(root):
        tables = read_tables(root, step)
        if recorder is not None:
            x, clusters, positions = recorder.stacked_sample()
            names = [*recorder.groups]
        vectors = array_checks.read_vectors(x, clusters, positions)
        array_checks.check_names(names, len(vectors.layers))
        order = next((_layer_names(table) for table in tables.values()), None)
        if names is not None and order is not None and {*order} == {*names}:
            layers = dict(zip(names, vectors.layers, strict=True))
            vectors = vectors._replace(layers=[layers[name] for name in order])
            names = order
        chunks = array_chunks.cut_chunks(vectors, 1, FOLDS, seed)
        values, about = array_chunks.measure_chunks(vectors, chunks, settings)
        about |= {
            "config": "{}",
            "anisoscope": anisoscope.__version__,
            "provenance": f"{len(vectors.layers)} hook points; {about['points']:,} vectors at a "
            f"step; D={about['width']}",
        }
        raw = arrays.raw_table(values, about).assign_coords(step=step)
        raw.attrs |= {"layer_0": BLOCK, "run": root.name, "corpus": "a training of one's own"}
        raw.attrs["made_by"] = json.dumps({"by": MADE_BY})
        if names is not None:
            raw = raw.assign_coords(layer_name=("layer", list(names)))
        for other, table in tables.items():
            _check_layers(root, raw, other, table)
        tables = dict(sorted((tables | {step: raw}).items()))
        path = root / TABLES / f"{step}.nc"
        try:
            joined_files.write(raw, path)
            join.write(root, tables, *_contents(tables), tables[max(tables)].attrs)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    if recorder is not None:
        recorder.start_over()
    return joined_files.read_table(root / "results.nc")


def _check_layers(root: pathlib.Path, raw: xr.Dataset, step: int, other: xr.Dataset) -> None:
    """Raise ValueError where the layers of this step differ from those of an earlier step."""
    for what, now, before in (
        ("layers", raw.sizes["layer"], other.sizes["layer"]),
        ("names", _layer_names(raw), _layer_names(other)),
        ("a width of", raw.attrs["width"], other.attrs["width"]),
    ):
        if now != before:
            raise ValueError(
                f"folder: {root} has a table of step {step} with {what} {before}, "
                f"and this step has {now}; name another folder"
            )


def _layer_names(table: xr.Dataset) -> list[str] | None:
    return table["layer_name"].values.tolist() if "layer_name" in table.coords else None


def _contents(tables: dict[int, xr.Dataset]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return families and null models that at least one of the tables has."""
    measured = {name for table in tables.values() for name in table if name in quantities()}
    clouds = {cloud for table in tables.values() for cloud in table["cloud"].values}
    present = {find_family(name) for name in measured}
    families = tuple(family for family in FAMILIES if family in present)
    return families, tuple(null for null in CLOUD_NULLS if null in clouds)


def read_tables(root: pathlib.Path, step: int) -> dict[int, xr.Dataset]:
    """Read the tables of other steps.

    Raises:
        ValueError: the folder holds other files, or a table of this step.
    """
    paths = sorted(path for path in (root / TABLES).glob("*.nc") if path.stem.isdecimal())
    try:
        tables = {int(path.stem): joined_files.read_table(path) for path in paths}
    except RunError as error:
        raise ValueError(str(error)) from error
    foreign = [table for table in tables.values() if MADE_BY not in table.attrs.get("made_by", "")]
    others = sorted(path for path in root.iterdir() if path.name != TABLES) if root.exists() else []
    content = TABLES if foreign else others[0].name if others and not tables else None
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
