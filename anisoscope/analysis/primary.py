"""Prespecified contrasts, named before any number was seen: a change, or equivalence within a
prespecified margin?

An experiment names them in `primary`, {name: {field: value}}, MOST of them at most; all else is
exploratory. What is named is kept in the experiment's config.json, and a run that has begun refuses
others.

There is a test of no change, Student's and two-sided; and where a margin is stated two one-sided
tests of a change as large as the margin (Schuirmann 1987), whose p is the larger of the two. Both
go by the contrast's own error and degrees of freedom. Holm's correction is over all tests of all
primary contrasts, with or without a value. The two hypotheses of one contrast, change = 0 and
|change| >= margin, cannot both be true, so that as many as there are contrasts are true at most: no
p is multiplied by more (Shaffer 1986). The intervals beside them are not corrected.
"""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from anisoscope.analysis.contrasts import COLUMNS, TASK, Change, change_between, factors, pairs
from anisoscope.analysis.loss_matched import STEPS
from anisoscope.analysis.run_summaries import numbers, pairing
from anisoscope.analysis.shapes import SHAPES
from anisoscope.measurement.intervals import LEVEL
from anisoscope.results.holm import holm_of
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import choose

MOST = 16
NEEDED, FURTHER = ("quantity", "before", "after"), ("at", "margin", "positions")
AT = ("last", "matched")  # the last checkpoint, or loss-matched
POSITIONS = ("all", "without_first")
AT_LAST = ("test_bits", "test_context_gain")  # beside the shapes
ROLE, ROLES = "role", ("primary", "exploratory")  # a column of contrasts
DIFFERS, WITHIN, BOTH, OPEN, UNTESTED, NOTHING = (
    "differs",
    "equivalent",
    "differs, by less than the margin",
    "inconclusive",
    "no p",
    "no value",
)
TESTS = ("p", "p_holm", "p_margin", "p_margin_holm")
READ = (
    "name",
    "at",
    "before",
    "after",
    "quantity",
    "positions",
    "margin",
    *Change._fields,
    *TESTS,
    "verdict",
)


def check_primary(primary: dict[str, dict[str, Any]], runs: list[str]) -> None:
    """Raise UserError, one line, where contrasts between these runs cannot be named so."""
    if len(primary) > MOST:
        raise UserError(
            f"primary names {len(primary)} contrasts, {MOST} at most: the others are exploratory"
        )
    for name, one in primary.items():
        where = f"primary.{name}"
        if missing := [field for field in NEEDED if field not in one]:
            raise UserError(f"{where} lacks {', '.join(missing)}")
        for field in one:
            choose(f"a field of {where}", field, (*NEEDED, *FURTHER))
        at = one.get("at", AT[0])
        choose(f"{where}.at", at, AT)
        choose(
            f"{where}.quantity",
            one["quantity"],
            (*SHAPES, *(AT_LAST if at == "last" else (STEPS,))),
        )
        choose(f"{where}.positions", one.get("positions", POSITIONS[0]), POSITIONS)
        margin = one.get("margin")
        if margin is not None and not (isinstance(margin, int | float) and 0 < margin < np.inf):
            raise UserError(
                f"{where}.margin is {margin!r}; a change above 0 in the units of {one['quantity']}"
            )
        if one.get("positions", POSITIONS[0]) != POSITIONS[0] and one["quantity"] not in SHAPES:
            raise UserError(
                f"{where}.positions is {one['positions']!r}; {one['quantity']} has no positions"
            )
        if one["before"] == one["after"]:
            raise UserError(f"{where}: before and after are both {one['before']!r}")
        for end in ("before", "after"):
            if not any(run == one[end] or run.startswith(f"{one[end]}_") for run in runs):
                raise UserError(
                    f"{where}.{end} is {one[end]!r}; no run of this experiment is named so"
                )


def loss_matched(primary: dict[str, dict[str, Any]]) -> set[frozenset[str]]:
    """The pairs of conditions of which something is asked that is loss-matched."""
    return {
        frozenset((one["before"], one["after"]))
        for one in primary.values()
        if one.get("at", AT[0]) == "matched"
    }


def table(
    primary: dict[str, dict[str, Any]], runs: xr.Dataset, matched: pd.DataFrame
) -> pd.DataFrame:
    """A row for each primary contrast; `runs` and `matched` as runs.nc and
    contrasts_loss_matched.csv hold them.

    NaN where there is no value, as of a loss-matched one before it was read, and no p where seeds
    are crossed: an interval of such seeds is not Student's.
    """
    rows = []
    for name, one in primary.items():
        about = {"name": name, "at": AT[0], "positions": POSITIONS[0], "margin": np.nan} | one
        change = (
            _at_last(runs, about) if about["at"] == "last" else _loss_matched(runs, matched, about)
        )
        rows.append(about | change._asdict() | _tests(change, about["margin"], _crossed(runs)))
    frame = pd.DataFrame(
        rows, columns=[name for name in READ if name not in ("p_holm", "p_margin_holm", "verdict")]
    )
    frame = frame.astype({"margin": float})
    stated = frame["margin"].notna()
    both = np.concatenate([frame["p"], frame.loc[stated, "p_margin"]]).astype(float)
    corrected = holm_of(both, len(frame))
    frame["p_holm"] = corrected[: len(frame)]
    frame["p_margin_holm"] = np.nan
    frame.loc[stated, "p_margin_holm"] = corrected[len(frame) :]
    frame["verdict"] = [
        verdict(*row)
        for row in frame[["change", "p_holm", "p_margin_holm"]].itertuples(index=False)
    ]
    return frame[list(READ)]


def _tests(change: Change, margin: float, crossed: bool) -> dict[str, float]:
    """p of no change, and of a change as large as the margin."""
    if crossed or not change.freedom or not np.isfinite(change.error):
        return {"p": np.nan, "p_margin": np.nan}
    with np.errstate(divide="ignore", invalid="ignore"):  # no scatter at all
        t, inside = np.array([abs(change.change), margin - abs(change.change)]) / change.error
    t = 0.0 if change.change == 0 else t
    return {"p": 2 * stats.t.sf(t, change.freedom), "p_margin": stats.t.sf(inside, change.freedom)}


def verdict(change: float, p: float, p_margin: float) -> str:
    """What the corrected p of both tests say."""
    if np.isnan(p):
        return NOTHING if np.isnan(change) else UNTESTED
    differs, within = (one < 1 - LEVEL for one in (p, p_margin))
    return BOTH if differs and within else DIFFERS if differs else WITHIN if within else OPEN


def _at_last(runs: xr.Dataset, about: dict[str, Any]) -> Change:
    wanted, labels = (
        (about["quantity"], about["positions"]),
        list(dict.fromkeys(runs["condition"].values)),
    )
    values = {one[:2]: one[2] for one in numbers(runs)}.get(wanted)
    if values is None or not {about["before"], about["after"]} <= {*labels}:
        return _no_change()
    apart = [name for name in TASK.get(about["quantity"], ()) if name in runs.coords]
    of_both = [
        {runs[name].values[runs["condition"] == about[end]][0] for end in ("before", "after")}
        for name in apart
    ]
    if any(len(values_there) > 1 for values_there in of_both):  # as bits of two objectives
        return _no_change()
    condition = np.array([labels.index(label) for label in runs["condition"].values])
    return change_between(
        values, condition, pairing(runs), *(labels.index(about[end]) for end in ("before", "after"))
    )


def _loss_matched(runs: xr.Dataset, matched: pd.DataFrame, about: dict[str, Any]) -> Change:
    """The row of the table; turned round where the experiment has the two in the other order."""
    wanted = about["before"], about["after"]
    for pair in pairs(runs, together=True):
        if set(pair.labels) == set(wanted):
            place = pair.about | {"quantity": about["quantity"], "positions": about["positions"]}
            alike = (matched[list(COLUMNS)] == pd.Series(place)[list(COLUMNS)]).all(axis=1)
            if alike.any():
                of_table = Change(*matched.loc[alike, list(Change._fields)].iloc[0])
                of_table = of_table._replace(
                    freedom=int(of_table.freedom), pairs=int(of_table.pairs)
                )
                if pair.labels != wanted:
                    of_table = of_table._replace(
                        change=-of_table.change, low=-of_table.high, high=-of_table.low
                    )
                return of_table
    return _no_change()


def _no_change() -> Change:
    return Change(*[np.nan] * 4, freedom=0, pairs=0)


def _crossed(runs: xr.Dataset) -> bool:
    """Whether seeds of two kinds are among those that runs are paired by."""
    return len(factors(np.unique(pairing(runs), axis=0))) > 1


def with_roles(
    frame: pd.DataFrame, primary: dict[str, dict[str, Any]], runs: xr.Dataset, at: str
) -> pd.DataFrame:
    """contrasts.csv or contrasts_loss_matched.csv, with what each row is: primary or
    exploratory.
    """
    named = {
        (
            frozenset((one["before"], one["after"])),
            one["quantity"],
            one.get("positions", POSITIONS[0]),
        )
        for one in primary.values()
        if one.get("at", AT[0]) == at
    }
    labels = {
        tuple(pair.about.values()): frozenset(pair.labels) for pair in pairs(runs, together=True)
    }
    places = frame[list(COLUMNS)].itertuples(index=False, name=None)
    roles = [ROLES[(labels.get(place[:4]), *place[4:]) not in named] for place in places]
    return frame.assign(**{ROLE: roles})


def format_lines(frame: pd.DataFrame) -> list[str]:
    """A line for each primary contrast that has a value, and one for those that have none."""
    known = frame[frame["verdict"] != NOTHING]
    lines = [
        f"primary, {row.name}: {row.quantity} {row.before} → {row.after} {WHERE[row.at]}: "
        f"{with_interval(row)}, {words(row)}"
        for row in known.itertuples(index=False)
    ]
    if len(known) < len(frame):
        lines.append(
            f"primary without value: {', '.join(frame.loc[frame['verdict'] == NOTHING, 'name'])}"
        )
    return lines


WHERE = {"last": "at the last checkpoint", "matched": "loss-matched"}


def with_interval(row: Any) -> str:
    """Of a single seed there is none."""
    interval = f" [{number(row.low)}, {number(row.high)}]" if np.isfinite(row.low) else ""
    return number(row.change) + interval


def words(row: Any) -> str:
    """The verdict with the margin and the p that it goes by, corrected."""
    if row.verdict == UNTESTED:
        return row.verdict
    margin = {WITHIN: f" within ± {row.margin:g}", BOTH: f" ({row.margin:g})"}.get(row.verdict, "")
    p = [f"p {_p(row.p_holm)}"] + [f"p of the margin {_p(row.p_margin_holm)}"] * bool(
        np.isfinite(row.margin)
    )
    return f"{row.verdict}{margin}; {', '.join(p)}"


def _p(p: float) -> str:
    return "< 0.001" if p < 0.001 else f"{p:.2g}"


def number(value: float) -> str:
    return (f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}").replace(
        "-", "\N{MINUS SIGN}"
    )
