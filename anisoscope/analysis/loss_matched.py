"""Loss-matched contrasts: two conditions are read where all their runs have learned equally much,
not equally long.

The level of a contrast is the best context gain (bits below the best answer without context, on the
validation windows) that all its runs reach in the constant part of their schedule: in the decay at
its end the rate is another. Where a schedule has no constant part, all steps after the warm-up are
taken. A run is read at the step at which it first reaches the level. One that never gains anything
has no value. Context gain is itself a result of what is varied: a loss-matched difference is not
caused by what is varied alone.

Nor need its sign be the same at another level: contrasts at SHARES of that gain, a curve over
levels, tell. A quarter of it may be reached in the warm-up.
"""

from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.analysis import run_summaries as joining
from anisoscope.analysis.contrasts import COLUMNS, Change, contrasts, pairs
from anisoscope.analysis.shapes import shapes
from anisoscope.training.replay import Bracket

# columns beside those of contrasts.csv: bits, and runs that have no value
FURTHER = ("level", "without")
STEPS = "steps_to_context_gain"
SHARES = (0.25, 0.5, 0.75, 1.0)  # of the smaller of the gains: levels of contrasts_by_level.csv
SHARE = "share"  # its column
GAIN = "context_gain_there"  # bits: of the first step with the level, which may lie above it


class Matched(NamedTuple):
    labels: tuple[str, str]  # of the two conditions
    about: dict[str, str]  # the columns that name a contrast, but for quantity and positions
    level: float  # bits
    runs: list[str]
    without: dict[str, str]  # runs that have no value, and why
    share: float = 1.0  # of what all of them reach


def plan(runs: xr.Dataset, best: dict[str, float | None], share: float = 1.0) -> list[Matched]:
    """Of every contrast of settings but the text, its level; `best` is the largest context gain of
    each run.

    A level is what all runs of the contrast reach, or a share of it.

    An experiment of two conditions has one contrast, whatever differs between them.
    """
    planned = []
    for one in pairs(runs, together=True):
        if joining.CORPUS in one.changed:
            continue
        # those before first: whoever is left, joined anew they are contrasted in this order
        names = [
            str(name)
            for label in one.labels
            for name in runs.run.values[runs["condition"].values == label]
        ]
        without = {name: why for name in names if (why := _without(best[name]))}
        left = [name for name in names if name not in without]
        level = share * min((best[name] for name in left), default=np.nan)
        planned.append(Matched(one.labels, one.about, level, left, without, share))
    return planned


def _without(best: float | None) -> str:
    if best is None:
        return "its log has no context gain"
    return "" if best > 0 else "it never gains anything"


def best_gain(lines: list[dict[str, Any]], first: int, last: int) -> float | None:
    """At the validations of these steps; None where none tells it."""
    gains = [gain for step, gain in _gains(lines) if first <= step <= last]
    return max(gains, default=None)


def bracket(lines: list[dict[str, Any]], level: float) -> Bracket:
    """The first validation at which the level is reached, and the one before it."""
    gains = _gains(lines)
    place = next(place for place, (_, gain) in enumerate(gains) if gain >= level)
    return Bracket(gains[max(place - 1, 0)][0], gains[place][0])


def _gains(lines: list[dict[str, Any]]) -> list[tuple[int, float]]:
    valid = (line for line in lines if line["kind"] == "valid" and "context_gain" in line)
    return sorted({line["step"]: line["context_gain"] for line in valid}.items())


def contrast(matched: Matched, tables: dict[str, xr.Dataset]) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The contrast, as in contrasts.csv, and a row for each run; `tables` end at the step of each
    run's crossing.

    The noise is that of these runs alone: other contrasts have another level. The steps that it
    took to the level are a quantity too.
    """
    rows = []
    for name in (*matched.runs, *matched.without):
        about = matched.about | {
            "level": matched.level,
            "run": name,
            "why_not": matched.without.get(name, ""),
        }
        if name in tables:
            of_all = shapes(tables[name]).sel(positions="all")
            about |= {STEPS: int(tables[name].step[-1]), GAIN: tables[name].attrs.get(GAIN, np.nan)}
            about |= {key: value.item() for key, value in of_all.items()}
        rows.append(about)
    without = ", ".join(matched.without)
    frame = pd.DataFrame(columns=[*COLUMNS, *Change._fields])
    if tables:
        joined = joining.join(tables, {name: {} for name in tables})
        steps = [int(table.step[-1]) for table in tables.values()]
        joined[STEPS] = (
            "run",
            steps,
            {"long_name": "training steps to the context gain", "units": "step"},
        )
        frame = contrasts(joined, together=True)
    if frame.empty:  # one of the two has no run left: the table says so
        nothing = dict.fromkeys(Change._fields, np.nan) | {"freedom": 0, "pairs": 0}
        frame = pd.DataFrame([{"quantity": STEPS, "positions": "all"} | nothing])
    frame = frame.assign(**matched.about, level=matched.level, without=without)
    return frame[[*COLUMNS, *Change._fields, *FURTHER]], pd.DataFrame(rows)
