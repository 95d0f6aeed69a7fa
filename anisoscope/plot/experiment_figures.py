"""Figures of an experiment: its conditions, and contrasts between settings."""

from itertools import cycle
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from anisoscope.analysis.contrasts import STEPS, TELLING
from anisoscope.analysis.primary import BOTH, DIFFERS, NOTHING, OPEN, ROLE, ROLES, WHERE, WITHIN
from anisoscope.analysis.shapes import SHAPES
from anisoscope.engine.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.plot.run_tables import Run, caption, display_name

SCORES = {  # contrasted numbers that are not shapes: name and units
    "test_bits": ("test score", "bits"),
    "test_gain_over_unigram": ("gain over unigram (test)", "bits"),
    STEPS: ("steps to the gain over unigram", "steps"),
}
CONTRASTED = (
    *("bell_blocks", "growth", "cosine_growth", "drift_growth"),
    *("expansion", "compression", "entropy_decrease", "sink"),
)
CONTRASTS_ACROSS = 4  # panels side by side
CONTRAST = ["setting", "before", "after", "held"]


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
    return SCORES.get(name, (name.replace("_", " "), "1"))  # older tables may have other quantities


def draw_contrasts(compared: Compared) -> Figure | None:
    """Draw each shape's change when one setting changes, paired by seed."""
    noise = f"variance pooled over settings where seeds are fewer than {TELLING}"
    return _contrasts(compared.runs, compared.changes, "last checkpoint", noise)


def contrasts_loss_matched(compared: Compared) -> Figure | None:
    """Draw the changes between conditions at equal gain over unigram."""
    if compared.matched is None:
        return None
    noise = "variance of its own runs"
    return _contrasts(compared.runs, compared.matched, "loss-matched", noise)


def _contrasts(
    runs: dict[str, Run], changes: pd.DataFrame, where: str, noise: str
) -> Figure | None:
    """Draw a panel per shape, a row per contrast, in a color for the setting that changes."""
    shown = (changes.positions == "all") & changes.quantity.isin(CONTRASTED)
    listed = changes.get("without", ())
    changes = changes[shown & np.isfinite(changes.change)]
    names = [name for name in CONTRASTED if name in set(changes.quantity)]
    if not names:
        return None
    rows = {pair: -place for place, pair in enumerate(changes.groupby(CONTRAST, sort=False).groups)}
    colors = dict(zip(changes.setting.unique(), cycle(style.OKABE_ITO), strict=False))
    columns, deep = min(CONTRASTS_ACROSS, len(names)), -(-len(names) // CONTRASTS_ACROSS)
    figure = style.new_figure(style.PAGE_WIDTH, 0.7 + deep * (0.6 + 0.135 * len(rows)))
    axes = figure.subplots(deep, columns, sharey=True, squeeze=False)
    for ax, name in zip(axes.flat, names, strict=False):
        for row in changes[changes.quantity == name].itertuples(index=False):
            place = rows[row.setting, row.before, row.after, row.held]
            filled = row.low > 0 or row.high < 0
            style.draw_row(ax, place, row.change, [row.low, row.high], colors[row.setting], filled)
        ax.axvline(0, color="0.5", linewidth=0.8, zorder=1)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.grid(axis="y", visible=False)
        ax.tick_params(axis="y", length=0)
        style.panel_title(ax, style.axis_label(*shape_name(name)), 1.15)
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    labels = [format_pair(*ends) + f" ({held})" * bool(held) for _, *ends, held in rows]
    for ax in axes[:, 0]:
        style.name_rows(ax, labels, [False] * len(labels), 6)
    style.title(figure, f"Change when one setting changes, {where}, all positions: exploratory")
    known = int(np.isfinite(changes.low).sum())
    bars = f"Pairs of runs: {_format_range(changes.pairs)}. " + (
        f"Bars: {100 * LEVEL:.0f} % interval, {noise}, not corrected for the {known} comparisons "
        f"(chance alone puts {100 * (1 - LEVEL):.0f} % of them off 0). Filled: 0 lies outside. "
        "Bare: no interval."
        if known
        else "No intervals: too few seeds."
    )
    if "level" in changes:
        levels = _format_range(changes.level.round(2))
        bars += f" Each at the best gain over unigram that all its runs reach: {levels} bits."
        without = dict.fromkeys(name for names in listed if names for name in names.split(", "))
        bars += f" Without value: {', '.join(without)}." * bool(without)
    if ROLE in changes and (changes[ROLE] == ROLES[0]).any():
        bars += " The prespecified ones are in the figure primary_contrasts too."
    caption(figure, runs, f"The change of each shape when one setting changes, {where}.", bars)
    return figure


def _format_range(values: pd.Series) -> str:
    return " to ".join(f"{end:g}" for end in dict.fromkeys((values.min(), values.max())))


def format_pair(before: str, after: str) -> str:
    return f"{display_name(before)} → {display_name(after)}"


SETTLED = (DIFFERS, BOTH, WITHIN)  # drawn filled; undecided contrasts are hollow
INK = "0.15"
MARKS = {  # of verdicts
    DIFFERS: {"marker": "o"},
    WITHIN: {"marker": "s"},
    OPEN: {"marker": "o", "markerfacecolor": "white"},
}
CONTRAST_ENDS = ["before", "after", "at", "positions"]
TICKS = (-30, -10, -3, -1, 0, 1, 3, 10, 30)


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
    bars = (
        f"Bars: {LEVEL * 100:.0f} % interval, not corrected, {_format_range(known['pairs'])} pairs of runs. Verdicts: "
        f"p < {1 - LEVEL:.2g}, after Holm over all tests; filled where they settle something. "
        "Shaded: prespecified margin of equivalence. Without a margin there are numbers alone."
    )
    caption(figure, compared.runs, shown, bars)
    return figure


def forest(table: pd.DataFrame, title: str = "Prespecified changes") -> Figure:
    """Draw a row for each contrast under its conditions: change and interval over its margin.

    A quantity that all share is named below; then conditions have a row each.
    """
    table = table[table["verdict"] != NOTHING]
    groups, shared = table.groupby(CONTRAST_ENDS, sort=False), table["quantity"].nunique() == 1
    rows = len(table) + (0 if shared else len(groups))
    figure = style.new_figure(style.PAGE_WIDTH, 1.3 + 0.2 * rows)
    ax, labels, bold = figure.subplots(), [], []
    for (before, after, at, positions), rows in groups:
        side = ", without the first token" * (positions != "all")
        heading = f"{format_pair(before, after)}, {WHERE[at]}{side}"
        if not shared:
            labels.append(heading)
            bold.append(True)
        for row in rows.itertuples(index=False):
            _draw_change(ax, row, -len(labels))
            name = style.axis_label(*shape_name(row.quantity))
            labels.append(heading if shared else name)
            bold.append(False)
    sizes = table[["change", "low", "high"]].abs().div(table["margin"], axis=0)
    widest = 1.3 * max(3.0, float(np.nan_to_num(sizes.max(axis=None))))
    style.name_rows(ax, labels, bold)
    what = f"change in {name}" if shared else "change"
    ratio_axis(ax, widest, f"{what}, in units of the margin of equivalence (shaded)")
    look = {"color": INK, "linestyle": "none", "markersize": 4}
    marks = [Line2D([], [], label=word, **mark, **look) for word, mark in MARKS.items()]
    words = "verdict, after Holm's correction"
    figure.legend(handles=marks, loc="outside lower right", ncols=len(MARKS), title=words)
    style.title(figure, title)
    return figure


def ratio_axis(ax: Axes, widest: float, label: str) -> None:
    """Show ratios to a bound, linear and shaded within ± 1, logarithmic outside."""
    ax.axvspan(-1, 1, color="0.9", linewidth=0, zorder=0)
    ax.axvline(0, color="0.5", linewidth=0.8, zorder=1)
    ax.set_xscale("symlog", linthresh=1)
    ax.set_xlim(-widest, widest)
    marks = [tick for tick in TICKS if abs(tick) < widest]
    ax.set_xticks(marks, [f"{tick:g}".replace("-", "−") for tick in marks])
    ax.minorticks_off()
    ax.set_xlabel(label, fontsize=style.SMALL_FONT)


def _draw_change(ax: Axes, row, place: int) -> None:
    """Draw interval, mark and numbers; the mark is filled if the verdict is decided."""
    value, *ends = np.array([row.change, row.low, row.high]) / row.margin
    look = {"marker": "s" if row.verdict == WITHIN else "o", "markersize": 4, "linewidth": 1.1}
    settled = row.verdict in SETTLED
    style.draw_row(ax, place, value, ends, INK, settled, label=row.verdict, **look)
    if not np.isfinite(row.margin):
        look = {"color": "0.3", "backgroundcolor": "0.9", "fontsize": style.FOOTER}
        ax.text(0, place, "no margin", ha="center", va="center", **look)
    right = {"transform": ax.get_yaxis_transform(), "va": "center", "fontsize": style.FOOTER}
    ax.text(
        1.02, place, f"{format_interval(row.change, row.low, row.high)}  {row.verdict}", **right
    )


def format_interval(value: float, low: float, high: float) -> str:
    """Format a value and its interval, if it has one, with three decimals."""
    parts = [f"{x:,.0f}" if abs(x) >= 1000 else f"{x:.3f}" for x in (value, low, high)]
    text = f"{parts[0]} [{parts[1]}, {parts[2]}]" if np.isfinite(low) else parts[0]
    return text.replace("-", "\N{MINUS SIGN}")
