"""A table for each step of a training, and all of them in one, which the figures over training
read.
"""

import contextlib
import json
import os
import pathlib
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import xarray as xr

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.families.registry import FAMILIES, family_of, quantities
from anisoscope.metrics import convert
from anisoscope.results import join, joined_files
from anisoscope.results.averages import BLOCK
from anisoscope.sources import array_checks, arrays
from anisoscope.sources.array_chunks import of_layers, pieces_of
from anisoscope.sources.recording.recorder import Recorder
from anisoscope.utils.errors import RunError
from anisoscope.utils.settings import LARGEST_SEED

MADE_BY = "anisoscope.write_table"
TABLES = "measurements"
NULLS = array_checks.NULLS
WRITING = threading.Lock()  # of threads; processes wait for each other by the folder itself


def write_table(
    x: Any,
    step: int,
    folder: Any,
    clusters: Any,
    names: Sequence[str] | None,
    families: str | Sequence[str],
    nulls: str | Sequence[str],
    seed: int,
) -> xr.Dataset:
    """`anisoscope.write_table`."""
    root, positions, recorder = pathlib.Path(folder), None, x if isinstance(x, Recorder) else None
    whole = isinstance(step, int | np.integer) and not isinstance(step, bool | np.bool_)
    if not whole or not 0 <= step <= LARGEST_SEED:
        raise ValueError(f"step is {step!r}; a whole number from 0 to {LARGEST_SEED} is needed")
    step = int(step)
    with locked(root):
        earlier = read(root, step)
        if recorder is not None:
            sample = recorder.sample()
            if "vectors" not in sample:
                raise ValueError(
                    "hook points differ in width or positions; record those of one kind together"
                )
            x, clusters, positions = (sample[name] for name in ("vectors", "clusters", "positions"))
            names = [*recorder.groups]
        settings = array_checks.settings_of(
            array_checks.chosen(families, array_checks.OF_VECTORS, False), nulls, 8, seed
        )
        clusters = array_checks.aligned(clusters, x, "clusters")
        layers = array_checks.layers_of(convert.as_arrays(x))
        array_checks.check_names(names, len(layers))
        layers, names = ordered(layers, names, earlier)
        raw = measured(layers, step, clusters, positions, names, settings)
        raw.attrs |= {"run": root.name, "corpus": "a training of one's own"}
        raw.attrs["made_by"] = json.dumps({"by": MADE_BY})
        tables = dict(sorted((earlier | {step: raw}).items()))
        check_alike(root, tables, step)
        path = root / TABLES / f"{step}.nc"
        try:
            joined_files.write(raw, path)
            join.write(root, tables, *held(tables), tables[max(tables)].attrs)
        except BaseException:
            path.unlink(missing_ok=True)
            raise
    if recorder is not None:
        recorder.start_over()
    return joined_files.read_table(root / "results.nc")


def ordered(
    layers: list[Any], names: Sequence[str] | None, earlier: dict[int, xr.Dataset]
) -> tuple[list[Any], Sequence[str] | None]:
    """Layers in the order that their names have in the tables of other steps."""
    before = next((_names(table) for table in earlier.values()), None)
    if names is None or before is None or {*before} != {*names}:
        return layers, names
    places = {name: place for place, name in enumerate(names)}
    return [layers[places[name]] for name in before], before


def measured(
    layers: list[Any],
    step: int,
    clusters: Any,
    positions: Any,
    names: Sequence[str] | None,
    settings: MeasureConfig,
) -> xr.Dataset:
    """The raw table of a step. Layers are those of blocks: an average over these is one over
    all.
    """
    pieces = pieces_of(
        np.shape(layers[0])[0], clusters, positions, 1, settings.folds, settings.seed
    )
    values, doubtful = of_layers(layers, pieces, settings)
    about = arrays.described(layers, clusters, pieces) | doubtful
    about |= {"seed": settings.seed, "config": "{}", "anisoscope": anisoscope.__version__}
    about["provenance"] = (
        f"{len(layers)} hook points; {about['points']:,} vectors at a step; D={about['width']}"
    )
    raw = arrays.raw_table(values, about).assign_coords(step=step)
    raw.attrs["layer_0"] = BLOCK
    return raw if names is None else raw.assign_coords(layer_name=("layer", list(names)))


def check_alike(root: pathlib.Path, tables: dict[int, xr.Dataset], step: int) -> None:
    """Raise ValueError where the table of this step is of other layers than an earlier one."""
    new = tables[step]
    for other, table in tables.items():
        for what, now, then in (
            ("layers", new.sizes["layer"], table.sizes["layer"]),
            ("names", _names(new), _names(table)),
            ("a width of", new.attrs["width"], table.attrs["width"]),
            ("positions", new["positions"].values.tolist(), table["positions"].values.tolist()),
        ):
            if now != then:
                raise ValueError(
                    f"folder: {root} has a table of step {other} with {what} {_listed(then)}, "
                    f"and this step has {_listed(now)}: name another folder"
                )


def _names(table: xr.Dataset) -> list[str] | None:
    return table["layer_name"].values.tolist() if "layer_name" in table.coords else None


def _listed(values: Any) -> str:
    return (
        ", ".join(map(str, values))
        if isinstance(values, list)
        else str(values).replace("None", "no names")
    )


def held(tables: dict[int, xr.Dataset]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Families and null models that at least one of the tables has."""
    there = {family_of(name) for table in tables.values() for name in table if name in quantities()}
    clouds = {cloud for table in tables.values() for cloud in table["cloud"].values}
    families = tuple(family for family in FAMILIES if family in there)
    return families, tuple(null for null in NULLS if null in clouds)


def read(root: pathlib.Path, step: int) -> dict[int, xr.Dataset]:
    """The tables of other steps; ValueError where other things, or this step's table, lie there."""
    found = sorted(path for path in (root / TABLES).glob("*.nc") if path.stem.isdecimal())
    try:
        tables = {int(path.stem): joined_files.read_table(path) for path in found}
    except RunError as error:
        raise ValueError(str(error)) from error
    foreign = [table for table in tables.values() if MADE_BY not in table.attrs.get("made_by", "")]
    others = sorted(path for path in root.iterdir() if path.name != TABLES) if root.exists() else []
    if foreign or (others and not tables):
        name = TABLES if foreign else others[0].name
        raise ValueError(
            f"folder: {root} holds {name}, and nothing is overwritten: name another folder"
        )
    if step in tables:
        raise ValueError(
            f"folder: {root} has a table of step {step}, and nothing is overwritten: name another folder"
        )
    return tables


@contextlib.contextmanager
def locked(root: pathlib.Path) -> Iterator[None]:
    """Let one thread of one process write there at a time; a refusal leaves no new folder
    behind.
    """
    import fcntl  # of systems that have it

    if root.exists() and not root.is_dir():
        raise ValueError(f"folder: {root} is a file; name a folder")
    with WRITING:
        new = not root.exists()
        root.mkdir(parents=True, exist_ok=True)
        place = os.open(root, os.O_RDONLY)
        try:
            fcntl.flock(place, fcntl.LOCK_EX)
            yield
        finally:
            os.close(place)
            if new:
                with contextlib.suppress(OSError):  # where it holds tables
                    root.rmdir()
