"""Every setting beside every other at the last checkpoint: what it costs in bits, and what it does to the geometry."""

import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures import style
from figures.run import Run
from panel.quantities import QUANTITIES
from training.objective import OBJECTIVES

SHOWN = ("test_bits", "anisotropy", "mean_cosine", "drift", "attention_entropy", "twonn")
BITS = "bits per character (test)"
ROW = 0.17  # inches


def build(runs: dict[str, Run], rows: pd.DataFrame) -> Figure | None:
    """A row per cell: a dot for each seed, a stroke for their mean. `rows` is what runs.csv holds."""
    names = [name for name in SHOWN if name in rows and rows[name].notna().any()]
    if not names:
        return None
    cells = list(dict.fromkeys(rows.condition))
    kinds = [kind for kind in OBJECTIVES if any(run.results.attrs["objective"] == kind for run in runs.values())]
    panels, key = 1.1 + ROW * len(cells), 0.5  # inches; titles and ticks take the first
    figure = style.new(style.PAGE, 0.3 + panels + key)
    grid = figure.add_gridspec(2, 1, height_ratios=(panels, key))
    axes = grid[0].subgridspec(1, len(names)).subplots(sharey=True, squeeze=False)[0]
    for ax, name in zip(axes, names, strict=True):
        for place, cell in enumerate(cells):
            values, kind = rows[rows.condition == cell][name], kinds.index(runs[cell].results.attrs["objective"])
            look = {"color": style.OKABE_ITO[kind], "linestyle": "none"}
            label = f"predicts {OBJECTIVES[kinds[kind]].label}"
            ax.plot(values, [-place] * len(values), marker=style.MARKERS[kind], markersize=3.5, label=label, **look)
            ax.plot(values.mean(skipna=False), -place, marker="|", markersize=9, markeredgewidth=1.3, **look)
        ax.set_title(style.wrap(title(name), 0.95, 7), fontsize=7)
        ax.xaxis.set_major_locator(MaxNLocator(3))
        ax.tick_params(axis="y", length=0)
    axes[0].set_yticks([-place for place in range(len(cells))], cells)
    axes[0].set_ylim(0.5 - len(cells), 0.5)
    handles = {label: handle for handle, label in zip(*axes[0].get_legend_handles_labels(), strict=True)}
    below = figure.add_subplot(grid[1], frameon=False, xticks=[], yticks=[])
    words = "stroke: mean over seeds" + "; bits of the two are not comparable" * (len(kinds) > 1)
    below.legend(handles.values(), handles.keys(), title=words, loc="upper center", ncols=len(handles))
    style.title(figure, "All settings, last checkpoint, mean over blocks, all positions (a dot for each seed)")
    style.footer(figure, runs)
    return figure


def title(name: str) -> str:
    if name == "test_bits":
        return BITS
    quantity = QUANTITIES[name]
    return quantity.long_name if quantity.units == "1" else f"{quantity.long_name} ({quantity.units})"
