"""What of a value would a featureless cloud, shuffled text or an untrained network have too? Last checkpoint."""

import numpy as np
from matplotlib.figure import Figure

from figures import style
from figures.run import NULLS, Run, band, words

QUANTITIES = ("anisotropy", "effective_rank", "twonn", "mean_cosine")
HEIGHT = 1.25  # inches of a row


def build(runs: dict[str, Run]) -> Figure | None:
    looks = style.inks(runs)
    runs = {label: run for label, run in runs.items() if "null" in run.results.dims}
    names = [name for name in QUANTITIES if any(f"{name}_excess" in run.results for run in runs.values())]
    if not names:
        return None
    nulls = [null for null in NULLS if any(null in run.results.null for run in runs.values())]
    figure = style.new(style.PAGE, 0.9 + HEIGHT * len(names))
    axes = figure.subplots(len(names), len(nulls), sharex=True, sharey="row", squeeze=False)
    for row, name in zip(axes, names, strict=True):
        having = {label: run for label, run in runs.items() if f"{name}_excess" in run.results}
        for ax, null in zip(row, nulls, strict=True):
            for label, run in having.items():
                if null not in run.results.null:
                    continue
                where = {"step": run.results.step[-1], "positions": "all", "null": null}
                curve = [run.results[f"{name}_excess{end}"].sel(where).values for end in ("", "_low", "_high")]
                style.banded(ax, run.results.depth.values, *curve, label=label, **looks[label])
            ax.axhline(0, color="0.5", linewidth=0.8, zorder=1)
            if not any(np.isfinite(line.get_ydata()).any() for line in ax.lines[:-1]):
                ax.text(0.5, 0.2, "has none", transform=ax.transAxes, ha="center", color="0.4", fontsize=7)
        row[0].set_ylabel(style.wrap(words(having, name), HEIGHT, 7), fontsize=7)
    for ax, null in zip(axes[0], nulls, strict=True):
        ax.set_title(NULLS[null])
    axes[-1, len(nulls) // 2].set_xlabel("relative depth (0 = embedding)")
    figure.supylabel("excess over the null model", fontsize=8)
    style.title(figure, f"Excess over null models, last checkpoint, all positions{band(runs, *names)}")
    style.legend(axes)
    style.footer(figure, runs)
    return figure
