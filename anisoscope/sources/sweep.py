"""Measure every step of a source, and join the tables; keep what is measured already."""

import contextlib
import functools
import json

import xarray as xr

from anisoscope.results import join, step_files
from anisoscope.results.replicates_table import UNTRAINED, missing_families
from anisoscope.results.step_files import STREAM
from anisoscope.sources.source import Families, Reader, Source, Target
from anisoscope.utils import processes, shares
from anisoscope.utils.errors import UserError
from anisoscope.utils.stop import Stop

Tables = dict[int, xr.Dataset]  # by step


def sweep(source: Source, stop: Stop) -> None:
    """Measure what steps lack, then join the tables of all steps (results/join.py).

    A family is measured again at a step that lacks one of its quantities or null models. Every
    table is written completely or not at all. A table stays when its checkpoint is deleted, and is
    measured again when its checkpoint has changed.

    Raises:
        Stopped: between two steps, where a stop was requested.
    """
    measured = measure_missing(source, stop)
    processes.on_first(functools.partial(join_tables, source))
    for target in source.targets:
        count, new = len(measured_steps(source, target)), len(measured[target.name])
        message = f"{count} checkpoint{'s' * (count != 1)} measured ({new} now)"
        root = target.folder.parent
        if target.name == STREAM:
            print(f"{source.name}: {message}: {root / 'results.nc'}, {root / 'results.csv'}")
        else:
            print(f"{source.name}: {target.name}: {message}: {root}/results.nc")


def measure_missing(source: Source, stop: Stop) -> dict[str, set[int]]:
    """Load, measure and write each incomplete step; return the steps, by target."""
    stored = source.stored()
    tables = {target.name: read_tables(source, target, stored) for target in source.targets}
    missing: dict[int, dict[Target, Families]] = {}
    for step in (step for step in source.steps if step in stored):
        for target in source.targets:
            if families := _missing(source, target, tables[target.name].get(step)):
                missing.setdefault(step, {})[target] = families
    if not missing and not tables[STREAM]:
        raise UserError(source.nothing_stored())
    files = {
        step: [target.folder / f"{step}.nc" for target in targets]
        for step, targets in missing.items()
    }
    with contextlib.ExitStack() as stack:

        @functools.cache  # opened at the first step of this process, if any
        def open_reader() -> Reader:
            return stack.enter_context(source.reader(missing_by_target(source, missing)))

        def measure(step: int, writes: bool) -> None:
            for target, table in open_reader()(step, tuple(missing[step])):
                if writes:
                    old = tables[target.name].get(step)
                    write(source, target, step, old, table, missing[step][target])

        names = ("measure", "measuring")
        shares.map_steps(files, measure, source.name, names, stop, source.independent)
    return {
        target.name: {step for step, targets in missing.items() if target in targets}
        for target in source.targets
    }


def _missing(source: Source, target: Target, table: xr.Dataset | None) -> Families:
    return missing_families(table, target.families, source.measure.nulls)


def missing_by_target(
    source: Source, missing: dict[int, dict[Target, Families]]
) -> dict[str, Families]:
    """Join the families that steps lack, by target; hook points share a program and families."""
    lacking: dict[bool, set[str]] = {}
    for targets in missing.values():
        for target, families in targets.items():
            lacking.setdefault(target.is_hook_point, set()).update(families)
    return {
        target.name: tuple(
            name for name in target.families if name in lacking[target.is_hook_point]
        )
        for target in source.targets
        if any(target in targets for targets in missing.values())
    }


def read_tables(source: Source, target: Target, stored: set[int]) -> Tables:
    """Read the valid tables, and report the others."""
    tables = {}
    for step in source.steps:
        path = target.folder / f"{step}.nc"
        made_by, run = target.made_by(source.made_by), dict(source.run_settings)
        table = step_files.read_same_clouds(path, made_by, target.name, run)
        if table is not None:
            tables[step] = table
    outdated = source.outdated(target, tables)
    report(source, target, tables, outdated, stored)
    return {step: x for step, x in tables.items() if step not in {*outdated} & stored}


def report(
    source: Source, target: Target, tables: Tables, outdated: dict[int, str], stored: set[int]
) -> None:
    """Print which tables are measured again, and which steps cannot be."""
    name = source.name if target.name == STREAM else f"{source.name}, {target.name}"
    last = max({*tables, *stored}, default=0)
    unknown = {step for step in source.steps if step < last} - tables.keys() - stored
    lines: dict[str, set[int]] = {}
    for step in sorted({*outdated} & stored):
        lines.setdefault(f"measured again, since {outdated[step]}", set()).add(step)
    lines["compared with a checkpoint that has changed, but its own checkpoint is gone"] = {
        *outdated
    } - stored
    lines["some quantities cannot be measured, since the checkpoint is gone"] = {
        step for step in tables.keys() - stored if _missing(source, target, tables[step])
    }
    if target.name == STREAM:
        lines["neither checkpoint nor table"] = unknown
    for message, steps in lines.items():
        if steps:
            listed = ", ".join(map(str, sorted(steps)))
            print(f"{name}: {message}: step{'s' * (len(steps) > 1)} {listed}")
    if target.name == STREAM and 0 in unknown and UNTRAINED in source.measure.nulls:
        print(f"{name}: without step 0 there is no excess over the untrained network")


def write(
    source: Source,
    target: Target,
    step: int,
    old: xr.Dataset | None,
    new: xr.Dataset,
    families: tuple[str, ...],
) -> None:
    """Write <step>.nc; UserError where a family is missing, which would be measured at every start."""
    if lacking := missing_families(new, families, ()):
        raise UserError(
            f"{source.name}: {', '.join(lacking)} cannot be measured; leave out of measure.families"
        )
    made_by = {"made_by": json.dumps(target.made_by(source.made_by))}
    new = new.assign_attrs(made_by | new.attrs)
    step_files.write_step(target.folder / f"{step}.nc", old, new, families)


def measured_steps(source: Source, target: Target) -> list[int]:
    return sorted(step for step in source.steps if (target.folder / f"{step}.nc").exists())


def join_tables(source: Source) -> None:
    """Write results.nc, batches.nc and results.csv of the residual stream and every hook point."""
    scores = None
    for target in source.targets:
        tables = {
            step: step_files.read_step(target.folder / f"{step}.nc", target.name)
            for step in measured_steps(source, target)
        }
        attributes = {"run": source.name, "corpus": ""} | source.attributes(target, tables)
        scores = source.scores(list(tables)) if target.name == STREAM else scores
        root = target.folder.parent
        join.write(root, tables, target.families, source.measure.nulls, attributes, scores)
