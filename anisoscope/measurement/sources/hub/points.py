"""A table of single points of a pretrained model, as measurement/sources/points.py has it of ours: points/<step>.nc."""

import json
import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from anisoscope.config.pretrained import steps
from anisoscope.measurement.sources.hub.load import digest_of
from anisoscope.measurement.sources.hub.reading.extract import activations
from anisoscope.measurement.sources.hub.reading.windows import at_positions
from anisoscope.measurement.sources.hub.revision import Plan, named, opened, place_of, recorded, words
from anisoscope.measurement.sources.points import FOLDER, of_clouds, table
from anisoscope.measurement.tables import files, measurements
from anisoscope.measurement.tables.raw import LAYOUT
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar
from anisoscope.utils.stop import Stop

SHARE = "of the tokens of the text that windows are drawn from; NaN: the text has none, or several share a position"


def check(plan: Plan, root: pathlib.Path, made: dict[str, Any]) -> None:
    """Raise UserError, before any work is done, where there can be no such table."""
    if getattr(plan.windows, "shapes", None):
        raise UserError("measure.points_table is for models whose blocks all have one width: leave it out")
    measurements.check(root / FOLDER, made)


def measure(
    plan: Plan,
    root: pathlib.Path,
    called: Callable[[np.ndarray], list[str]],
    about: dict[str, Any],
    made: dict[str, Any],
    stop: Stop,
) -> None:
    """Write points/<step>.nc for every revision that has none, or has changed: the first batch, all positions."""
    config, tables, probe = plan.config, root / FOLDER, plan.windows.probe
    todo = [step for step in steps(config.pretrained) if _missing(plan, step, tables / f"{step}.nc")]
    compute, places, picks_P = jax.jit(of_clouds), places_of(plan, called), probe.picks_SGP[0, 0]
    for step in bar(todo, f"{plan.name}: points", "revision"):
        stop.check(f"{plan.name}: stopped before the points of step {step}")
        loaded = opened(plan, place_of(config, step))
        size = config.pretrained.batch_size
        read = activations(loaded, probe.tokens_GWT[:1], size, heads=False, reported=plan.reported).resid_ZNWTD[0]
        with jax.default_matmul_precision("highest"):
            found = jax.device_get(compute(read.reshape(len(read), -1, read.shape[-1])[:, picks_P]))
        own = recorded(loaded.about) | {"model": words(loaded, config, plan.windows), "step": step}
        own |= {"made_by": json.dumps(made), "layout": LAYOUT}
        files.write(table(found, places, about | own), tables / f"{step}.nc")
    print(f"{plan.name}: points of {len(steps(config.pretrained))} ({len(todo)} now): {tables}/<step>.nc")


def _missing(plan: Plan, step: int, path: pathlib.Path) -> bool:
    if not path.exists():
        return True
    table_there = measurements.read(path, measurements.POINTS, named(plan.config))
    place = place_of(plan.config, step)
    return place.local and digest_of(place) != table_there.attrs["weights_sha256"]


def places_of(plan: Plan, called: Callable[[np.ndarray], list[str]]) -> dict[str, Any]:
    """Where every point stands, and what stands there: a token and its frequency, or of no text the window."""
    windows, picks_P = plan.windows, plan.windows.probe.picks_SGP[0, 0]
    window_P, time_P = np.divmod(picks_P, windows.places_GWT.shape[2])
    found = {"window": ("point", window_P.astype(np.int32)), "position": ("point", time_P.astype(np.int32))}
    id_P = windows.places_GWT[0].ravel()[picks_P]
    counts_V = getattr(windows, "counts_V", None)
    if counts_V is None:
        return found | {"token_id": ("point", id_P), "token": ("point", called(id_P))}
    tokens_PR = at_positions(windows.probe.tokens_GWT[0], windows.rate).reshape(-1, windows.rate)[picks_P]
    names = np.array(called(tokens_PR.ravel()), object).reshape(tokens_PR.shape)
    names = ["".join(row) if time else row[0] for row, time in zip(names, time_P, strict=True)]
    counts_P = np.append(counts_V, np.zeros(max(0, id_P.max() + 1 - len(counts_V))))[id_P]
    alone = (counts_P > 0) & (windows.rate == 1)
    share_P = np.where(alone, counts_P / counts_V.sum(), np.nan)[None]
    said = {"long_name": "share of the text", "formula": SHARE}
    return found | {
        "ngram": [1],
        "token_id": ("point", id_P),
        "token": ("point", names),
        "frequency": (("ngram", "point"), share_P, said),
    }
