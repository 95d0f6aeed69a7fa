"""Loss-matched contrasts: compare two conditions at equal gain over unigram, not at equal steps.

The level of a contrast is the best gain over unigram (bits below the best answer without context,
on the validation windows) that all its runs reach in the constant part of their schedule, before
the final decay. If a schedule has no constant part, all steps after the warm-up count. A run is
read at the step at which it first reaches the level. A run that never gains anything has no value.
Gain over unigram is itself an outcome of the varied setting, so a loss-matched difference is not
caused by that setting alone. The sign of a contrast may differ
at another level.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.analysis import run_summaries
from anisoscope.analysis.contrasts import COLUMNS, Change, contrasts, pairs
from anisoscope.analysis.shapes import shapes
from anisoscope.training.replay import Bracket

OPTIONAL = ("level", "without")  # columns besides those of contrasts.csv: bits; skipped runs
STEPS = "steps_to_gain_over_unigram"
GAIN = "gain_over_unigram_there"  # bits: of the first step with the level, which may lie above it
Lines = list[dict[str, Any]]  # of a training's log


class Matched(NamedTuple):
    about: dict[str, str]  # the columns that name a contrast, without quantity and positions
    level: float  # bits
    runs: list[str]
    without: dict[str, str]  # runs without a value, and why


def plan(runs: xr.Dataset, best: dict[str, float | None]) -> list[Matched]:
    """Set the level of every contrast, except those of the text.

    An experiment of two conditions has a single contrast, whatever differs between them. `best` is
    the largest gain over unigram of each run, in bits.
    """
    planned = []
    for pair in pairs(runs, jointly=True):
        if run_summaries.CORPUS in pair.changed:
            continue
        # runs of `before` first: joined again, the conditions are contrasted in this order
        names = [
            str(name)
            for label in pair.labels
            for name in runs.run.values[runs["condition"].values == label]
        ]
        without = {name: "its log has no gain over unigram" for name in names if best[name] is None}
        without |= {
            name: "it never gains anything"
            for name in names
            if name not in without and not best[name] > 0
        }
        left = [name for name in names if name not in without]
        level = min((best[name] for name in left), default=np.nan)
        planned.append(Matched(pair.about, level, left, without))
    return planned


def best_gain(lines: Lines, first: int, last: int) -> float | None:
    """Return the best gain over unigram at validations of these steps; None if none is logged."""
    gains = [gain for step, gain in _gains(lines) if first <= step <= last]
    return max(gains, default=None)


def bracket(lines: Lines, level: float) -> Bracket:
    """Return the first validation that reaches the level, and the validation before it."""
    gains = _gains(lines)
    place = next(place for place, (_, gain) in enumerate(gains) if gain >= level)
    return Bracket(gains[max(place - 1, 0)][0], gains[place][0])


def _gains(lines: Lines) -> list[tuple[int, float]]:
    valid = (line for line in lines if line["kind"] == "valid" and "gain_over_unigram" in line)
    return sorted({line["step"]: line["gain_over_unigram"] for line in valid}.items())


def contrast(matched: Matched, tables: dict[str, xr.Dataset]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the contrast, as in contrasts.csv, and a row for each run.

    The noise is estimated from these runs alone, since other contrasts have another level. The
    steps to the level are a quantity too. `tables` end at each run's crossing of the level.
    """
    rows = []
    for name in (*matched.runs, *matched.without):
        row = {"level": matched.level, "run": name, "why_not": matched.without.get(name, "")}
        if name in tables:
            values = shapes(tables[name]).sel(positions="all")
            row |= {STEPS: int(tables[name].step[-1]), GAIN: tables[name].attrs.get(GAIN, np.nan)}
            row |= {key: value.item() for key, value in values.items()}
        rows.append(matched.about | row)
    frame = pd.DataFrame(columns=[*COLUMNS, *Change._fields])
    if tables:
        joined = run_summaries.join(tables, {name: {} for name in tables})
        steps = [int(table.step[-1]) for table in tables.values()]
        words = {"long_name": "training steps to the gain over unigram", "units": "step"}
        frame = contrasts(joined.assign({STEPS: ("run", steps, words)}), jointly=True)
    if frame.empty:  # a condition has no run left, which the table records
        nothing = dict.fromkeys(Change._fields, np.nan) | {"freedom": 0, "pairs": 0}
        frame = pd.DataFrame([{"quantity": STEPS, "positions": "all"} | nothing])
    without = ", ".join(matched.without)
    frame = frame.assign(**matched.about, level=matched.level, without=without)
    return frame[[*COLUMNS, *Change._fields, *OPTIONAL]], pd.DataFrame(rows)
