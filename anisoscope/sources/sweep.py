"""Measure every step of a source, and join the tables; what is measured already is left alone."""

import contextlib
import functools
import json
from collections.abc import Callable

import xarray as xr

from anisoscope.results import join, replicates_table, step_files
from anisoscope.results.step_files import STREAM, Standing
from anisoscope.sources.source import Source, Target, wanted
from anisoscope.utils import processes, shares
from anisoscope.utils.errors import UserError
from anisoscope.utils.stop import Stop

Standings = dict[str, dict[int, Standing]]  # by target and step


def sweep(source: Source, stop: Stop) -> None:
    """Write <step>.nc of every target and step, then the tables of all steps (tables/join).

    Every table is written whole or not at all; raises Stopped between two steps. Of a table that is
    there, only what is missing is measured. It stays when its checkpoint is gone, and is measured
    again when that has changed since.
    """
    there, now = measure_missing(source, stop)
    processes.on_first(functools.partial(join_tables, source, there))
    for target in source.targets:
        steps, new = there[target.name], now[target.name]
        count = f"{len(steps)} checkpoint{'s' * (len(steps) != 1)} measured ({len(new)} now)"
        if target.name == STREAM:
            print(
                f"{source.name}: {count}: {source.root / 'results.nc'}, {source.root / 'results.csv'}"
            )
        else:
            print(f"{source.name}: {target.name}: {count}: {target.folder.parent}/results.nc")


def measure_missing(
    source: Source, stop: Stop
) -> tuple[dict[str, dict[int, xr.Dataset | None]], dict[str, set[int]]]:
    """By target, the steps that have a table, with those that were there before; and the steps
    measured now.
    """
    stored = source.stored()
    standing = {target.name: plan(source, target, stored) for target in source.targets}
    todo = [
        step
        for step in source.steps
        if step in stored and any(one[step].missing for one in standing.values())
    ]
    if not todo and all(one.table is None for one in standing[STREAM].values()):
        raise UserError(source.nothing_stored())
    measure_steps(source, standing, todo, stop)
    there, now = {}, {}
    for target in source.targets:
        name = target.name
        now[name] = {step for step in todo if standing[name][step].missing}
        old = {step: one.table for step, one in standing[name].items() if one.table is not None}
        there[name] = {
            step: None if step in now[name] else old[step] for step in sorted({*old} | now[name])
        }
    return there, now


def plan(source: Source, target: Target, stored: set[int]) -> dict[int, Standing]:
    """What stands in every table of a target and what is missing there."""
    standing = step_files.plan(
        target.folder,
        source.steps,
        target.families,
        source.measure.nulls,
        target.made_by(source.made_by),
        dict(source.of_run),
        target.name,
    )
    outdated = source.outdated(target, standing)
    report(source, target, standing, outdated, stored)
    for step in {*outdated} & stored:
        standing[step] = step_files.nothing(target.families, source.measure.nulls)
    return standing


def report(
    source: Source,
    target: Target,
    standing: dict[int, Standing],
    outdated: dict[int, str],
    stored: set[int],
) -> None:
    """What a reader of the tables should know before they are made."""
    name = source.name if target.name == STREAM else f"{source.name}, {target.name}"
    tables = {step for step, one in standing.items() if one.table is not None}
    last = max({*tables, *stored}, default=0)
    unknown = {step for step in standing if step < last} - tables - stored
    again = {}
    for step in sorted({*outdated} & stored):
        again.setdefault(f"measured again, since {outdated[step]}", set()).add(step)
    for what, steps in (
        *again.items(),
        ("compared with a checkpoint that has changed; its own is gone", {*outdated} - stored),
        (
            "some quantities cannot be measured, since the checkpoint is gone",
            {step for step in tables - stored if standing[step].missing},
        ),
        ("neither checkpoint nor table", unknown if target.name == STREAM else set()),
    ):
        if steps:
            print(
                f"{name}: {what}: step{'s' * (len(steps) > 1)} {', '.join(map(str, sorted(steps)))}"
            )
    if (
        target.name == STREAM
        and 0 in unknown
        and replicates_table.UNTRAINED in source.measure.nulls
    ):
        print(f"{name}: without step 0 there is no excess over the untrained network")


def measure_steps(source: Source, standing: Standings, todo: list[int], stop: Stop) -> None:
    """Each step is read once, for every table that lacks something; each table is written when it
    is measured.
    """
    missing = {
        step: [target for target in source.targets if standing[target.name][step].missing]
        for step in todo
    }
    lacking = [
        target for target in source.targets if any(target in some for some in missing.values())
    ]
    asked = {}
    for target in lacking:  # hook points ask together: one program is for all of them
        alike = [one for one in lacking if one.is_hook_point] if target.is_hook_point else [target]
        of_each = [standing[one.name][step].missing for one in alike for step in todo]
        asked[target.name] = wanted(target, of_each, source.measure.nulls)
    writes = source.apart or processes.is_first()

    with contextlib.ExitStack() as stack:

        def begin() -> Callable[[int], None]:
            read = stack.enter_context(source.reader(asked))

            def of_step(step: int) -> None:
                by_name = {target.name: target for target in missing[step]}
                for name, table in read(step, missing[step]):
                    if writes:
                        keep(source, by_name[name], step, table, standing[name][step])

            return of_step

        written = {
            step: [target.folder / f"{step}.nc" for target in missing[step]] for step in todo
        }
        what = "measure", "measuring"
        shares.each(written, begin, lambda step, done: None, source.name, what, stop, source.apart)


def keep(source: Source, target: Target, step: int, table: xr.Dataset, there: Standing) -> None:
    """Write the table; UserError where it lacks what was asked for: that would be measured at every
    start.
    """
    if lacking := [name for name in there.missing if name not in table]:
        families = replicates_table.families_of(dict.fromkeys(lacking, ()), target.families)
        raise UserError(
            f"{source.name}: {', '.join(families)} cannot be measured of it; leave out of measure.families"
        )
    made_by = json.dumps(target.made_by(source.made_by))
    step_files.keep(
        table.assign_attrs({"made_by": made_by} | table.attrs), step, there, target.folder
    )


def join_tables(source: Source, there: dict[str, dict[int, xr.Dataset | None]]) -> None:
    """results.nc, batches.nc and results.csv of the residual stream and of every hook point."""
    scores = None
    for target in source.targets:
        tables = {
            step: step_files.read_step(target.folder / f"{step}.nc", target.name)
            if old is None
            else old
            for step, old in there[target.name].items()
        }
        root = target.folder.parent
        about = {"run": source.name, "corpus": ""} | source.attributes(target, tables)
        scores = source.scores(list(tables)) if target.name == STREAM else scores
        join.write(root, tables, target.families, source.measure.nulls, about, scores)
