"""Figures of an experiment's conditions: last checkpoints, and changes between settings."""

import json
from itertools import cycle
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.analysis.contrasts import STEPS, TELLING
from anisoscope.analysis.primary import ROLE, ROLES
from anisoscope.analysis.shapes import SHAPES
from anisoscope.measurement.families import registry
from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.plot.run_tables import Run, caption, display_name
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.optimizer import SCHEDULES

COMPARED = (
    *("test_bits", "test_gain_over_unigram", "anisotropy", "mean_cosine", "drift"),
    *("attention_entropy", "twonn"),
)
BITS = {
    "test_bits": "bits per character (test)",
    "test_gain_over_unigram": "gain over unigram (test, bits)",
}
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
ROW = {"condition": 0.17, "contrast": 0.135}  # inches
PAIR = ["setting", "held", "before", "after"]
INTERVAL = f"{LEVEL * 100:.0f} % interval"
INCOMPARABLE = "Bits of the two objectives are not comparable."


class Compared(NamedTuple):
    """The conditions of an experiment, each with all its seeds, and the tables that compare them."""

    runs: dict[str, Run]
    rows: pd.DataFrame  # runs.csv
    changes: pd.DataFrame  # contrasts.csv
    matched: pd.DataFrame | None = None  # contrasts_loss_matched.csv
    primary: pd.DataFrame | None = None  # primary.csv


def runs_compared(compared: Compared) -> Figure | None:
    """Draw bits and geometry of each condition: a dot for each seed, a stroke for their mean."""
    runs, rows = compared.runs, compared.rows
    names = [name for name in COMPARED if name in rows and rows[name].notna().any()]
    if "test_gain_over_unigram" in names:  # which compares objectives too
        names = [name for name in names if name != "test_bits"]
    if not names:
        return None
    places = {condition: -place for place, condition in enumerate(dict.fromkeys(rows.condition))}
    objective = {label: run.results.attrs["objective"] for label, run in runs.items()}
    kinds = [kind for kind in OBJECTIVES if kind in objective.values()]
    panels, key = 1.1 + ROW["condition"] * len(places), 0.35  # inches, with titles and ticks
    figure = style.new_figure(style.PAGE, 0.3 + panels + key)
    grid = figure.add_gridspec(2, 1, height_ratios=(panels, key))
    axes = grid[0].subgridspec(1, len(names)).subplots(sharey=True, squeeze=False)[0]
    for ax, name in zip(axes, names, strict=True):
        for condition, place in places.items():
            values = rows[rows.condition == condition][name]
            kind = kinds.index(objective[condition])
            look = {"color": style.OKABE_ITO[kind], "linestyle": "none"}
            label = f"predicts {OBJECTIVES[kinds[kind]].label}"
            marks = {"marker": style.MARKERS[kind], "markersize": 3.5, "label": label}
            ax.plot(values, [place] * len(values), **look, **marks)
            if len(rows) > len(places):
                stroke = {"marker": "|", "markersize": 9, "markeredgewidth": 1.3}
                ax.plot(values.mean(skipna=False), place, **look, **stroke)
        style.panel_title(ax, _quantity_name(name), 0.95)
        ax.margins(x=0.2)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(list(places.values()), [display_name(label) for label in places])
    axes[0].set_ylim(0.5 - len(places), 0.5)
    below = figure.add_subplot(grid[1], frameon=False, xticks=[], yticks=[])
    below.legend(*style.legend_entries(axes[:1]), loc="upper center", ncols=len(kinds))
    style.title(figure, "All settings, last checkpoint, mean over blocks, all positions")
    read = ["Marks: seeds; strokes: their means."] * (len(rows) > len(places))
    read += [INCOMPARABLE] * (len(kinds) > 1 and "test_bits" in names)
    shown = "What each setting costs in bits, and what it does to the geometry."
    caption(figure, runs, shown, " ".join(read))
    return figure


def _quantity_name(name: str) -> str:
    if name in BITS:
        return BITS[name]
    quantity = registry.quantities()[name]
    return style.axis_label(quantity.long_name, quantity.units, quantity.symbol)


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
    figure = style.new_figure(style.PAGE, 0.7 + deep * (0.6 + ROW["contrast"] * len(rows)))
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
    shown = f"The change of each shape (analysis/shapes.py) when one setting changes, {where}."
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
    few, many = changes.pairs.min(), changes.pairs.max()
    pairs = f"{few} to {many} pairs" if few < many else f"{few} pair{'s' * int(few > 1)}"
    known = np.isfinite(changes.low)
    if not known.any():
        return f"{pairs} of runs; no interval."
    chance = f"chance alone puts {100 * (1 - LEVEL):.0f} % of them off 0"
    read = f"{INTERVAL}, {noise}, not corrected for the {known.sum()} comparisons ({chance})"
    bare = "" if known.all() else " Bare: no interval."
    return f"{pairs} of runs. Bars: {read}. Filled: 0 lies outside.{bare}"
