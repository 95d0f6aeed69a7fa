"""Further clouds of a run, where they are asked for: what attention and the feed-forward layer add, and the values.

Each has tables of its own, hook_points/<name>/ in the run's folder, in the form of the run's own; layer l is block l.
"""

import contextlib
import json
import pathlib
from collections.abc import Callable

import numpy as np
import xarray as xr

from anisoscope.config.experiment import Config
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.sources import made_from
from anisoscope.measurement.sources.probe import POSITION_SETS
from anisoscope.measurement.sources.program import make_program
from anisoscope.measurement.tables import join, measurements, raw
from anisoscope.measurement.tables.averages import BLOCK
from anisoscope.measurement.tables.measurements import Standing
from anisoscope.measurement.tables.scores import scores
from anisoscope.training import checkpoint, log, loop
from anisoscope.utils import folder, mesh, processes, shares
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop

WORDS = {
    "attention_out": "output of attention, before it is added to the residual stream",
    "mlp_out": "output of the feed-forward layer, before it is added to the residual stream",
    "values": "values of all heads side by side",
}


def folders(config: Config, run: pathlib.Path) -> list[pathlib.Path]:
    """Of the tables of each hook point, in the folder of a run."""
    return [folder.hook_points(run) / hook_point / "measurements" for hook_point in config.measure.hook_points]


def measure(config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop) -> None:
    """Write hook_points/<name>/measurements/<step>.nc of every checkpoint, then the tables of each; as sources/sweep.

    Families of clouds alone. A hook point whose checkpoint is gone keeps the table it has.
    """
    hook_points, kept = config.measure.hook_points, loop.kept_steps(config, run)
    families = tuple(family for family in config.measure.families if FAMILIES[family].of == "cloud")
    config = replace(config, {"measure.families": families})
    nulls, made = config.measure.nulls, made_from.made_by(config, corpus)
    with contextlib.closing(checkpoint.Checkpoints(run / "checkpoints", kept, True)) as store:
        found = {hook_point: _standing(run, hook_point, store, config, kept, made) for hook_point in hook_points}
        stored = set(store.steps())
        todo = [step for step in kept if step in stored and any(one[step].missing for one in found.values())]
        missing = {step: {s: found[s][step] for s in hook_points if found[s][step].missing} for step in todo}
        _measure(config, corpus, run, store, missing, name, stop)

    def join_tables() -> None:
        for hook_point in hook_points:
            inner = folder.hook_points(run) / hook_point
            paths = {step: inner / "measurements" / f"{step}.nc" for step in kept}
            whole = {step: measurements.read(path, hook_point) for step, path in paths.items() if path.exists()}
            learned = scores(log.read(run) if (run / "train.jsonl").exists() else [], list(whole))
            join.write(inner, whole, families, nulls, attributes(config, corpus, name, hook_point), learned)

    processes.on_first(join_tables)
    where = folder.hook_points(run) / "<name>" / "results.nc"
    print(f"{name}: {', '.join(hook_points)}: {len(todo)} checkpoints measured now: {where}")


def attributes(config: Config, corpus: Corpus, name: str, hook_point: str) -> dict:
    """What the run's tables say, and of which hook point these are."""
    about = made_from.attributes(config, corpus, name)
    return about | {
        "run": f"{name}, {hook_point}",
        "hook_point": hook_point,
        "hook_point_in_words": WORDS[hook_point],
        "layer_0": BLOCK,
    }


def _standing(
    run: pathlib.Path, hook_point: str, store: checkpoint.Checkpoints, config: Config, kept: list[int], made: dict
) -> dict[int, Standing]:
    """What there is of one hook point and what is missing; all of it where a checkpoint has changed."""
    settings, tables, of_run = (
        config.measure,
        folder.hook_points(run) / hook_point / "measurements",
        made_from.settings_of(config),
    )
    found = measurements.plan(tables, kept, settings.families, settings.nulls, made, of_run, hook_point)
    for step, one in found.items():
        if one.table is not None and made_from.is_outdated(one.table, store):
            found[step] = measurements.nothing(settings.families, settings.nulls)
    return found


def _measure(
    config: Config,
    corpus: Corpus,
    run: pathlib.Path,
    store: checkpoint.Checkpoints,
    todo: dict[int, dict[str, Standing]],
    name: str,
    stop: Stop,
) -> None:
    """One program for all checkpoints and hook points: which hook point it reads is data."""
    hook_points, made = config.measure.hook_points, {"made_by": json.dumps(made_from.made_by(config, corpus))}
    apart = mesh.measures_apart(config.mesh)

    @made_from.damage_told()
    def begin() -> Callable[[int], dict[str, xr.Dataset]]:
        program = make_program(config, corpus, store.restore_params(next(iter(todo))), hook_points, apart)

        @made_from.damage_told()
        def tables(step: int) -> dict[str, xr.Dataset]:
            params, digest = store.restore_params(step), {"checkpoints": json.dumps({step: store.digest(step)})}
            found = {}
            for hook_point in todo[step]:
                values = program(params, {}, hook_points.index(hook_point)).values
                about = attributes(config, corpus, name, hook_point) | made | digest
                found[hook_point] = of_blocks(raw.table(values, step, POSITION_SETS, about))
            return found

        return tables

    def keep(step: int, tables: dict[str, xr.Dataset]) -> None:
        for hook_point, table in tables.items():
            measurements.keep(
                table, step, todo[step][hook_point], folder.hook_points(run) / hook_point / "measurements"
            )

    written = {
        step: [folder.hook_points(run) / hook_point / "measurements" / f"{step}.nc" for hook_point in missing]
        for step, missing in todo.items()
    }
    what = f"measure {', '.join(hook_points)}", "measuring the hook points of"
    shares.each(written, begin, keep, name, what, stop, apart)


def of_blocks(table: xr.Dataset) -> xr.Dataset:
    """Layers from 1 on: the embedding is no block's output."""
    layer = np.arange(1, table.sizes["layer"] + 1)
    return table.assign_coords(layer=layer, depth=("layer", layer / len(layer)))
