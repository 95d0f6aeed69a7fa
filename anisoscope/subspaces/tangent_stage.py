"""Fit and test activation subspaces at every step of a model, by the sweep of all sources."""

import abc
import functools
import hashlib
import json
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import numpy as np
import xarray as xr

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.results import joined_files
from anisoscope.results.step_files import TANGENTS
from anisoscope.sources.sweep import Families, Source, Tables, Target, is_outdated
from anisoscope.subspaces import subspace_energy, tangent_tables
from anisoscope.subspaces.subspace_energy import Fitted, Frames, Tested
from anisoscope.subspaces.tangent_gradients import TangentWindows
from anisoscope.subspaces.tangent_quantities import SUBSPACE_KINDS
from anisoscope.subspaces.tangent_tables import frames
from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.processes import Stop
from anisoscope.utils.progress import progress_bar

EARLY = f"{TANGENTS}/early.nc"  # proxies of the first checkpoints pooled


class TangentSource(Source):
    """What is fitted and tested, on which model; a subclass reads the model."""

    source: Source  # the model
    tangents: TangentsConfig
    early: list[int]  # first steps, whose proxies are fitted jointly; may be empty
    fits: tuple[str, ...]  # the possible entries of FITS
    layers: int  # including the embeddings
    width: int  # dimensions of states and gradients
    about_model: dict[str, Any]  # attributes of the model and its text
    other: pathlib.Path | None = None  # early proxies of another seed
    to_test: TangentWindows  # windows that subspaces are tested on
    known: Tables  # valid tables, in memory: later steps read their proxies

    def __init__(self, source: Source):
        self.source, self.name, self.root = source, source.name, source.root
        self.measure, self.run_settings = source.measure, source.run_settings
        self.nothing_stored = source.nothing_stored

    @abc.abstractmethod
    def cloud(self, step: int) -> np.ndarray:
        """Return states of the windows to fit to, (layer, P, D)."""

    @abc.abstractmethod
    def test(self, step: int, before: int | None, frames: dict[str, Frames]) -> Tested:
        """Fit and test at a step; `before` is the step before, `frames` are proxies of other fits."""

    @property
    def targets(self) -> list[Target]:
        return [Target(TANGENTS, self.root / TANGENTS, (TANGENTS,), "tangents.nc")]

    def stored(self) -> set[int]:
        return self.source.stored()

    def missing(self, target: Target, table: xr.Dataset | None, nulls: tuple[str, ...]) -> Families:
        return target.families if table is None else ()

    @property
    def cells(self) -> tangent_tables.Cells:
        """The prespecified cells (layer, step, rank); all others are exploratory.

        The layers are the embedding, the middle and the last but one, since in the last layer of a
        pre-LN model the state itself has no gradient. The steps are the first checkpoint after the
        early ones, if any, and the last. There is one rank.
        """
        blocks, rank, steps = self.layers - 1, self.tangents.ranks[-1], self.steps[-1:]
        if self.early:
            steps = [min(step for step in self.steps if step > self.early[-1]), *steps]
        layers = dict.fromkeys((0, blocks // 2, max(blocks - 1, 0)))
        return [(layer, step, rank) for layer in layers for step in dict.fromkeys(steps)]

    @property
    def study_attributes(self) -> dict[str, Any]:
        """Attributes of every table."""
        lists = {"made_by": self.made_by, "early_steps": self.early, "primary": self.cells}
        sample = tangent_tables.sample_attributes(self.tangents)
        return self.about_model | sample | {name: json.dumps(x) for name, x in lists.items()}

    @functools.cached_property
    def early_frames(self) -> dict[str, Frames]:
        """Proxies of early steps, and those of another seed."""
        paths = {"early": self.root / EARLY if self.early else None, "other seed": self.other}
        read = joined_files.read_table
        return {fit: frames(read(path), self.tangents) for fit, path in paths.items() if path}

    @functools.cached_property
    def digests(self) -> dict[str, str]:
        """Digests of the proxies in `early_frames`; "" where there are none."""
        digests = {"early": "", "other seed": ""}
        for fit, proxies in self.early_frames.items():
            content = b"".join(np.ascontiguousarray(array).tobytes() for array in proxies.values())
            digests[fit] = hashlib.sha256(content).hexdigest()
        return digests

    def outdated(self, target: Target, tables: Tables) -> dict[int, str]:
        """Find tables whose inputs have changed, are made again, or are of other steps."""
        stored, again = self.stored(), {}
        made, before = set(), -1  # steps to measure, and the last step that has or gets a table
        for step in (step for step in self.steps if step in tables or step in stored):
            if step not in tables:
                made.add(step)
            else:
                attributes = tables[step].attrs
                read = {int(other) for other in json.loads(attributes["checkpoints"])}
                if (
                    read & made
                    or read - {*self.steps}
                    or int(attributes["previous_step"]) != before
                    or is_outdated(tables[step], self.source)
                    or json.loads(attributes["early_proxies"]) != self.digests
                ):
                    again[step] = "a checkpoint or an earlier proxy has changed"
                    made |= {step} & stored
            before = max(before, step)
        return again

    def invalidate_records(self, tables: dict[Target, Tables]) -> None:
        self.known = dict(tables[self.targets[0]])

    def measure_step(
        self, step: int, families: dict[Target, Families]
    ) -> Iterator[tuple[Target, xr.Dataset]]:
        before = max((other for other in self.known if other < step), default=None)
        shape = len(SUBSPACE_KINDS), self.layers, self.width
        absent = {x: np.full((*shape, x), np.nan, np.float32) for x in self.tangents.ranks}
        fitted = dict.fromkeys(self.fits, absent) | self.early_frames  # tests of `absent` are NaN
        for fit, other in (("previous", before), ("untrained", 0)):
            if other in self.known:
                fitted[fit] = frames(self.known[other], self.tangents)
        fitted = {fit: fitted[fit] for fit in self.fits if fit != "here"}
        tested = self.test(step, before, fitted)
        panel = subspace_energy.gradient_panel(tested.gradient_NPD, self.to_test, self.tangents)
        read = {step: self.source.digest(step)}
        for other in {before, 0} & self.known.keys():  # of the checkpoints of their proxies
            read[other] = json.loads(self.known[other].attrs["checkpoints"])[str(other)]
        attributes = self.study_attributes | {
            "checkpoints": json.dumps(read),
            "previous_step": -1 if before is None else before,
            "early_proxies": json.dumps(self.digests),
        }
        table = tangent_tables.step_table(tested, panel, self.tangents, step, attributes, self.fits)
        self.known[step] = table
        yield self.targets[0], table

    def join(self) -> None:
        """Write tangents.nc and tangents_primary.csv."""
        raw, fit = self.step_tables(self.targets[0]), "early" if self.early else "here"
        summaries = [tangent_tables.summarize_tangents(table) for table in raw.values()]
        results = xr.concat(summaries, "step", data_vars="all", combine_attrs="override")
        results = results.assign_attrs(self.study_attributes | {"primary_fit": fit})
        joined_files.write_table(results, self.root / "tangents.nc")
        cells = tangent_tables.primary_cells(raw, self.cells, self.name, fit)
        joined_files.write_csv(cells, self.root / "tangents_primary.csv")


@functools.cache
def compile_work(work: Callable, tangents: TangentsConfig) -> Callable:
    """Compile work with these settings once for all steps, in full float32."""
    exact = jax.default_matmul_precision("highest")
    return jax.jit(exact(functools.partial(work, tangents=tangents)))


def fit_early(study: TangentSource, stop: Stop) -> None:
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
        if same and not is_outdated(table, source):
            return
    if missing := sorted({*steps} - source.stored()):
        raise UserError(
            f"{source.name} lacks step {', '.join(map(str, missing))}, which early subspaces are fitted to; "
            "run --stages=train"
        )
    clouds = []
    for at, step in enumerate(progress_bar(steps, f"{source.name}: early subspaces", "checkpoint")):
        stop.check(f"{source.name}: stopped before the early subspaces were fitted")
        clouds.append(np.asarray(study.cloud(step))[:, at :: len(steps)])
    fit: Callable[..., Fitted] = compile_work(subspace_energy.fit_proxies, study.tangents)
    fitted = jax.device_get(fit(np.concatenate(clouds, axis=1)))
    table = tangent_tables.proxy_table(fitted)
    table = table.assign_coords(kind=list(SUBSPACE_KINDS), rank=list(study.tangents.ranks))
    digests = json.dumps({step: source.digest(step) for step in steps})
    table = table.assign_attrs(study.study_attributes, checkpoints=digests)
    processes.on_first(lambda: joined_files.write_table(table, path))
