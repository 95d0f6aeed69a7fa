"""What follows the mask, and what the objective? Each shape's change when one setting changes, paired by seed."""

from collections.abc import Iterator
from itertools import cycle

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures import style
from figures.run import Run
from panel.intervals import LEVEL
from studies.shapes import SHAPES

SHOWN = ("bell", "growth", "cosine_growth", "drift_growth", "expansion", "compression", "sharpening", "sink")
ACROSS = 4  # panels beside each other
ROW = 0.135  # inches


def build(runs: dict[str, Run], contrasts: pd.DataFrame) -> Figure | None:
    """A panel per shape, a row per contrast, grouped by the setting that changes; all positions.

    `runs` are named below the figure; `contrasts` is what contrasts.csv holds.
    """
    contrasts = contrasts[(contrasts.positions == "all") & np.isfinite(contrasts.change)]
    names = [name for name in SHOWN if name in set(contrasts.quantity)]
    if not names:
        return None
    labels = list(rows(contrasts))
    columns, deep = min(ACROSS, len(names)), -(-len(names) // ACROSS)
    figure = style.new(style.PAGE, 0.7 + deep * (0.6 + ROW * len(labels)))
    axes = figure.subplots(deep, columns, sharey=True, squeeze=False)
    places = {key: -place for place, (key, _) in enumerate(labels)}
    for ax, name in zip(axes.flat, names, strict=False):
        panel(ax, contrasts[contrasts.quantity == name], places)
        shape = SHAPES[name]
        title = style.wrap(shape.long_name, 1.15, 7)
        ax.set_title(title if shape.units == "1" else f"{title}\n({shape.units})", fontsize=7)
    for ax in axes.flat[len(names) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_yticks(list(places.values()), [text for _, text in labels], fontsize=6)
        for (key, _), tick in zip(labels, ax.get_yticklabels(), strict=True):
            tick.set_fontweight("bold" if isinstance(key, str) else "normal")
        ax.set_ylim(-len(labels) + 0.4, 0.6)
    few, many = contrasts.pairs.min(), contrasts.pairs.max()
    pairs = f"{few} to {many} pairs of runs" if few < many else f"{few} pair{'s' * int(few > 1)} of runs"
    known = np.isfinite(contrasts.low)
    words = (
        f"{LEVEL * 100:.0f} % interval, variance pooled over settings, one comparison at a time; filled: 0 lies outside"
    )
    words = words + "; bare: no interval" * (not known.all()) if known.any() else "no interval"
    below = style.wrap(f"({pairs}; {words})", style.PAGE, style.RC["figure.titlesize"])
    figure.suptitle(f"Change when one setting changes, last checkpoint, all positions\n{below}")
    style.footer(figure, runs)
    return figure


def rows(contrasts: pd.DataFrame) -> Iterator[tuple[str | tuple[str, ...], str]]:
    """Key and text of each row: for each setting its name, then its contrasts, with what is held where that differs."""
    for setting, group in contrasts.groupby("setting", sort=False):
        yield setting, f"{setting.rpartition('.')[2].replace('_', ' ')} changes"
        several = group.held.nunique() > 1
        for key in dict.fromkeys(group[["setting", "held", "before", "after"]].itertuples(index=False, name=None)):
            yield key, f"{key[2]} → {key[3]}" + f" ({key[1]})" * several


def panel(ax: Axes, contrasts: pd.DataFrame, places: dict) -> None:
    colours = dict(zip((key for key in places if isinstance(key, str)), cycle(style.OKABE_ITO), strict=False))
    for row in contrasts.itertuples(index=False):
        place, colour = places[row.setting, row.held, row.before, row.after], colours[row.setting]
        if np.isfinite(row.low):
            ax.plot([row.low, row.high], [place, place], color=colour, linewidth=1)
        clear = row.low > 0 or row.high < 0
        ax.plot(row.change, place, "o", color=colour, markersize=3, markerfacecolor=colour if clear else "white")
    ax.axvline(0, color="0.5", linewidth=0.8, zorder=1)
    ax.xaxis.set_major_locator(MaxNLocator(3))
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0)
