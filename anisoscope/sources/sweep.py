"""Measure every step of a source into tables, and join them; keep existing tables.

A source is a model with steps, such as checkpoints or revisions.
"""

import abc
import contextlib
import functools
import json
import pathlib
from collections.abc import Callable, Collection, Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.metrics.registry import select_kind
from anisoscope.results import digests, join, step_files
from anisoscope.results.replicates_table import UNTRAINED, missing_families
from anisoscope.results.step_files import STREAM
from anisoscope.utils import checksums
from anisoscope.utils.errors import UserError
from anisoscope.utils.processes import Stop
from anisoscope.utils.progress import progress_bar

Families = tuple[str, ...]
Tables = Mapping[int, xr.Dataset]  # by step
MEASUREMENTS = "measurements"  # the folder of the tables of steps, and their record


class Target(NamedTuple):
    """What to measure at each step into one table: the residual stream, or a hook point."""

    name: str
    folder: pathlib.Path  # folder of <step>.nc; the joined tables lie in its parent
    families: Families
    results: str = "results.nc"

    def path(self, step: int) -> pathlib.Path:
        return self.folder / f"{step}.nc"

    @property
    def is_hook_point(self) -> bool:
        return self.name != STREAM


def is_outdated(table: xr.Dataset, source: Any) -> bool:
    """Return whether a checkpoint of the table that exists has another digest now."""
    read_then = json.loads(table.attrs.get("checkpoints", "{}"))
    return any(source.digest(int(step)) not in (None, digest) for step, digest in read_then.items())


class Source(abc.ABC):
    """A model with steps; the sweep reads each step once, in any order."""

    name: str  # in messages
    root: pathlib.Path  # the folder of the tables
    measure: MeasureConfig  # requested settings
    steps: list[int]  # all steps, in the order of measurement
    # settings that decide which vectors form a cloud; only tables that share them are joined
    made_by: dict[str, Any]
    # settings that differ in tables of another run
    run_settings: Mapping[str, Any] = MappingProxyType({})
    nothing_stored = "no step can be read"  # the message where no table exists either

    @property
    def targets(self) -> list[Target]:
        """What to measure, the residual stream first; hook points have cloud families only."""
        families = self.measure.families
        clouds = select_kind(families, "cloud")
        inside = [
            Target(name, self.root / "hook_points" / name / MEASUREMENTS, clouds)
            for name in self.measure.hook_points
        ]
        return [Target(STREAM, self.root / MEASUREMENTS, families), *inside]

    @abc.abstractmethod
    def stored(self) -> set[int]:
        """Return the steps that can be read now; tables of other steps stay unchanged."""

    @abc.abstractmethod
    def outdated(self, target: Target, tables: Tables) -> dict[int, str]:
        """Return {step: reason} of the tables that are no longer valid."""

    @abc.abstractmethod
    def measure_step(
        self, step: int, families: dict[Target, Families]
    ) -> Iterator[tuple[Target, xr.Dataset]]:
        """Read a step, and yield the raw table of these families of each target.

        Families are the same at every step, so that one program serves all.
        """

    def state(self) -> dict[str, Any] | None:
        """Return all that decides, besides tables, which of them are valid and complete.

        None: it is unknown, and the tables are read to find out.
        """
        return None

    def invalidate_records(self, tables: dict[Target, Tables]) -> None:  # noqa: B027 (optional)
        """Take the valid tables; called once before the first step."""

    def close(self) -> None:  # noqa: B027 (optional)
        """Release what the steps kept; called once after the last step."""

    def digest(self, step: int) -> str | None:
        """Return the digest of the parameters of a step, for tangents; None: unknown."""
        return None

    def attributes(self, target: Target, tables: Tables) -> dict[str, Any]:
        """Describe the source in the joined table of these steps."""
        return {}

    def scores(self, steps: list[int]) -> xr.Dataset | None:
        """Read the scores of the model at these steps; None: unknown."""
        return None

    def missing(self, target: Target, table: xr.Dataset | None, nulls: tuple[str, ...]) -> Families:
        """Return the families that a table of the target lacks."""
        return missing_families(table, target.families, nulls)

    def step_tables(self, target: Target) -> Tables:
        """Return the tables of a target as they were written, read when they are used."""
        paths = {step: target.path(step) for step in sorted(self.steps)}
        existing = {step: path for step, path in paths.items() if path.exists()}
        return step_files.StepTables(existing, target.name)

    def join(self) -> None:
        """Write results.nc, batches.nc and results.csv of targets where they are not up to date."""
        scores = None
        for target in self.targets:
            tables, root = self.step_tables(target), target.folder.parent
            made_from = {str(step): checksums.digest(target.path(step)) for step in tables}
            attributes = {"run": self.name, "corpus": ""} | self.attributes(target, tables)
            scores = scores if target.is_hook_point else self.scores(list(tables))
            inputs = tables, target.families, self.measure.nulls, attributes, scores
            settings = [*inputs[1:-1], None if scores is None else scores.to_dict()]
            write = functools.partial(join.write_joined, root, *inputs)
            digests.write_outdated(root, target.results, made_from, settings, write)


def check_tables(source: Source) -> None:
    """Raise UserError where existing tables were made with other settings."""
    for target in source.targets:
        step_files.check_folder(target.folder, source.made_by)


def check_hook_points(measure: MeasureConfig) -> None:
    """Raise UserError if no family reads the single clouds of hook points."""
    if measure.hook_points and not select_kind(measure.families, "cloud"):
        what = "measure.hook_points are measured by families of clouds"
        raise UserError(f"{what}; add a family such as spectrum, or omit them")


def check_measured(source: Source) -> None:
    """Raise UserError where a step has no table yet, or an outdated one."""
    target, stored = source.targets[0], source.stored()
    tables, steps = source.step_tables(target), stored.intersection(source.steps)
    if stale := steps - tables.keys() | stored.intersection(source.outdated(target, tables)):
        raise UserError(
            f"{target.path(min(stale))} does not exist or is outdated; run --stages=measure first"
        )


def sweep(source: Source, stop: Stop, finish: Callable[[], None] = lambda: None) -> None:
    """Measure what steps lack, join the tables of all steps (results/join.py), and call `finish`.

    A family is measured again at a step that lacks one of its quantities or null models. A table
    stays when its checkpoint is deleted, and is measured again when its checkpoint has changed.
    What is up to date (results/digests.py) is not written again.
    """
    measured: dict[str, set[int]] = {}

    def measure() -> list[pathlib.Path]:
        measured.update(measure_missing(source, stop))
        if not source.stored().issuperset(source.steps):
            return []  # what is missing is named at every start
        return [target.path(step) for target in source.targets for step in source.steps]

    if (state := source.state()) is None:
        measure()
    else:
        digests.write_outdated(source.root, MEASUREMENTS, {}, state, measure)
    source.join()
    finish()
    for target in source.targets:
        count = sum(target.path(step).exists() for step in source.steps)
        new = len(measured.get(target.name, ()))
        steps = f"{count} checkpoint{'s' * (count != 1)} measured ({new} now)"
        print(f"{label(source, target)}: {steps}: {target.folder.parent / target.results}")


def measure_steps(source: Source, stop: Stop, chosen: slice) -> None:
    """Measure a part of the steps, in order; other processes may measure others meanwhile."""
    steps = sorted(source.steps)[chosen]
    new = len(measure_missing(source, stop, steps)[source.targets[0].name])
    what = f"{len(steps)} of {len(source.steps)} checkpoints measured ({new} now)"
    print(f"{source.name}: {what}; the same command without --steps joins the tables")


def measure_missing(
    source: Source, stop: Stop, chosen: Collection[int] | None = None
) -> dict[str, set[int]]:
    """Load, measure and write each incomplete step, or those `chosen`; return the steps, by target."""
    stored = source.stored()
    tables = {target: read_valid_tables(source, target, stored) for target in source.targets}
    missing: dict[int, dict[Target, Families]] = {}
    for step in (step for step in source.steps if step in stored):
        for target in source.targets:
            table = tables[target].get(step)
            if families := source.missing(target, table, source.measure.nulls):
                missing.setdefault(step, {})[target] = families
    if not missing and not tables[source.targets[0]]:
        raise UserError(f"{source.name}: {source.nothing_stored}")
    lacking: dict[bool, set[str]] = {}  # hook points share a program, and so their families
    for target, families in (pair for lacks in missing.values() for pair in lacks.items()):
        lacking.setdefault(target.is_hook_point, set()).update(families)

    def measure(step: int) -> None:
        families = {
            target: tuple(x for x in target.families if x in lacking[target.is_hook_point])
            for target in missing[step]
        }
        for target, table in source.measure_step(step, families):
            lacks = missing[step][target]
            # it would be measured at every start
            if lost := {*source.missing(target, table, ())} & {*lacks}:
                what = f"{source.name}: {', '.join(lost)} cannot be measured"
                raise UserError(f"{what}; leave out of measure.families")
            made_by = {"made_by": json.dumps(source.made_by)}
            table = table.assign_attrs(made_by | table.attrs)
            old = tables[target].get(step)
            step_files.write_step(target.path(step), old, table, lacks)

    todo = [step for step in missing if chosen is None or step in chosen]
    source.invalidate_records(tables)
    with contextlib.closing(source):
        for step in progress_bar(todo, f"{source.name}: measure", "checkpoint"):
            stop.check(f"{source.name}: stopped before measuring step {step}")
            measure(step)
    return {
        target.name: {step for step in todo if target in missing[step]} for target in source.targets
    }


def label(source: Source, target: Target) -> str:
    """Name a target in messages."""
    return f"{source.name}, {target.name}" if target.is_hook_point else source.name


def read_valid_tables(source: Source, target: Target, stored: set[int]) -> Tables:
    """Read the valid tables, and report the others."""
    made_by, run = source.made_by, dict(source.run_settings)
    tables: dict[int, xr.Dataset] = {}
    for step in source.steps:
        table = step_files.read_same_clouds(target.path(step), made_by, target.name, run)
        if table is not None:
            tables[step] = table
    outdated = source.outdated(target, tables)
    print_steps(source, target, tables, outdated, stored)
    return {step: x for step, x in tables.items() if step not in {*outdated} & stored}


def print_steps(
    source: Source, target: Target, tables: Tables, outdated: dict[int, str], stored: set[int]
) -> None:
    """Print which tables are measured again, and which steps cannot be."""
    last = max({*tables, *stored}, default=0)
    unknown = {step for step in source.steps if step < last} - tables.keys() - stored
    lines: dict[str, set[int]] = {}
    for step in sorted({*outdated} & stored):
        lines.setdefault(f"measured again, since {outdated[step]}", set()).add(step)
    gone, nulls = tables.keys() - stored, source.measure.nulls
    lines["compared with a checkpoint that has changed, but its own checkpoint is gone"] = (
        gone & outdated.keys()
    )
    lines["some quantities cannot be measured, since the checkpoint is gone"] = {
        step for step in gone if source.missing(target, tables[step], nulls)
    }
    if target == source.targets[0]:
        lines["neither checkpoint nor table"] = unknown
    for message, steps in lines.items():
        if steps:
            listed = ", ".join(map(str, sorted(steps)))
            print(f"{label(source, target)}: {message}: step{'s' * (len(steps) > 1)} {listed}")
    if not target.is_hook_point and 0 in unknown and UNTRAINED in source.measure.nulls:
        print(f"{source.name}: without step 0 there is no excess over the untrained network")
