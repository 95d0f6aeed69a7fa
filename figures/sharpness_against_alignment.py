"""Are the heads whose queries and keys drift together the sharp ones? (Anisotropy Is Inherent to Self-Attention)"""

import numpy as np
from matplotlib.figure import Figure

from analysis import correlations
from figures import style
from figures.run import Run, band, holding, interval, words

SHARPNESS = ("attention_entropy", "attention_max", "score_std_within", "attention_first")


def build(runs: dict[str, Run]) -> Figure | None:
    """A point per head of the last checkpoint; all heads of a run are one correlation."""
    runs = holding(runs, "query_key_alignment", *SHARPNESS)
    if not runs:
        return None
    figure = style.new(style.PAGE, 0.8 + 1.9 * len(runs))
    axes = figure.subplots(len(runs), len(SHARPNESS), sharex=True, sharey="col", squeeze=False)
    colours = style.block_colours(max(run.results.sizes["block"] for run in runs.values()))
    for row, (label, run) in zip(axes, runs.items(), strict=True):
        last = run.results.isel(step=-1).sel(positions="all")
        for ax, name in zip(row, SHARPNESS, strict=True):
            for block in last.block.values:
                (x, *across), (y, *upright) = (interval(last, of, block=block) for of in ("query_key_alignment", name))
                bars = {"elinewidth": 0.6, "fmt": "o", "markersize": 2.5, "color": colours.to_rgba(block)}
                ax.errorbar(x, y, np.abs(upright - y), np.abs(across - x), **bars)
            heads = (last[f"{of}_mean"].values.ravel() for of in ("query_key_alignment", name))
            ax.set_title(correlations.words(*heads).replace(", ", "\n"), fontsize=6, loc="left")
            ax.set_ylabel(style.wrap(words(runs, name), 1.5, 7), fontsize=7)
        row[0].set_ylabel(f"{label}\n{row[0].get_ylabel()}", fontsize=7)
    axes[0, 0].set(xlim=(-1.1, 1.1), xticks=(-1, 0, 1))  # all that a cosine can be
    for ax in axes[-1]:
        ax.set_xlabel(style.wrap(words(runs, "query_key_alignment"), 1.1, 7), fontsize=7)
    bars = band(runs, "query_key_alignment", *SHARPNESS).replace("band", "bars")
    style.title(figure, f"Sharpness against alignment of each head, last checkpoint, all positions{bars}")
    style.block_bar(figure, colours, axes)
    style.footer(figure, runs)
    return figure
