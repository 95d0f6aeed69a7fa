"""Mean cosine against drift over the layers of the last checkpoint (Anisotropy Is Inherent to Self-Attention)."""

import numpy as np
from matplotlib.figure import Figure

from figures import style
from figures.run import POSITIONS, Run, band, holding, interval, positions, words
from studies import correlations


def build(runs: dict[str, Run]) -> Figure | None:
    looks, runs = style.inks(runs), holding(runs, "mean_cosine", "drift")
    if not runs:
        return None
    sides = positions(runs)
    key = 0.3 + 0.29 * len(runs)  # inches: a title and two lines of type for each run
    figure = style.new(style.PAGE, 2.4 + key)
    grid = figure.add_gridspec(2, len(sides), height_ratios=(1.8, key))
    for column, side in enumerate(sides):
        ax = figure.add_subplot(grid[0, column], sharey=figure.axes[0] if column else None)
        for label, run in runs.items():
            last = run.results.isel(step=-1).sel(positions=side)
            (drift, *across), (cosine, *upright) = interval(last, "drift"), interval(last, "mean_cosine")
            text = f"{label}, {correlations.words(drift, cosine)}"
            ax.plot(drift, cosine, label=text, linestyle="none", **looks[label])
            bars = {"ecolor": looks[label]["color"], "elinewidth": 0.8, "fmt": "none"}
            ax.errorbar(drift, cosine, np.abs(upright - cosine), np.abs(across - drift), **bars)
            embedding = {"color": looks[label]["color"], "marker": looks[label]["marker"], "markerfacecolor": "white"}
            ax.plot(drift[:1], cosine[:1], linestyle="none", **embedding)
        ax.set(title=POSITIONS[side], xlabel=words(runs, "drift"))
        below = figure.add_subplot(grid[1, column], frameon=False, xticks=[], yticks=[])
        below.legend(
            *ax.get_legend_handles_labels(), loc="upper center", title="Pearson r, Spearman ρ (hollow: embedding)"
        )
    figure.axes[0].set_ylabel(words(runs, "mean_cosine"))
    bars = band(runs, "drift", "mean_cosine").replace("band", "bars")
    style.title(figure, f"Mean cosine against drift, last checkpoint{bars}")
    style.footer(figure, runs)
    return figure
