"""Figures of an experiment: its conditions, contrasts between settings, verdicts on claims."""

import json
from itertools import cycle
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.analysis.claims.claim_entries import CLAIMS
from anisoscope.analysis.claims.verdicts import CONTRAST, VERDICTS
from anisoscope.analysis.contrasts import STEPS, TELLING
from anisoscope.analysis.primary import (
    BOTH,
    DIFFERS,
    NOTHING,
    OPEN,
    ROLE,
    ROLES,
    UNTESTED,
    WITHIN,
    format_interval,
)
from anisoscope.analysis.shapes import SHAPES
from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.plot.run_tables import Run, caption, display_name
from anisoscope.training.optimizer import SCHEDULES

SCORES = {  # what is contrasted and is no shape: name and units
    "test_bits": ("test score", "bits"),
    "test_gain_over_unigram": ("gain over unigram (test)", "bits"),
    STEPS: ("steps to the gain over unigram", "steps"),
}
CONTRASTED = (
    *("bell_blocks", "growth", "cosine_growth", "drift_growth"),
    *("expansion", "compression", "entropy_decrease", "sink"),
)
CONSTANT = {name for name, schedule in SCHEDULES.items() if schedule.constant}
ACROSS = 4  # panels beside each other
PAIR = ["setting", "held", "before", "after"]
INTERVAL = f"{LEVEL * 100:.0f} % interval"


class Compared(NamedTuple):
    """The conditions of an experiment, each with all its seeds, and the tables that compare them."""

    runs: dict[str, Run]
    changes: pd.DataFrame  # contrasts.csv
    matched: pd.DataFrame | None = None  # contrasts_loss_matched.csv
    primary: pd.DataFrame | None = None  # primary.csv


def shape_name(name: str) -> tuple[str, str]:
    """Return the name and units of a shape or score."""
    if name in SHAPES:
        return SHAPES[name].long_name, SHAPES[name].units
    return SCORES.get(name, (name.replace("_", " "), "1"))  # a kept table has quantities of old


def contrasts(compared: Compared) -> Figure | None:
    """Draw each shape's change when one setting changes, paired by seed."""
    noise = f"variance pooled over settings where seeds are fewer than {TELLING}"
    return _contrasts(compared.runs, compared.changes, "last checkpoint", noise)


def contrasts_loss_matched(compared: Compared) -> Figure | None:
    """Draw the changes between conditions at equal gain over unigram."""
    if compared.matched is None or compared.matched.empty:
        return None
    levels = _with_value(compared.matched)["level"]
    if levels.empty:  # no run of any contrast has a value
        return None
    ends = dict.fromkeys(f"{level:.2f}" for level in (levels.min(), levels.max()))
    lists = (names.split(", ") for names in compared.matched.without if names)
    without = dict.fromkeys(name for names in lists for name in names)
    configs = (json.loads(run.results.attrs["config"]) for run in compared.runs.values())
    constant = {config["train"]["schedule"] for config in configs} <= CONSTANT
    part = "in the constant part of the schedule" if constant else "after the warm-up"
    further = (
        f"Each contrast at the best gain over unigram that all its runs reach {part}: {' to '.join(ends)} bits."
        + f" Without value: {', '.join(without)}." * bool(without)
    )
    noise = "variance of its own runs"
    return _contrasts(compared.runs, compared.matched, "loss-matched", noise, further)


def _contrasts(
    runs: dict[str, Run], changes: pd.DataFrame, where: str, noise: str, further: str = ""
) -> Figure | None:
    """Draw a panel per shape, a row per contrast, grouped by the setting that changes."""
    changes = _with_value(changes)
    names = [name for name in CONTRASTED if name in set(changes.quantity)]
    if not names:
        return None
    rows, colors = contrast_rows(changes), cycle(style.OKABE_ITO)
    places = {key: -place for place, key in enumerate(rows)}
    color = {key: next(colors) for key in rows if isinstance(key, str)}
    columns, deep = min(ACROSS, len(names)), -(-len(names) // ACROSS)
    figure = style.new_figure(style.PAGE, 0.7 + deep * (0.6 + 0.135 * len(rows)))
    axes = figure.subplots(deep, columns, sharey=True, squeeze=False)
    for ax, name in zip(axes.flat, names, strict=False):
        for row in changes[changes.quantity == name].itertuples(index=False):
            place = places[row.setting, row.held, row.before, row.after]
            filled = row.low > 0 or row.high < 0
            style.draw_row(ax, place, row.change, [row.low, row.high], color[row.setting], filled)
        ax.axvline(0, color="0.5", linewidth=0.8, zorder=1)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        words, units = shape_name(name)
        text = style.wrap(words, 1.15, style.SMALL) + f"\n({units})" * (units != "1")
        ax.set_title(text, fontsize=style.SMALL)
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        style.name_rows(ax, [*rows.values()], [isinstance(key, str) for key in rows], 6)
    style.title(figure, f"Change when one setting changes, {where}, all positions: exploratory")
    shown = f"The change of each shape (analysis/shapes.csv) when one setting changes, {where}."
    first = int((changes[ROLE] == ROLES[0]).sum()) if ROLE in changes else 0
    but = f" but for {first}, which the figure primary_contrasts has" * bool(first)
    sample = _format_sample(changes, noise)
    caption(figure, runs, shown, f"{sample} Exploratory{but}. {further}".strip())
    return figure


def _with_value(changes: pd.DataFrame) -> pd.DataFrame:
    """Select the shown shapes with a value."""
    shown = (changes.positions == "all") & changes.quantity.isin(CONTRASTED)
    return changes[shown & np.isfinite(changes.change)]


def contrast_rows(changes: pd.DataFrame) -> dict[str | tuple[str, ...], str]:
    """Name each setting, then its contrasts, with the settings held equal if they vary."""
    rows: dict[str | tuple[str, ...], str] = {}
    for setting, group in changes.groupby("setting", sort=False):
        rows[setting] = f"{setting.rpartition('.')[2].replace('_', ' ')} changes"
        for pair in group[PAIR].itertuples(index=False, name=None):
            rows[pair] = format_pair(pair, group.held.nunique() > 1)
    return rows


def format_pair(pair: tuple[str, ...], with_held: bool) -> str:
    _, held, before, after = pair
    return f"{display_name(before)} → {display_name(after)}" + f" ({held})" * bool(
        held and with_held
    )


def _format_sample(changes: pd.DataFrame, noise: str) -> str:
    """Format the number of paired runs, and the intervals that they give."""
    pairs = " to ".join(map(str, dict.fromkeys([changes.pairs.min(), changes.pairs.max()])))
    known = int(np.isfinite(changes.low).sum())
    if not known:
        return f"Pairs of runs: {pairs}; no interval."
    chance = f"chance alone puts {100 * (1 - LEVEL):.0f} % of them off 0"
    read = f"{INTERVAL}, {noise}, not corrected for the {known} comparisons ({chance})"
    bare = " Bare: no interval." * (known < len(changes))
    return f"Pairs of runs: {pairs}. Bars: {read}. Filled: 0 lies outside.{bare}"


SETTLED = (DIFFERS, BOTH, WITHIN)  # drawn filled; what is open is hollow
AT = {"last": "last checkpoint", "matched": "loss-matched"}
ENDS = ["before", "after", "at", "positions"]
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30)
COLORS = dict(zip(VERDICTS, ("#0072B2", "#D55E00", "0.25", "0.65"), strict=True))
LOW_BAR = "Low bars, which nearly every trained model passes"
EFFECTS_KEY = (
    "Right of the shade: as claimed. Left: the opposite. What is claimed to be small (flat, stable, linear) has its "
    "sign reversed: as claimed is in the shade. "
    "Bars: 95 % intervals, or ranges of five seeds; filled: p < 0.05 after correction over all. Right: numbers of "
    "models with each verdict, also where nothing could be tested. Beyond ± 38 at the edge."
)


def primary_contrasts(compared: Compared) -> Figure | None:
    """Draw the primary contrasts, with the experiment's caption."""
    table = compared.primary
    if table is None or table.empty or (table["verdict"] == NOTHING).all():
        return None
    figure, known = forest(table), table[table["verdict"] != NOTHING]
    without = ", ".join(table.loc[table["verdict"] == NOTHING, "name"])
    shown = (
        "Change from one condition to another: "
        f"the {len(table)} contrasts prespecified before any number was seen."
        + f" Without value: {without}."
        * bool(without)
    )
    pairs = " to ".join(map(str, dict.fromkeys([known["pairs"].min(), known["pairs"].max()])))
    bars = (
        f"Bars: {LEVEL * 100:.0f} % interval, not corrected, {pairs} pairs of runs. Verdicts: "
        f"p < {1 - LEVEL:.2g}, after Holm over all tests; filled where they settle something. "
        "Shaded: prespecified margin of equivalence. Without a margin there are numbers alone."
    )
    caption(figure, compared.runs, shown, bars)
    return figure


def forest(table: pd.DataFrame) -> Figure:
    """Draw a row for each contrast under its conditions: change and interval over its margin."""
    table = table[table["verdict"] != NOTHING]
    groups = [*table.groupby(ENDS, sort=False)]
    alone = table["quantity"].nunique() == 1 and len(table) == len(groups)
    figure = style.new_figure(style.PAGE, 1.3 + 0.2 * (len(table) + len(groups) * (not alone)))
    ax = figure.subplots()
    names = {}  # of rows and of headings, which are bold
    for pair, rows in groups:
        heading = _format_heading(pair, table["at"].nunique() > 1)
        names |= {} if alone else {(heading,): True}
        for row in rows.itertuples(index=False):
            _draw_change(ax, row, -len(names))
            names[heading, row.quantity] = False
    labels = [key[0] if alone or bold else _format_quantity(key[1]) for key, bold in names.items()]
    sizes = table[["change", "low", "high"]].abs().div(table["margin"], axis=0)
    widest = 1.3 * max(3.0, float(np.nan_to_num(sizes.max(axis=None))))
    change = _format_quantity(table["quantity"].iloc[0]) if alone else "change"
    style.name_rows(ax, labels, [*names.values()])
    _ratio_axis(ax, widest, f"{change}, in units of the margin of equivalence (shaded)")
    counts = {
        "differ from 0": table["verdict"].isin((DIFFERS, BOTH)).sum(),
        "equivalent to 0": (table["verdict"] == WITHIN).sum(),
        "inconclusive": table["verdict"].isin((OPEN, UNTESTED)).sum(),
    }
    parts = [f"{count} {verdict}" for verdict, count in counts.items() if count]
    ax.set_title(f"of {len(table)}: {', '.join(parts)}", fontsize=style.SMALL)
    where = f", {AT[table['at'].iloc[0]]}" * (table["at"].nunique() == 1)
    style.title(figure, f"Prespecified changes{where}")
    return figure


def _ratio_axis(ax: Axes, widest: float, label: str, shade: str = "0.9", linear: float = 1.2):
    """Show ratios to a bound, linear and shaded within ± 1, logarithmic outside."""
    ax.axvspan(-1, 1, color=shade, linewidth=0, zorder=0)
    ax.axvline(0, color="0.5", linewidth=0.8, zorder=1)
    ax.set_xscale("symlog", linthresh=1, linscale=linear)
    ax.set_xlim(-widest, widest)
    marks = [tick for tick in TICKS if abs(tick) < widest]
    ax.set_xticks(marks, [f"{tick:g}".replace("-", "−") for tick in marks])
    ax.minorticks_off()
    ax.set_xlabel(label, fontsize=style.SMALL)


def _draw_change(ax: Axes, row, place: int) -> None:
    """Draw interval, mark and numbers; the mark is filled if the verdict is decided."""
    value, *ends = np.array([row.change, row.low, row.high]) / row.margin
    look = {"marker": "s" if row.verdict == WITHIN else "o", "markersize": 4, "linewidth": 1.1}
    settled = row.verdict in SETTLED
    style.draw_row(ax, place, value, ends, "0.15", settled, label=row.verdict, **look)
    right = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": style.FOOTER}
    ax.text(
        1.02, place, f"{format_interval(row.change, row.low, row.high)}  {row.verdict}", **right
    )


def _format_quantity(name: str) -> str:
    long_name, units = shape_name(name)
    return style.axis_label(long_name, units)


def _format_heading(pair: tuple[str, ...], with_checkpoint: bool) -> str:
    before, after, at, positions = pair
    further = [AT[at]] * with_checkpoint + ["without the first token"] * (positions != "all")
    pair = f"{display_name(before)} → {display_name(after)}"
    return pair + f" ({', '.join(further)})" * bool(further)


def effects(frame: pd.DataFrame) -> Figure:
    """Draw a row for each claim of `verdicts`: every model's effect over the smallest of interest."""
    frame = frame[frame["paper"] != CONTRAST]
    groups = {claim.paper: [] for claim in CLAIMS.values()} | {LOW_BAR: []}
    for name in CLAIMS:
        if name in set(frame["claim"]):
            groups[LOW_BAR if CLAIMS[name].low_bar else CLAIMS[name].paper].append(name)
    rows = [row for group, own in groups.items() if own for row in (group, *own)]
    figure = style.new_figure(style.PAGE, 1.4 + 0.165 * len(rows))
    ax = figure.subplots()
    for x, found in enumerate(VERDICTS):
        look = {"color": COLORS[found], "fontsize": style.FOOTER, "ha": "center"}
        look |= {"transform": ax.get_yaxis_transform()}
        ax.text(1.04 + 0.065 * x, 0.6, found, rotation=90, va="bottom", **look)
        for y, name in enumerate(rows):
            count = (frame["claim"].eq(name) & frame["verdict"].eq(found)).sum()
            ax.text(1.04 + 0.065 * x, -y, count or "", va="center", **look)
    for y, name in enumerate(rows):
        own = frame[frame["claim"].eq(name) & frame["p"].notna()]
        _draw_effects(ax, own.sort_values("effect"), -y)
    titles = [CLAIMS[row].wording if row in CLAIMS else row.split(" (")[0] for row in rows]
    style.name_rows(ax, titles, [name not in CLAIMS for name in rows])
    label = "effect over the smallest of interest: linear within ± 1 (shaded), logarithmic outside"
    _ratio_axis(ax, 40, label, "0.92", 1)
    style.add_footer(figure, [EFFECTS_KEY])
    figure.get_layout_engine().set(rect=(0, 0, 0.96, 1))
    style.title(figure, "What the papers claim, and how large it is here")
    return figure


def _draw_effects(ax: Axes, rows: pd.DataFrame, place: float) -> None:
    """Draw a row's intervals on top of each other; filled if they survive the correction."""
    heights = place + np.linspace(-0.36, 0.36, len(rows) + 2)[1:-1]
    for y, row in zip(heights, rows.itertuples(), strict=True):
        scale = CLAIMS[row.claim].smallest * (-1 if CLAIMS[row.claim].absence else 1)
        value, *ends = np.clip(np.array([row.effect, row.low, row.high]) / scale, -38, 38)
        look = {"markersize": 2.8, "markeredgewidth": 0.7, "linewidth": 0.8}
        corrected = not row.p_project >= 1 - LEVEL
        style.draw_row(ax, y, value, ends, COLORS[row.verdict], corrected, **look)
