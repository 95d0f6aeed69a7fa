"""Fit and test activation subspaces at every checkpoint, whoever reads it; what is there already is left alone."""

import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
import xarray as xr

from anisoscope.config.tangents import TangentsConfig
from anisoscope.measurement.sources import made_from
from anisoscope.measurement.tables import files, measurements
from anisoscope.tangents import tables
from anisoscope.tangents.proxies import KINDS, Fitted, Frames
from anisoscope.tangents.tested import GIVEN, Tested
from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar
from anisoscope.utils.stop import Stop

EARLY = "early.nc"  # the proxies of the first checkpoints together


class Source(NamedTuple):
    """The checkpoints of one model, as the stage asks for them."""

    name: str
    folder: pathlib.Path  # of the tables
    where: str  # the checkpoints lie, in words
    steps: list[int]
    early: list[int]  # the first of them, whose proxies are fitted together; none: there are no early proxies
    fits: tuple[str, ...]  # which proxies there can be beside those fitted here
    layers: int  # with that of the embeddings
    width: int  # in which states and gradients are read
    there: Callable[[], set[int]]  # steps that can be read
    digest: Callable[[int], str | None]  # of the parameters; None: not known
    cloud: Callable[[int], np.ndarray]  # states of the windows to fit to, (layer, P, D)
    fit: Callable[[np.ndarray], Fitted]
    test: Callable[[int, int | None, dict[str, Frames]], Tested]  # a step, the one before, proxies from elsewhere
    attributes: dict[str, Any]  # of every table
    run: dict[str, Any]  # settings that a table of another run has otherwise
    cells: list[tuple[int, int, int]]  # the primary ones: (layer, step, rank)


def read(path: pathlib.Path, run: dict[str, Any] | None = None) -> xr.Dataset:
    """A table of this stage, which says that it is what its name says."""
    return files.read(path) if path.name == EARLY else measurements.read(path, measurements.TANGENTS, run)


def refuse_others(folder: pathlib.Path, made_by: str) -> None:
    """Raise UserError where tables that were made otherwise are there; one is read, since all of them agree."""
    now = json.loads(made_by)
    for path in sorted(folder.glob("*.nc")):
        there = json.loads(read(path).attrs.get("made_by", "{}"))
        different = [
            f"{name}={there.get(name)!r} there, {now[name]!r} now" for name in now if there.get(name) != now[name]
        ]
        if different:
            advice = f"pass the same settings, or move {path.parent} away to fit again"
            raise UserError(f"{path} was made otherwise: {'; '.join(different)}; {advice}")
        return


def fit_early(source: Source, tangents: TangentsConfig, stop: Stop) -> None:
    """early.nc: the proxies of the first checkpoints together, as many points of each.

    They stay when a checkpoint is gone, and are fitted again when one has changed.
    """
    path, steps = source.folder / EARLY, source.early
    there = files.read(path) if path.exists() else None
    same = there is not None and [int(step) for step in json.loads(there.attrs["checkpoints"])] == steps
    if not steps or (same and not made_from.is_outdated(there, source)):
        return
    if missing := sorted({*steps} - source.there()):
        lost = ", ".join(map(str, missing))
        raise UserError(f"{source.where} lacks step {lost}, which early subspaces are fitted to; run --stages=train")
    clouds = []
    for at, step in enumerate(bar(steps, f"{source.name}: early subspaces", "checkpoint")):
        stop.check(f"{source.name}: stopped before the early subspaces were fitted")
        clouds.append(np.asarray(source.cloud(step))[:, at :: len(steps)])
    fitted = jax.device_get(source.fit(np.concatenate(clouds, axis=1)))
    about = source.attributes | {"checkpoints": json.dumps({step: source.digest(step) for step in steps})}
    if processes.is_first():
        table = tables.of_proxies(fitted).assign_coords(kind=list(KINDS), rank=list(tangents.ranks))
        files.write(table.assign_attrs(about), path)


def sweep(source: Source, tangents: TangentsConfig, stop: Stop, other: pathlib.Path | None = None) -> None:
    """Write <step>.nc for every checkpoint, then tangents.nc. `other` has the early proxies of another seed, if any.

    Every table is written whole or not at all; raises Stopped between two of them.
    """
    early = {"early": source.folder / EARLY if source.early else None, "other seed": other}
    early = {fit: None if path is None else files.read(path) for fit, path in early.items()}
    early_digests = {fit: _digest(table, tangents) for fit, table in early.items()}
    stored, found, todo = source.there(), {}, []
    for step in source.steps:
        path = source.folder / f"{step}.nc"
        table = read(path, source.run) if path.exists() else None
        before = max((*found, *todo), default=-1)
        if table is not None and not (step in stored and _stale(table, source, early_digests, todo, before)):
            found[step] = table
        elif step in stored:
            todo.append(step)
    if not todo and not found:
        raise UserError(f"{source.where} holds no checkpoint to read; run --stages=train first")
    if unknown := [step for step in source.steps if step not in found and step not in todo]:
        print(f"{source.name}: neither checkpoint nor table of tangents: step{'s' * (len(unknown) > 1)} {unknown}")
    for step in bar(todo, f"{source.name}: tangents", "checkpoint"):
        stop.check(f"{source.name}: stopped before the tangents of step {step}")
        found[step] = _at(source, tangents, step, found, early, early_digests)
        if processes.is_first():
            files.write(found[step], source.folder / f"{step}.nc")
    root, fit = source.folder.parent, "early" if source.early else "here"
    if processes.is_first():
        raw = {step: read(source.folder / f"{step}.nc") for step in sorted(found)}
        cells = tables.primary_cells(raw, source.cells, source.name, fit)
        tables.write(root, raw, source.attributes | {"primary_fit": fit}, cells)
    print(f"{source.name}: tangents of {len(found)} checkpoints ({len(todo)} now): {root / 'tangents.nc'}")


def _at(
    source: Source,
    tangents: TangentsConfig,
    step: int,
    found: dict[int, xr.Dataset],
    early: dict[str, xr.Dataset | None],
    early_digests: dict[str, str],
) -> xr.Dataset:
    """The table of one checkpoint."""
    before = max((one for one in found if one < step), default=None)
    given = early | {"previous": None if before is None else found[before], "untrained": found.get(0)}
    frames = {fit: _frames(given[fit], source, tangents) for fit in GIVEN if fit in source.fits}
    tested = source.test(step, before, frames)
    digests = {one: source.digest(one) for one in {step, before} - {None} if one in source.there()}
    about = source.attributes | {
        "checkpoints": json.dumps(digests),
        "previous_step": -1 if before is None else before,
        "early_proxies": json.dumps(early_digests),
    }
    return tables.of_checkpoint(tested, tangents, step, about, source.fits)


def _frames(table: xr.Dataset | None, source: Source, tangents: TangentsConfig) -> Frames:
    """Those of a table; NaN where there is none, and so will be what is tested of them."""
    if table is not None:
        return tables.frames(table, tangents)
    shape = len(KINDS), source.layers, source.width
    return {rank: np.full((*shape, rank), np.nan, np.float32) for rank in tangents.ranks}


def _stale(table: xr.Dataset, source: Source, early: dict[str, str], todo: list[int], before: int) -> bool:
    """Whether what it was made from has changed, is made again now, or has come in between."""
    previous = int(table.attrs["previous_step"])
    again = 0 in todo or previous in todo or previous < before
    return again or made_from.is_outdated(table, source) or json.loads(table.attrs["early_proxies"]) != early


def _digest(table: xr.Dataset | None, tangents: TangentsConfig) -> str:
    if table is None:
        return ""
    content = b"".join(np.ascontiguousarray(one).tobytes() for one in tables.frames(table, tangents).values())
    return hashlib.sha256(content).hexdigest()


def primary(layers: int, steps: list[int], early: list[int], rank: int) -> list[tuple[int, int, int]]:
    """The cells (layer, step, rank) named before any number was seen: all else is exploratory.

    The embedding, the middle and the last layer but one (in the last, the state itself is out of the gradient's reach);
    the first checkpoint after the early ones, if any, and the last; one rank. Of so many blocks.
    """
    late = [min(step for step in steps if step > early[-1])] if early else []
    chosen = dict.fromkeys((0, layers // 2, max(layers - 1, 0)))
    return [(layer, step, rank) for layer in chosen for step in dict.fromkeys((*late, steps[-1]))]
