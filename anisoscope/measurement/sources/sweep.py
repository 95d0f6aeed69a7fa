"""Measure every checkpoint of a run with one compiled program; what is measured already is left alone."""

import contextlib
import json
import pathlib
from collections.abc import Callable

import xarray as xr

from anisoscope.config.experiment import Config
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.sources import made_from, updates
from anisoscope.measurement.sources.probe import POSITION_SETS
from anisoscope.measurement.sources.program import compile_program, make_program, probe_of
from anisoscope.measurement.sources.references import References
from anisoscope.measurement.tables import files, join, leading_vectors, measurements, projection, raw
from anisoscope.measurement.tables.measurements import ASIDE, Standing, read
from anisoscope.measurement.tables.scores import scores
from anisoscope.training import checkpoint, log, loop
from anisoscope.utils import mesh, processes, shares
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop


def sweep(config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop) -> None:
    """Write measurements/<step>.nc for every checkpoint on the schedule, then the tables of all of them (tables/join).

    Every table is written whole or not at all; raises Stopped between two of them. Of a table that is there, only what
    is missing is measured. It stays when its checkpoint is gone, and is measured again when it comes from a checkpoint
    that has changed since.
    """
    settings, kept = config.measure, loop.kept_steps(config, run)
    tables = run / "measurements"
    made, of_run = made_from.made_by(config, corpus), made_from.settings_of(config)
    found = measurements.plan(tables, kept, settings.families, settings.nulls, made, of_run)
    with contextlib.closing(checkpoint.Checkpoints(run / "checkpoints", kept, True)) as store:
        stored = store.steps()
        outdated = [
            step for step, one in found.items() if one.table is not None and made_from.is_outdated(one.table, store)
        ]
        tell(name, found, outdated, stored, config)
        for step in set(outdated) & set(stored):
            found[step] = measurements.nothing(settings.families, settings.nulls)
        todo = [step for step in kept if step in stored and found[step].missing]
        measure_checkpoints(config, corpus, store, tables, {step: found[step] for step in todo}, name, stop)
        if not todo and all(one.table is None for one in found.values()):
            raise UserError(f"{run / 'checkpoints'} holds no checkpoint to measure; run --stages=train first")
        measured = [step for step in kept if step in todo or found[step].table is not None]
        written = {*todo}
        if settings.updates:
            here = [step for step in measured if step in stored]
            written |= updates.add(config, corpus, store, tables, here, name, stop)

    def join_tables() -> None:
        whole = {step: read(tables / f"{step}.nc") if step in written else found[step].table for step in measured}
        lines = log.read_log(run) if (run / log.NAME).exists() else []
        if lost := sorted({*measured} - log.validated(lines)):
            these = f"step{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}"
            print(f"{name}: {run / log.NAME} has no scores of {these}, and so have none of the tables")
        learned = scores(lines, measured)
        join.write(run, whole, settings.families, settings.nulls, made_from.attributes(config, corpus, name), learned)
        leading_vectors.write(run, whole, corpus.characters)

    processes.on_first(join_tables)
    count = f"{len(measured)} checkpoints measured ({len(written)} now)"
    print(f"{name}: {count}: {run / 'results.nc'}, {run / 'results.csv'}")


def sweep_beside(
    config: Config, corpus: Corpus, run: pathlib.Path, folder: str, steps: list[int], name: str, stop: Stop
) -> None:
    """Write <folder>/measurements/<step>.nc for checkpoints of the run that lie in <folder>/checkpoints."""
    if not steps:
        return
    settings, kept = config.measure, loop.kept_steps(config, run)
    tables = run / folder / "measurements"
    made, of_run = made_from.made_by(config, corpus), made_from.settings_of(config)
    found = measurements.plan(tables, steps, settings.families, settings.nulls, made, of_run)
    with contextlib.ExitStack() as stack:
        stores = [checkpoint.Checkpoints(path / "checkpoints", kept, True) for path in (run, run / folder)]
        for store in stores:
            stack.enter_context(contextlib.closing(store))
        store = checkpoint.Beside(*stores)
        for step, one in found.items():
            if one.table is not None and made_from.is_outdated(one.table, store):
                found[step] = measurements.nothing(settings.families, settings.nulls)
        todo = {step: one for step, one in found.items() if one.missing}
        measure_checkpoints(config, corpus, store, tables, todo, name, stop)
        if settings.updates:
            updates.add(config, corpus, store, tables, steps, name, stop)


def up_to(config: Config, run: pathlib.Path, folder: str, step: int) -> xr.Dataset:
    """results.nc as it would be if the run had ended at this step, whose checkpoint and table lie in the folder."""
    results = files.read(run / "results.nc")
    if step in results.step:
        return results.sel(step=slice(None, step))
    first, path = run / "measurements" / "0.nc", run / folder / "measurements" / f"{step}.nc"
    both = ({0: read(first)} if first.exists() else {}) | {step: read(path)}
    alone, _ = join.joined(both, config.measure.families, config.measure.nulls)
    shared = [name for name in alone if name in results]
    parts = [results[shared].sel(step=slice(None, step)), alone[shared].sel(step=[step])]
    whole = xr.concat(parts, "step", join="outer", data_vars="minimal", coords="minimal", compat="override")
    return whole.assign_attrs(results.attrs)


def tell(name: str, found: dict[int, Standing], outdated: list[int], stored: list[int], config: Config) -> None:
    """What a reader of the tables should know before they are made."""
    tables = {step for step, one in found.items() if one.table is not None}
    older = {step for step, one in found.items() if one.older}
    unknown = {step for step in found if step < max({*tables, *stored}, default=0)} - tables - older - {*stored}
    without = {step for step in tables - {*stored} if found[step].missing}
    for steps, what in (
        ({*outdated} & {*stored}, "measured again, since a checkpoint has changed"),
        ({*outdated} - {*stored}, "compared with a checkpoint that has changed; its own is gone"),
        (older & {*stored}, f"measured again; the table, of an older layout, is moved to {ASIDE}"),
        (older - {*stored}, "left out: the table is of an older layout, and its checkpoint is gone"),
        (without, "some quantities cannot be measured, since the checkpoint is gone"),
        (unknown, "neither checkpoint nor table"),
    ):
        if steps:
            print(f"{name}: {what}: step{'s' * (len(steps) > 1)} {', '.join(map(str, sorted(steps)))}")
    if 0 in unknown and "untrained" in config.measure.nulls:
        print(f"{name}: without step 0 there is no excess over the untrained network")


def measure_checkpoints(
    config: Config,
    corpus: Corpus,
    store: checkpoint.Checkpoints | checkpoint.Beside,
    tables: pathlib.Path,
    todo: dict[int, Standing],
    name: str,
    stop: Stop,
) -> None:
    """One program for all: it measures every family and null model of which any of these tables lacks something."""
    settings, wanted = config.measure, _wanted(config, [one.missing for one in todo.values()])
    about, made = made_from.attributes(config, corpus, name), {"made_by": json.dumps(made_from.made_by(wanted, corpus))}
    apart = mesh.measures_apart(config.mesh)

    @made_from.damage_told()
    def begin() -> Callable[[int], xr.Dataset]:
        measure = make_program(wanted, corpus, store.restore_params(next(iter(todo))), apart=apart)
        references, probe = References(store, wanted, measure), probe_of(config, corpus)

        @made_from.damage_told()
        def table(step: int) -> xr.Dataset:
            params = store.restore_params(step)
            measured = measure(params, references.of(step))
            references.keep(step, params, measured)
            values, vectors = references.without_itself(step, measured.values), measured.vectors
            checkpoints = {"checkpoints": json.dumps(references.digests(step))}
            return raw.table(values, step, POSITION_SETS, about | made | checkpoints).assign(
                **references.recorded(step),
                **projection.labelled(vectors, probe.picks_SGP[0, 0], config.model.context, settings.projected_head),
                **leading_vectors.labelled(vectors, probe.tokens_GWT[0]),
            )

        return table

    def keep(step: int, table: xr.Dataset) -> None:
        measurements.keep(table, step, todo[step], tables)

    written = {step: [tables / f"{step}.nc"] for step in todo}
    shares.each(written, begin, keep, name, ("measure", "measuring"), stop, apart)


def compile_ahead(config: Config, corpus: Corpus) -> None:
    """The program of a run of which nothing is measured yet."""
    settings = config.measure
    compile_program(_wanted(config, [raw.missing(None, settings.families, settings.nulls)]), corpus)


def _wanted(config: Config, missing: list[raw.Missing]) -> Config:
    """With the families and null models alone of which something is missing."""
    settings = config.measure
    families = raw.families_of({quantity for one in missing for quantity in one}, settings.families)
    clouds = {cloud for one in missing for clouds in one.values() for cloud in clouds}
    nulls = tuple(null for null in settings.nulls if null in clouds)
    return replace(config, {"measure.families": families, "measure.nulls": nulls})


def check(tables: pathlib.Path, config: Config, corpus: Corpus) -> None:
    """Raise UserError, before any work is done, where the run could not be measured later."""
    mesh.make_mesh(config.mesh)
    probe_of(config, corpus)
    measurements.check(tables, made_from.made_by(config, corpus))
