"""Fit and test activation subspaces at every checkpoint; keep valid tables."""

import abc
import functools
import hashlib
import json
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import xarray as xr

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.results import joined_files, step_files
from anisoscope.sources import provenance
from anisoscope.sources.sweep import Source
from anisoscope.subspaces import subspace_energy, tangent_tables
from anisoscope.subspaces.subspace_energy import Fitted, Frames, Tested
from anisoscope.subspaces.tangent_quantities import KINDS
from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar
from anisoscope.utils.stop import Stop

FOLDER = "tangents"
EARLY = f"{FOLDER}/early.nc"  # proxies of the first checkpoints pooled


class Study(abc.ABC):
    """What is fitted and tested, on which model."""

    source: Source
    tangents: TangentsConfig
    steps: list[int]
    early: list[int]  # first steps, whose proxies are fitted jointly; may be empty
    fits: tuple[str, ...]  # the possible entries of FITS
    layers: int  # including the embeddings
    width: int  # dimensions of states and gradients
    made_by: dict[str, Any]  # settings that tables must share to be joined
    attributes: dict[str, Any]  # of the model and its text

    @abc.abstractmethod
    def cloud(self, step: int) -> np.ndarray:
        """Return states of the windows to fit to, (layer, P, D)."""

    @abc.abstractmethod
    def test(self, step: int, before: int | None, frames: dict[str, Frames]) -> Tested:
        """Fit and test at a step; `before` is the step before, `frames` are proxies of other fits."""

    def fit(self, cloud_NPD: np.ndarray) -> Fitted:
        """Fit proxies to states."""
        return compile_work(subspace_energy.fit, self.tangents)(cloud_NPD)

    @property
    def folder(self) -> pathlib.Path:
        return self.source.root / FOLDER

    @property
    def cells(self) -> tangent_tables.Cells:
        return primary(self.layers - 1, self.steps, self.early, self.tangents.ranks[-1])

    @property
    def about(self) -> dict[str, Any]:
        """Attributes of every table."""
        lists = {"made_by": self.made_by, "early_steps": self.early, "primary": self.cells}
        sample = tangent_tables.sample_attributes(self.tangents)
        return self.attributes | sample | {name: json.dumps(x) for name, x in lists.items()}


@functools.cache
def compile_work(work: Callable, tangents: TangentsConfig) -> Callable:
    """Compile work with these settings once for all steps, in full float32."""
    exact = jax.default_matmul_precision("highest")
    return jax.jit(exact(functools.partial(work, tangents=tangents)))


def read_tangents(path: pathlib.Path, run: dict[str, Any] | None = None) -> xr.Dataset:
    """Read a table of this stage; RunError where it belongs to another step or run."""
    if path.name == pathlib.Path(EARLY).name:
        return joined_files.read_table(path)
    return step_files.read_step(path, step_files.TANGENTS, run)


def primary(layers: int, steps: list[int], early: list[int], rank: int) -> tangent_tables.Cells:
    """Return the prespecified cells (layer, step, rank); all others are exploratory.

    The layers are the embedding, the middle and the last but one, since in the last layer the state
    itself has no gradient. The steps are the first checkpoint after the early ones, if any, and the
    last. There is one rank. `layers` counts blocks.
    """
    late = [min(step for step in steps if step > early[-1])] if early else []
    chosen = dict.fromkeys((0, layers // 2, max(layers - 1, 0)))
    return [(layer, step, rank) for layer in chosen for step in dict.fromkeys((*late, steps[-1]))]


def fit_early(study: Study, stop: Stop) -> None:
    """Fit early.nc: proxies of the first checkpoints pooled, with equally many points of each.

    They stay when a checkpoint is deleted, and are fitted again when a checkpoint has changed.
    """
    source, steps = study.source, study.early
    path = source.root / EARLY
    if not steps:
        return
    if path.exists():
        table = joined_files.read_table(path)
        same = [int(step) for step in json.loads(table.attrs["checkpoints"])] == steps
        if same and not provenance.is_outdated(table, source):
            return
    if missing := sorted({*steps} - source.stored()):
        raise UserError(
            f"{source.name} lacks step {', '.join(map(str, missing))}, which early subspaces are fitted to; "
            "run --stages=train"
        )
    clouds = []
    for at, step in enumerate(bar(steps, f"{source.name}: early subspaces", "checkpoint")):
        stop.check(f"{source.name}: stopped before the early subspaces were fitted")
        clouds.append(np.asarray(study.cloud(step))[:, at :: len(steps)])
    fitted = jax.device_get(study.fit(np.concatenate(clouds, axis=1)))
    if processes.is_first():
        table = tangent_tables.proxy_table(fitted)
        table = table.assign_coords(kind=list(KINDS), rank=list(study.tangents.ranks))
        digests = json.dumps({step: source.digest(step) for step in steps})
        joined_files.write(table.assign_attrs(study.about, checkpoints=digests), path)


def sweep(study: Study, stop: Stop, other: pathlib.Path | None = None) -> None:
    """Write <step>.nc for every checkpoint that lacks it, then tangents.nc.

    `other` holds the early proxies of another seed, if any. Every table is written completely or
    not at all.

    Raises:
        Stopped: between two tables, where a stop was requested.
    """
    source, name, tangents = study.source, study.source.name, study.tangents
    paths = {"early": source.root / EARLY if study.early else None, "other seed": other}
    early = {fit: joined_files.read_table(path) for fit, path in paths.items() if path}
    digests = dict.fromkeys(paths, "")
    for fit, table in early.items():
        arrays = map(np.ascontiguousarray, tangent_tables.frames(table, tangents).values())
        digests[fit] = hashlib.sha256(b"".join(x.tobytes() for x in arrays)).hexdigest()
    tables, todo = plan(study, digests)
    if not todo and not tables:
        raise UserError(f"{name} has no checkpoint to read; run --stages=train first")
    if unknown := [step for step in study.steps if step not in tables and step not in todo]:
        print(f"{name}: neither checkpoint nor table of tangents: steps {unknown}")
    for step in bar(todo, f"{name}: tangents", "checkpoint"):
        stop.check(f"{name}: stopped before the tangents of step {step}")
        before = max((known for known in tables if known < step), default=None)
        fitted = early | {"previous": tables.get(before), "untrained": tables.get(0)}
        # tests of a missing fit are NaN
        shape = len(KINDS), study.layers, study.width
        missing = {x: np.full((*shape, x), np.nan, np.float32) for x in tangents.ranks}
        frames = {}
        for fit in (fit for fit in study.fits if fit != "here"):
            table = fitted.get(fit)
            frames[fit] = missing if table is None else tangent_tables.frames(table, tangents)
        tested = study.test(step, before, frames)
        read = {known: source.digest(known) for known in {step, before} & source.stored()}
        attributes = study.about | {
            "checkpoints": json.dumps(read),
            "previous_step": -1 if before is None else before,
            "early_proxies": json.dumps(digests),
        }
        tables[step] = tangent_tables.step_table(tested, tangents, step, attributes, study.fits)
        if processes.is_first():
            joined_files.write(tables[step], study.folder / f"{step}.nc")
    path, fit = source.root / "tangents.nc", "early" if study.early else "here"
    if processes.is_first():
        raw = {step: read_tangents(study.folder / f"{step}.nc") for step in sorted(tables)}
        cells = tangent_tables.primary_cells(raw, study.cells, name, fit)
        tangent_tables.write(source.root, raw, study.about | {"primary_fit": fit}, cells)
    print(f"{name}: tangents of {len(tables)} checkpoints ({len(todo)} now): {path}")


def plan(study: Study, digests: dict[str, str]) -> tuple[dict[int, xr.Dataset], list[int]]:
    """Return the valid tables, and the steps whose tables must be made.

    A table is valid unless its inputs have changed, are made again now, or another step has come
    between. The table of a deleted checkpoint stays.
    """
    tables, todo, stored = {}, [], study.source.stored()
    for step in study.steps:
        path = study.folder / f"{step}.nc"
        table = read_tangents(path, study.source.run_settings) if path.exists() else None
        if table is not None and step in stored:
            previous = int(table.attrs["previous_step"])
            if (
                {0, previous} & {*todo}
                or previous < max((*tables, *todo), default=-1)
                or provenance.is_outdated(table, study.source)
                or json.loads(table.attrs["early_proxies"]) != digests
            ):
                table = None
        if table is not None:
            tables[step] = table
        elif step in stored:
            todo.append(step)
    return tables, todo
