"""Further clouds of a pretrained model, as sources/hook_points.py has them of ours; in hook_points/<name>/."""

import json
import pathlib
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.config.pretrained import PretrainedConfig, steps
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.sources import extracted
from anisoscope.measurement.sources.activations import Measured
from anisoscope.measurement.sources.hook_points import WORDS, of_blocks
from anisoscope.measurement.sources.hub import load
from anisoscope.measurement.sources.hub.reading import guards, inside
from anisoscope.measurement.sources.hub.reading.extract import Activations
from anisoscope.measurement.sources.hub.revision import (
    Plan,
    changed,
    inputs_of_batch,
    named,
    opened,
    place_of,
    recorded,
    visible_sets,
    words,
)
from anisoscope.measurement.tables import join, measurements, raw
from anisoscope.measurement.tables.averages import BLOCK
from anisoscope.measurement.tables.measurements import Standing
from anisoscope.utils import folder
from anisoscope.utils.progress import bar
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop

NOT_OF_HOOK_POINTS = (  # what the run says of the residual stream
    *("residual_stream", "attention", "bits_per_byte", "bits_bound", "bits_of", "noise_floor", "revisions"),
)


def check(config: PretrainedConfig, root: pathlib.Path, made: dict[str, Any]) -> None:
    """Raise UserError where tables of other clouds are there."""
    for hook_point in config.measure.hook_points:
        measurements.check(folder.hook_points(root) / hook_point / "measurements", made)


def measure(plan: Plan, root: pathlib.Path, about: dict[str, Any], made: dict[str, Any], stop: Stop) -> None:
    """Write hook_points/<name>/measurements/<step>.nc of each revision, then the tables of each; families of clouds."""
    families = tuple(family for family in plan.config.measure.families if FAMILIES[family].of == "cloud")
    config = replace(plan.config, {"measure.families": families})
    plan, name, hook_points, nulls = (
        plan._replace(config=config),
        plan.name,
        config.measure.hook_points,
        config.measure.nulls,
    )
    found = {hook_point: _standing(root, hook_point, config, made) for hook_point in hook_points}
    about = {key: value for key, value in about.items() if key not in NOT_OF_HOOK_POINTS}
    todo = [step for step in steps(config.pretrained) if any(one[step].missing for one in found.values())]
    for step in bar(todo, f"{name}: measure {', '.join(hook_points)}", "revision"):
        stop.check(f"{name}: stopped before measuring the hook points of step {step}")
        loaded = opened(plan, place_of(config, step))
        said = inside.adds_up(loaded, plan.windows.probe.tokens_GWT[0, 0], config.pretrained.clamp)
        if step == todo[0]:
            print(f"{name}: {said}")
        for hook_point in (hook_point for hook_point in hook_points if found[hook_point][step].missing):
            one, tables = found[hook_point][step], folder.hook_points(root) / hook_point / "measurements"
            facts = about | recorded(loaded.about) | {"model": words(loaded, config, plan.windows), "sum": said}
            new = table(
                plan, loaded, step, hook_point, facts | _of_hook_point(name, hook_point) | {"made_by": json.dumps(made)}
            )
            measurements.keep(new, step, one, tables)
    for hook_point in hook_points:
        tables = folder.hook_points(root) / hook_point / "measurements"
        whole = {step: measurements.read(tables / f"{step}.nc", hook_point) for step in found[hook_point]}
        last = whole[max(whole)].attrs
        said = {key: last[key] for key in ("sum", "noise_floor") if key in last}
        join.write(
            folder.hook_points(root) / hook_point,
            whole,
            families,
            nulls,
            about | _of_hook_point(name, hook_point) | said,
        )
    print(f"{name}: {', '.join(hook_points)}: {len(todo)} measured now: {folder.hook_points(root)}/<name>/results.nc")


def table(plan: Plan, loaded: load.Loaded, step: int, hook_point: str, about: dict[str, Any]) -> xr.Dataset:
    """Every value of a hook point of a revision, batch by batch; of the last one the noise floor, as of the stream."""
    settings, probe, size = plan.config.measure, plan.windows.probe, plan.config.pretrained.batch_size
    context = plan.windows.places_GWT.shape[2]
    visible = visible_sets(np.ones((1, context, context), bool), plan.windows)

    def measured(g: int, size: int, plain: bool) -> Measured:
        x_ZNWTD = inside.of_hook_point(loaded, inputs_of_batch(plan, g), size, hook_point, plain)
        none = np.zeros((len(x_ZNWTD), 1, 1, 1, 1, 1), np.float32)
        inputs = Activations(x_ZNWTD, none, none)
        return extracted.measure_batch(g, inputs, {}, probe.picks_SGP[:, g], visible, settings)

    found = [measured(g, size, plain=False) for g in range(settings.batches)]
    if step == max(steps(plan.config.pretrained)):
        noise = guards.noise_floor(found[0].values, measured(0, 1 if size > 1 else 2, plain=True).values)
        about = about | {"noise_floor": json.dumps(noise)}
    return of_blocks(raw.table(extracted.joined(found).values, step, plan.windows.positions, about))


def _standing(
    root: pathlib.Path, hook_point: str, config: PretrainedConfig, made: dict[str, Any]
) -> dict[int, Standing]:
    settings, tables, revisions = (
        config.measure,
        folder.hook_points(root) / hook_point / "measurements",
        list(steps(config.pretrained)),
    )
    found = measurements.plan(tables, revisions, settings.families, settings.nulls, made, named(config), hook_point)
    for step in changed(config, found):
        found[step] = measurements.nothing(settings.families, settings.nulls)
    return found


def _of_hook_point(name: str, hook_point: str) -> dict[str, str]:
    return {
        "run": f"{name}, {hook_point}",
        "hook_point": hook_point,
        "hook_point_in_words": WORDS[hook_point],
        "layer_0": BLOCK,
    }
