"""Loss-matched contrasts: two conditions are read where all their runs have learned equally much,
not equally long.

The level of a contrast is the best gain over unigram (bits below the best answer without context, on the
validation windows) that all its runs reach in the constant part of their schedule: in the decay at
its end the rate is another. Where a schedule has no constant part, all steps after the warm-up are
taken. A run is read at the step at which it first reaches the level. One that never gains anything
has no value. Gain over unigram is itself a result of what is varied: a loss-matched difference is not
caused by what is varied alone.

Nor need its sign be the same at another level: contrasts at SHARES of that gain, a curve over
levels, tell. A quarter of it may be reached in the warm-up.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.analysis import run_summaries
from anisoscope.analysis.contrasts import COLUMNS, Change, contrasts, pairs
from anisoscope.analysis.shapes import shapes
from anisoscope.training.replay import Bracket

OPTIONAL = ("level", "without")  # columns beside those of contrasts.csv: bits; runs left out
STEPS = "steps_to_gain_over_unigram"
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the smaller of the gains: levels of contrasts_by_level.csv
SHARE = "share"  # its column
GAIN = "gain_over_unigram_there"  # bits: of the first step with the level, which may lie above it
Lines = list[dict[str, Any]]  # of a training's log


class Matched(NamedTuple):
    labels: tuple[str, str]  # of the two conditions
    about: dict[str, str]  # the columns that name a contrast, but for quantity and positions
    level: float  # bits
    runs: list[str]
    without: dict[str, str]  # runs that have no value, and why
    share: float = 1.0  # of what all of them reach


def plan(runs: xr.Dataset, best: dict[str, float | None], share: float = 1.0) -> list[Matched]:
    """Set the level of every contrast of settings but the text: a share of what all runs reach.

    An experiment of two conditions has one contrast, whatever differs between them.

    Args:
        runs: All runs joined.
        best: The largest gain over unigram of each run, in bits.
        share: Of the smallest of these.
    """
    planned = []
    for pair in pairs(runs, together=True):
        if run_summaries.CORPUS in pair.changed:
            continue
        # those before first: whoever is left, joined anew they are contrasted in this order
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
        level = share * min((best[name] for name in left), default=np.nan)
        planned.append(Matched(pair.labels, pair.about, level, left, without, share))
    return planned


def best_gain(lines: Lines, first: int, last: int) -> float | None:
    """Return the best gain over unigram at the validations of these steps; None where none tells it."""
    gains = [gain for step, gain in _gains(lines) if first <= step <= last]
    return max(gains, default=None)


def bracket(lines: Lines, level: float) -> Bracket:
    """Return the first validation at which the level is reached, and the one before it."""
    gains = _gains(lines)
    place = next(place for place, (_, gain) in enumerate(gains) if gain >= level)
    return Bracket(gains[max(place - 1, 0)][0], gains[place][0])


def _gains(lines: Lines) -> list[tuple[int, float]]:
    valid = (line for line in lines if line["kind"] == "valid" and "gain_over_unigram" in line)
    return sorted({line["step"]: line["gain_over_unigram"] for line in valid}.items())


def contrast(matched: Matched, tables: dict[str, xr.Dataset]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the contrast, as in contrasts.csv, and a row for each run.

    The noise is that of these runs alone: other contrasts have another level. The steps that it
    took to the level are a quantity too. `tables` end at the step of each run's crossing.
    """
    rows = []
    for name in (*matched.runs, *matched.without):
        row = {"level": matched.level, "run": name, "why_not": matched.without.get(name, "")}
        if name in tables:
            of_all = shapes(tables[name]).sel(positions="all")
            row |= {STEPS: int(tables[name].step[-1]), GAIN: tables[name].attrs.get(GAIN, np.nan)}
            row |= {key: value.item() for key, value in of_all.items()}
        rows.append(matched.about | row)
    frame = pd.DataFrame(columns=[*COLUMNS, *Change._fields])
    if tables:
        joined = run_summaries.join(tables, {name: {} for name in tables})
        steps = [int(table.step[-1]) for table in tables.values()]
        words = {"long_name": "training steps to the gain over unigram", "units": "step"}
        frame = contrasts(joined.assign({STEPS: ("run", steps, words)}), together=True)
    if frame.empty:  # one of the two has no run left: the table says so
        nothing = dict.fromkeys(Change._fields, np.nan) | {"freedom": 0, "pairs": 0}
        frame = pd.DataFrame([{"quantity": STEPS, "positions": "all"} | nothing])
    without = ", ".join(matched.without)
    frame = frame.assign(**matched.about, level=matched.level, without=without)
    return frame[[*COLUMNS, *Change._fields, *OPTIONAL]], pd.DataFrame(rows)
