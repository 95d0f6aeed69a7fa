"""Fit and test activation subspaces at every checkpoint, whoever reads it; what is there already is
left alone.
"""

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.results import joined_files, step_files
from anisoscope.sources import provenance
from anisoscope.sources.source import Source
from anisoscope.subspaces import tangent_tables
from anisoscope.subspaces.proxies import KINDS, Fitted, Frames
from anisoscope.subspaces.tested_proxies import GIVEN, Tested
from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar
from anisoscope.utils.settings import format_differences
from anisoscope.utils.stop import Stop

FOLDER = "tangents"
EARLY = "early.nc"  # the proxies of the first checkpoints together


class Fitting(NamedTuple):
    """A source of activations, and what else this stage asks of it."""

    source: Source
    where: str  # the checkpoints lie, in words
    steps: list[int]
    # the first of them, whose proxies are fitted together; none: there are no early proxies
    early: list[int]
    fits: tuple[str, ...]  # which proxies there can be beside those fitted here
    layers: int  # with that of the embeddings
    width: int  # in which states and gradients are read
    cloud: Callable[[int], np.ndarray]  # states of the windows to fit to, (layer, P, D)
    fit: Callable[[np.ndarray], Fitted]
    # a step, the one before, proxies from elsewhere
    test: Callable[[int, int | None, dict[str, Frames]], Tested]
    attributes: dict[str, Any]  # of every table
    cells: list[tuple[int, int, int]]  # the primary ones: (layer, step, rank)

    @property
    def name(self) -> str:
        return self.source.name

    @property
    def folder(self) -> pathlib.Path:
        return self.source.root / FOLDER


def read_tangents(path: pathlib.Path, run: dict[str, Any] | None = None) -> xr.Dataset:
    """A table of this stage, which says that it is what its name says."""
    return (
        joined_files.read_table(path)
        if path.name == EARLY
        else step_files.read_step(path, step_files.TANGENTS, run)
    )


def refuse_others(folder: pathlib.Path, made_by: str) -> None:
    """Raise UserError where tables that were made otherwise are there; one is read, since all of
    them agree.
    """
    now = json.loads(made_by)
    for path in sorted(folder.glob("*.nc")):
        there = json.loads(read_tangents(path).attrs.get("made_by", "{}"))
        if different := format_differences(there, now, now):
            advice = f"pass the same settings, or move {path.parent} away to fit again"
            raise UserError(f"{path} was made otherwise: {different}; {advice}")
        return


def fit_early(fitting: Fitting, tangents: TangentsConfig, stop: Stop) -> None:
    """early.nc: the proxies of the first checkpoints together, as many points of each.

    They stay when a checkpoint is gone, and are fitted again when one has changed.
    """
    path, steps = fitting.folder / EARLY, fitting.early
    there = joined_files.read_table(path) if path.exists() else None
    same = (
        there is not None
        and [int(step) for step in json.loads(there.attrs["checkpoints"])] == steps
    )
    if not steps or (same and not provenance.is_outdated(there, fitting.source)):
        return
    if missing := sorted({*steps} - fitting.source.stored()):
        lost = ", ".join(map(str, missing))
        raise UserError(
            f"{fitting.where} lacks step {lost}, which early subspaces are fitted to; run --stages=train"
        )
    clouds = []
    for at, step in enumerate(bar(steps, f"{fitting.name}: early subspaces", "checkpoint")):
        stop.check(f"{fitting.name}: stopped before the early subspaces were fitted")
        clouds.append(np.asarray(fitting.cloud(step))[:, at :: len(steps)])
    fitted = jax.device_get(fitting.fit(np.concatenate(clouds, axis=1)))
    about = fitting.attributes | {
        "checkpoints": json.dumps({step: fitting.source.digest(step) for step in steps})
    }
    if processes.is_first():
        table = tangent_tables.of_proxies(fitted).assign_coords(
            kind=list(KINDS), rank=list(tangents.ranks)
        )
        joined_files.write(table.assign_attrs(about), path)


def sweep(
    fitting: Fitting, tangents: TangentsConfig, stop: Stop, other: pathlib.Path | None = None
) -> None:
    """Write <step>.nc for every checkpoint, then tangents.nc. `other` has the early proxies of
    another seed, if any.

    Every table is written whole or not at all; raises Stopped between two of them.
    """
    early = {"early": fitting.folder / EARLY if fitting.early else None, "other seed": other}
    early = {
        fit: None if path is None else joined_files.read_table(path) for fit, path in early.items()
    }
    early_digests = {fit: _digest(table, tangents) for fit, table in early.items()}
    stored, step_tables, todo = fitting.source.stored(), {}, []
    for step in fitting.steps:
        path = fitting.folder / f"{step}.nc"
        table = read_tangents(path, fitting.source.of_run) if path.exists() else None
        before = max((*step_tables, *todo), default=-1)
        if table is not None and not (
            step in stored and _stale(table, fitting, early_digests, todo, before)
        ):
            step_tables[step] = table
        elif step in stored:
            todo.append(step)
    if not todo and not step_tables:
        raise UserError(f"{fitting.where} holds no checkpoint to read; run --stages=train first")
    if unknown := [step for step in fitting.steps if step not in step_tables and step not in todo]:
        print(
            f"{fitting.name}: neither checkpoint nor table of tangents: step{'s' * (len(unknown) > 1)} {unknown}"
        )
    for step in bar(todo, f"{fitting.name}: tangents", "checkpoint"):
        stop.check(f"{fitting.name}: stopped before the tangents of step {step}")
        step_tables[step] = _at(fitting, tangents, step, step_tables, early, early_digests)
        if processes.is_first():
            joined_files.write(step_tables[step], fitting.folder / f"{step}.nc")
    root, fit = fitting.source.root, "early" if fitting.early else "here"
    if processes.is_first():
        raw = {step: read_tangents(fitting.folder / f"{step}.nc") for step in sorted(step_tables)}
        cells = tangent_tables.primary_cells(raw, fitting.cells, fitting.name, fit)
        tangent_tables.write(root, raw, fitting.attributes | {"primary_fit": fit}, cells)
    print(
        f"{fitting.name}: tangents of {len(step_tables)} checkpoints ({len(todo)} now): {root / 'tangents.nc'}"
    )


def _at(
    fitting: Fitting,
    tangents: TangentsConfig,
    step: int,
    step_tables: dict[int, xr.Dataset],
    early: dict[str, xr.Dataset | None],
    early_digests: dict[str, str],
) -> xr.Dataset:
    """The table of one checkpoint."""
    before = max((one for one in step_tables if one < step), default=None)
    given = early | {
        "previous": None if before is None else step_tables[before],
        "untrained": step_tables.get(0),
    }
    frames = {fit: _frames(given[fit], fitting, tangents) for fit in GIVEN if fit in fitting.fits}
    tested = fitting.test(step, before, frames)
    digests = {
        one: fitting.source.digest(one)
        for one in {step, before} - {None}
        if one in fitting.source.stored()
    }
    about = fitting.attributes | {
        "checkpoints": json.dumps(digests),
        "previous_step": -1 if before is None else before,
        "early_proxies": json.dumps(early_digests),
    }
    return tangent_tables.of_checkpoint(tested, tangents, step, about, fitting.fits)


def _frames(table: xr.Dataset | None, fitting: Fitting, tangents: TangentsConfig) -> Frames:
    """Those of a table; NaN where there is none, and so will be what is tested of them."""
    if table is not None:
        return tangent_tables.frames(table, tangents)
    shape = len(KINDS), fitting.layers, fitting.width
    return {rank: np.full((*shape, rank), np.nan, np.float32) for rank in tangents.ranks}


def _stale(
    table: xr.Dataset, fitting: Fitting, early: dict[str, str], todo: list[int], before: int
) -> bool:
    """Whether what it was made from has changed, is made again now, or has come in between."""
    previous = int(table.attrs["previous_step"])
    again = 0 in todo or previous in todo or previous < before
    return (
        again
        or provenance.is_outdated(table, fitting.source)
        or json.loads(table.attrs["early_proxies"]) != early
    )


def _digest(table: xr.Dataset | None, tangents: TangentsConfig) -> str:
    if table is None:
        return ""
    content = b"".join(
        np.ascontiguousarray(one).tobytes()
        for one in tangent_tables.frames(table, tangents).values()
    )
    return hashlib.sha256(content).hexdigest()


def primary(
    layers: int, steps: list[int], early: list[int], rank: int
) -> list[tuple[int, int, int]]:
    """The cells (layer, step, rank) named before any number was seen: all else is exploratory.

    The embedding, the middle and the last layer but one (in the last, the state itself is out of
    the gradient's reach); the first checkpoint after the early ones, if any, and the last; one
    rank. Of so many blocks.
    """
    late = [min(step for step in steps if step > early[-1])] if early else []
    chosen = dict.fromkeys((0, layers // 2, max(layers - 1, 0)))
    return [(layer, step, rank) for layer in chosen for step in dict.fromkeys((*late, steps[-1]))]
