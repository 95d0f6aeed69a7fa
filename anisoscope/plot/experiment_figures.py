"""Figures of all settings of an experiment: their last checkpoints side by side, and what changes
between them.
"""

import json
from collections.abc import Iterator
from itertools import cycle
from typing import NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.analysis.contrasts import TELLING
from anisoscope.analysis.loss_matched import SHARES, STEPS
from anisoscope.analysis.primary import ROLE, ROLES
from anisoscope.analysis.shapes import SHAPES
from anisoscope.measurement.families import registry as families
from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.plot.footer import caption
from anisoscope.plot.run_tables import Run
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.optimizer import SCHEDULES

COMPARED = (
    "test_bits",
    "test_context_gain",
    "anisotropy",
    "mean_cosine",
    "drift",
    "attention_entropy",
    "twonn",
)
BITS = {"test_bits": "bits per character (test)", "test_context_gain": "context gain (test, bits)"}
OTHERS = {
    "test_bits": ("test score", "bits"),
    "test_context_gain": ("context gain (test)", "bits"),
    STEPS: ("steps to the context gain", "steps"),
}
CONTRASTED = (
    *("bell_blocks", "growth", "cosine_growth", "drift_growth"),
    *("expansion", "compression", "sharpening", "sink"),
)
CONSTANT = {name for name, schedule in SCHEDULES.items() if schedule.constant}
ACROSS = 4  # panels of contrasts beside each other
ROW = {"condition": 0.17, "contrast": 0.135}  # inches
PAIR = ["setting", "before", "after", "held"]
INTERVAL = f"{LEVEL * 100:.0f} % interval"
OF_LEVELS = (
    f"Bands: {INTERVAL}, not corrected. A sign turns where intervals on both sides leave 0 out."
)


class Compared(NamedTuple):
    """The conditions of an experiment, each with all its seeds, and the tables that compare
    them.
    """

    runs: dict[str, Run]
    rows: pd.DataFrame  # runs.csv
    changes: pd.DataFrame  # contrasts.csv
    matched: pd.DataFrame | None = None  # contrasts_loss_matched.csv
    primary: pd.DataFrame | None = None  # primary.csv
    by_level: pd.DataFrame | None = None  # contrasts_by_level.csv


def runs_compared(compared: Compared) -> Figure | None:
    """What does a setting cost in bits, and do to the geometry? A dot for each seed, a stroke for
    their mean.
    """
    runs, rows = compared.runs, compared.rows
    names = [name for name in COMPARED if name in rows and rows[name].notna().any()]
    if "test_context_gain" in names:  # which compares objectives too
        names.remove("test_bits")
    if not names:
        return None
    places = {condition: -place for place, condition in enumerate(dict.fromkeys(rows.condition))}
    seeds = len(rows) > len(places)
    kinds = [
        kind
        for kind in OBJECTIVES
        if any(run.results.attrs["objective"] == kind for run in runs.values())
    ]
    # inches; titles and ticks take the first
    panels, key = 1.1 + ROW["condition"] * len(places), 0.35
    figure = style.new(style.PAGE, 0.3 + panels + key)
    grid = figure.add_gridspec(2, 1, height_ratios=(panels, key))
    axes = grid[0].subgridspec(1, len(names)).subplots(sharey=True, squeeze=False)[0]
    for ax, name in zip(axes, names, strict=True):
        for condition, place in places.items():
            values = rows[rows.condition == condition][name]
            kind = kinds.index(runs[condition].results.attrs["objective"])
            look = {"color": style.OKABE_ITO[kind], "linestyle": "none"}
            label = f"predicts {OBJECTIVES[kinds[kind]].label}"
            ax.plot(
                values,
                [place] * len(values),
                marker=style.MARKERS[kind],
                markersize=3.5,
                label=label,
                **look,
            )
            if seeds:
                ax.plot(
                    values.mean(skipna=False),
                    place,
                    marker="|",
                    markersize=9,
                    markeredgewidth=1.3,
                    **look,
                )
        ax.set_title(style.wrap(_name(name), 0.95, style.SMALL), fontsize=style.SMALL)
        ax.margins(x=0.2)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks(list(places.values()), list(places))
    axes[0].set_ylim(0.5 - len(places), 0.5)
    below = figure.add_subplot(grid[1], frameon=False, xticks=[], yticks=[])
    below.legend(*style.entries(axes[:1]), loc="upper center", ncols=len(kinds))
    style.title(figure, "All settings, last checkpoint, mean over blocks, all positions")
    read = ["Marks: seeds; strokes: their means."] * seeds
    read += ["Bits of the two objectives are not comparable."] * (
        len(kinds) > 1 and "test_bits" in names
    )
    caption(
        figure,
        runs,
        "What each setting costs in bits, and what it does to the geometry.",
        " ".join(read),
    )
    return figure


def _name(name: str) -> str:
    if name in BITS:
        return BITS[name]
    quantity = families.quantities()[name]
    return style.label(quantity.long_name, quantity.units, quantity.symbol)


def contrasts(compared: Compared) -> Figure | None:
    """What follows the mask, and what the objective? Each shape's change when one setting changes,
    paired by seed.
    """
    return _contrasts(compared.runs, compared.changes, "last checkpoint")


def contrasts_loss_matched(compared: Compared) -> Figure | None:
    """What of it is left where the runs of a contrast have learned equally much?"""
    if compared.matched is None or compared.matched.empty:
        return None
    levels = _drawn(compared.matched)["level"]
    if levels.empty:  # no run of any contrast has a value
        return None
    span = (
        f"{levels.min():.2f} to {levels.max():.2f}"
        if levels.nunique() > 1
        else f"{levels.iloc[0]:.2f}"
    )
    names = dict.fromkeys(
        name for names in compared.matched.without if names for name in names.split(", ")
    )
    left_out = f" Without value: {', '.join(names)}." if names else ""
    schedules = {
        json.loads(run.results.attrs["config"])["train"]["schedule"]
        for run in compared.runs.values()
    }
    part = "in the constant part of the schedule" if schedules <= CONSTANT else "after the warm-up"
    further = f"Each contrast at the best context gain that all its runs reach {part}: {span} bits.{left_out}"
    return _contrasts(
        compared.runs, compared.matched, "loss-matched", further, "variance of its own runs"
    )


def _contrasts(
    runs: dict[str, Run],
    changes: pd.DataFrame,
    where: str,
    further: str = "",
    noise: str = f"variance pooled over settings where seeds are fewer than {TELLING}",
) -> Figure | None:
    """A panel per shape, a row per contrast, grouped by the setting that changes; all positions."""
    changes = _drawn(changes)
    names = [name for name in CONTRASTED if name in set(changes.quantity)]
    if not names:
        return None
    labels = list(contrast_rows(changes))
    columns, deep = min(ACROSS, len(names)), -(-len(names) // ACROSS)
    figure = style.new(style.PAGE, 0.7 + deep * (0.6 + ROW["contrast"] * len(labels)))
    axes = figure.subplots(deep, columns, sharey=True, squeeze=False)
    places = {key: -place for place, (key, _) in enumerate(labels)}
    for ax, name in zip(axes.flat, names, strict=False):
        _changes(ax, changes[changes.quantity == name], places)
        ax.set_title(named(name), fontsize=style.SMALL)
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_yticks(list(places.values()), [text for _, text in labels], fontsize=6)
        for (key, _), tick in zip(labels, ax.get_yticklabels(), strict=True):
            tick.set_fontweight("bold" if isinstance(key, str) else "normal")
        ax.set_ylim(-len(labels) + 0.4, 0.6)
    sample = _sample(changes, noise)
    style.title(figure, f"Change when one setting changes, {where}, all positions: exploratory")
    shown = f"The change of each shape (analysis/shapes.py) when one setting changes, {where}."
    first = int((changes[ROLE] == ROLES[0]).sum()) if ROLE in changes else 0
    but = f" but for {first}, which the figure primary_contrasts has" * bool(first)
    caption(figure, runs, shown, f"{sample} Exploratory{but}. {further}".strip())
    return figure


def _drawn(changes: pd.DataFrame) -> pd.DataFrame:
    """Those that have a value, of the shapes that are shown."""
    shown = (
        (changes.positions == "all")
        & np.isfinite(changes.change)
        & changes.quantity.isin(CONTRASTED)
    )
    return changes[shown]


def named(name: str) -> str:
    """What runs are compared by, with its units, over a small panel."""
    about = SHAPES.get(name)
    words, units = (about.long_name, about.units) if about else OTHERS[name]
    title = style.wrap(words, 1.15, style.SMALL)
    return title if units == "1" else f"{title}\n({units})"


def contrast_rows(changes: pd.DataFrame) -> Iterator[tuple[str | tuple[str, ...], str]]:
    """Key and text of each row: for each setting its name, then its contrasts, with what is held
    where that differs.
    """
    for setting, group in changes.groupby("setting", sort=False):
        yield setting, f"{setting.rpartition('.')[2].replace('_', ' ')} changes"
        several = group.held.nunique() > 1
        for key in dict.fromkeys(
            group[["setting", "held", "before", "after"]].itertuples(index=False, name=None)
        ):
            yield key, f"{key[2]} → {key[3]}" + f" ({key[1]})" * several


def _changes(ax: Axes, changes: pd.DataFrame, places: dict) -> None:
    colours = dict(
        zip((key for key in places if isinstance(key, str)), cycle(style.OKABE_ITO), strict=False)
    )
    for row in changes.itertuples(index=False):
        place, colour = places[row.setting, row.held, row.before, row.after], colours[row.setting]
        if np.isfinite(row.low):
            ax.plot([row.low, row.high], [place, place], color=colour, linewidth=1)
        clear = row.low > 0 or row.high < 0
        ax.plot(
            row.change,
            place,
            "o",
            color=colour,
            markersize=3,
            markerfacecolor=colour if clear else "white",
        )
    ax.axvline(0, color="0.5", linewidth=0.8, zorder=1)
    ax.xaxis.set_major_locator(MaxNLocator(3))
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)


def _sample(changes: pd.DataFrame, noise: str) -> str:
    """How many pairs of runs there are, what interval they give, and how many of them are looked
    at.
    """
    few, many = changes.pairs.min(), changes.pairs.max()
    pairs = (
        f"{few} to {many} pairs of runs"
        if few < many
        else f"{few} pair{'s' * int(few > 1)} of runs"
    )
    known = np.isfinite(changes.low)
    if not known.any():
        return f"{pairs.capitalize()}; no interval."
    chance = f"chance alone puts {100 * (1 - LEVEL):.0f} % of them off 0"
    read = f"{INTERVAL}, {noise}, not corrected for the {known.sum()} comparisons ({chance})"
    bare = "" if known.all() else " Bare: no interval."
    return f"{pairs.capitalize()}. Bars: {read}. Filled: 0 lies outside.{bare}"


def contrasts_by_level(compared: Compared) -> Figure | None:
    """The curves, with the caption of their experiment."""
    table, primary = compared.by_level, compared.primary
    figure = (
        None
        if table is None
        else curves_by_level(table, set() if primary is None else {*primary["quantity"]})
    )
    if figure is not None:
        shares = ", ".join(f"{100 * share:g}" for share in SHARES)
        shown = (
            f"Loss-matched contrasts at {shares} % of the gain that all runs of the contrast reach."
        )
        caption(figure, compared.runs, shown, OF_LEVELS)
    return figure


def curves_by_level(table: pd.DataFrame, asked: set[str]) -> Figure | None:
    """A panel per quantity that is asked for, a curve per contrast over the context gain at which
    it is read.
    """
    table = table[(table["positions"] == "all") & np.isfinite(table["change"].astype(float))]
    quantities = [
        name for name in dict.fromkeys(table["quantity"]) if name in (asked or CONTRASTED)
    ]
    if not quantities:
        return None
    pairs = list(dict.fromkeys(table[PAIR].itertuples(index=False, name=None)))
    columns, deep = min(ACROSS, len(quantities)), -(-len(quantities) // ACROSS)
    figure = style.new(style.PAGE, 0.9 + 1.6 * deep)
    strip, axes = style.below_a_strip(figure, deep, columns, 1.6)
    for ax, quantity in zip(axes.flat, quantities, strict=False):
        for number, pair in enumerate(pairs):
            alike = (
                table[["quantity", *PAIR]] == pd.Series((quantity, *pair), ["quantity", *PAIR])
            ).all(axis=1)
            own, color = (
                table[alike].sort_values("level"),
                style.OKABE_ITO[number % len(style.OKABE_ITO)],
            )
            ax.plot(
                own["level"],
                own["change"],
                "o-",
                color=color,
                linewidth=1.1,
                markersize=3,
                label=words(pair),
            )
            ax.fill_between(
                own["level"], own["low"], own["high"], color=color, alpha=0.15, linewidth=0
            )
        ax.axhline(0, color="0.5", linewidth=0.8, zorder=1)
        ax.set_title(named(quantity), fontsize=style.SMALL)
    for ax in axes.flat[: len(quantities)][-columns:]:  # the lowest of each column
        ax.set_xlabel("context gain (bits)", fontsize=style.SMALL)
    for ax in axes.flat[len(quantities) :]:
        ax.set_axis_off()
    strip.legend(*style.entries(axes.flat), loc="center", ncols=min(len(pairs), 2))
    turned, of = turning(table, quantities), f"of {len(pairs) * len(quantities)} contrasts"
    which = f" ({named(turned[0])})" if len(turned) == 1 else ""
    style.title(
        figure,
        f"{len(turned)} {of}{which} change{'s' * (len(turned) == 1)} sign with the context gain",
    )
    return figure


def turning(table: pd.DataFrame, quantities: list[str]) -> list[str]:
    """Quantities of contrasts with an interval above 0 at one level and one below it at another."""
    groups = table[table["quantity"].isin(quantities)].groupby(["quantity", *PAIR])
    return [
        name for (name, *_), own in groups if (own["low"] > 0).any() and (own["high"] < 0).any()
    ]


def words(pair: tuple[str, ...]) -> str:
    _, before, after, held = pair
    return f"{before} → {after}" + f" ({held})" * bool(held)
