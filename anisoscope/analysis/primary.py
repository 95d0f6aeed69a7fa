"""Prespecified contrasts: tests of a change, or of equivalence within a prespecified margin.

An experiment names them in `primary`, {name: {field: value}}, before any result is known; all
other contrasts are exploratory. A run that has begun rejects other contrasts.

The test of no change is Student's, two-sided. With a margin, two one-sided tests of a change as
large as the margin (Schuirmann 1987) are added, whose p is the larger of the two. Of a contrast's
two hypotheses at most one is true, so that Holm's correction multiplies no p by more than the
number of contrasts (Shaffer 1986). docs/explanation/statistics.md has more.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from anisoscope.analysis.contrasts import (
    CONTRAST_COLUMNS,
    STEPS,
    Change,
    contrast_conditions,
    factors,
    pairs,
)
from anisoscope.analysis.run_summaries import pairing
from anisoscope.analysis.shapes import SHAPES
from anisoscope.engine.intervals import LEVEL, holm_of
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import choose

AT = ("last", "matched")  # the last checkpoint, or loss-matched
AT_LAST = ("test_bits", "test_gain_over_unigram")  # in addition to the shapes
ROLE, ROLES = "role", ("primary", "exploratory")  # a column of contrasts
DIFFERS, WITHIN, BOTH = "differs", "equivalent", "differs, by less than the margin"
OPEN, UNTESTED, NOTHING = "inconclusive", "no p", "no value"
WHERE = {"last": "at the last checkpoint", "matched": "loss-matched"}
TESTS = ("p", "p_holm", "p_margin", "p_margin_holm")
READ = (
    *("name", "at", "before", "after", "quantity", "positions", "margin"),
    *(*Change._fields, *TESTS, "verdict"),
)
CONTRAST_DEFAULTS = {"at": "last", "positions": "all", "margin": np.nan}
Named = dict[str, dict[str, Any]]  # the contrasts of an experiment, by name
NO_CHANGE = Change(*[np.nan] * 4, freedom=0, pairs=0)


def check_primary(primary: Named, runs: list[str]) -> None:
    """Raise UserError if a primary contrast is invalid for these runs."""
    for name, contrast in primary.items():
        where, needed = f"primary.{name}", ("quantity", "before", "after")
        if missing := [field for field in needed if field not in contrast]:
            raise UserError(f"{where} lacks {', '.join(missing)}; add each field")
        for field in contrast:
            choose(f"a field of {where}", field, (*needed, *CONTRAST_DEFAULTS))
        full = CONTRAST_DEFAULTS | contrast
        choose(f"{where}.at", full["at"], AT)
        others = AT_LAST if full["at"] == "last" else (STEPS,)
        choose(f"{where}.quantity", full["quantity"], (*SHAPES, *others))
        choose(f"{where}.positions", full["positions"], POSITION_SETS)
        if not contrast.get("margin", 1) > 0:
            raise UserError(f"{where}.margin is {contrast['margin']!r}; pass a positive change")
        for end in (full["before"], full["after"]):
            if not any(run == end or run.startswith(f"{end}_") for run in runs):
                raise UserError(f"{where} names {end!r}, but this experiment has no such run")


def primary_table(primary: Named, runs: xr.Dataset, matched: pd.DataFrame) -> pd.DataFrame:
    """Test each primary contrast.

    Returns:
        A row for each contrast, with the columns READ. NaN without a value, such as a loss-matched
        contrast that was not computed yet. No p-value for crossed seeds, whose interval is not
        Student's.
    """
    rows, condition = [], runs["condition"].values
    named = {contrast["quantity"] for contrast in primary.values()}
    last = contrast_conditions(runs.drop_vars({*runs} - named), several=True)
    for name, contrast in primary.items():
        attributes = {"name": name} | CONTRAST_DEFAULTS | contrast
        ends = np.isin(condition, [attributes["before"], attributes["after"]])
        crossed = len(factors(np.unique(pairing(runs.isel(run=ends)), axis=0))) > 1
        change = _find(last if attributes["at"] == "last" else matched, runs, attributes)
        rows.append(attributes | change._asdict() | _tests(change, attributes["margin"], crossed))
    frame = pd.DataFrame(rows, columns=list(READ)).astype({"margin": float})
    stated = frame["margin"].notna()
    both = np.concatenate([frame["p"], frame.loc[stated, "p_margin"]]).astype(float)
    frame["p_holm"], margins = np.split(holm_of(both, len(frame)), [len(frame)])
    frame["p_margin_holm"] = pd.Series(margins, frame.index[stated])
    p = frame[["change", "p_holm", "p_margin_holm"]]
    return frame.assign(verdict=[judge_contrast(*row) for row in p.itertuples(index=False)])


def _tests(change: Change, margin: float, crossed: bool) -> dict[str, float]:
    """Return p of no change, and of a change as large as the margin."""
    if crossed or not change.freedom or not 0 < change.error < np.inf:  # 0: no variance
        return {"p": np.nan, "p_margin": np.nan}
    t, inside = np.array([abs(change.change), margin - abs(change.change)]) / change.error
    return {"p": 2 * stats.t.sf(t, change.freedom), "p_margin": stats.t.sf(inside, change.freedom)}


def judge_contrast(change: float, p: float, p_margin: float) -> str:
    """Say what the corrected p of both tests mean."""
    if np.isnan(p):
        return NOTHING if np.isnan(change) else UNTESTED
    differs, within = (value < 1 - LEVEL for value in (p, p_margin))
    return BOTH if differs and within else DIFFERS if differs else WITHIN if within else OPEN


def _find(changes: pd.DataFrame, runs: xr.Dataset, attributes: dict[str, Any]) -> Change:
    """Find a contrast in a table; turn it round where the experiment has the other order."""
    ends = attributes["before"], attributes["after"]
    for pair in pairs(runs, several=True):
        place = pair.attributes | {
            "quantity": attributes["quantity"],
            "positions": attributes["positions"],
        }
        equal = (changes[list(CONTRAST_COLUMNS)] == pd.Series(place)[list(CONTRAST_COLUMNS)]).all(
            axis=1
        )
        if {*pair.labels} == {*ends} and equal.any():
            change = Change(*changes.loc[equal, list(Change._fields)].iloc[0])
            change = change._replace(freedom=int(change.freedom), pairs=int(change.pairs))
            if pair.labels == ends:
                return change
            return change._replace(change=-change.change, low=-change.high, high=-change.low)
    return NO_CHANGE


def with_roles(frame: pd.DataFrame, primary: Named, runs: xr.Dataset, at: str) -> pd.DataFrame:
    """Add a column to a table of contrasts: primary or exploratory."""
    named = {
        (
            frozenset((attributes["before"], attributes["after"])),
            attributes["quantity"],
            attributes["positions"],
        )
        for attributes in (CONTRAST_DEFAULTS | contrast for contrast in primary.values())
        if attributes["at"] == at
    }
    labels = {
        tuple(pair.attributes.values()): frozenset(pair.labels)
        for pair in pairs(runs, several=True)
    }
    places = frame[list(CONTRAST_COLUMNS)].itertuples(index=False, name=None)
    roles = [ROLES[(labels.get(place[:4]), *place[4:]) not in named] for place in places]
    return frame.assign(**{ROLE: roles})
