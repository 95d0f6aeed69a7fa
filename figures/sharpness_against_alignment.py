"""Are the heads whose queries and keys drift together the sharp ones? (Anisotropy Is Inherent to Self-Attention)"""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from figures import style
from figures.run import Run, band, holding, interval, words
from studies import correlations

SHARPNESS = ("attention_entropy", "attention_max", "score_std_within", "attention_first")


def build(runs: dict[str, Run]) -> Figure | None:
    """A point per head of the last checkpoint, of every seed; all heads of a row are one correlation."""
    runs = holding(runs, "query_key_alignment", *SHARPNESS)
    if not runs:
        return None
    figure = style.new(style.PAGE, 0.8 + 1.9 * len(runs))
    axes = figure.subplots(len(runs), len(SHARPNESS), sharex=True, sharey="col", squeeze=False)
    colours = style.block_colours(max(run.results.sizes["block"] for run in runs.values()))
    points = {label: Run(heads(run.results), run.log) for label, run in runs.items()}
    for row, (label, run) in zip(axes, runs.items(), strict=True):
        last = points[label].results
        for ax, name in zip(row, SHARPNESS, strict=True):
            for block in last.block.values:
                (x, *across), (y, *upright) = (interval(last, of, block=block) for of in ("query_key_alignment", name))
                bars = {"elinewidth": 0.6, "fmt": "o", "markersize": 2.5, "color": colours.to_rgba(block)}
                ax.errorbar(x, y, np.abs(upright - y), np.abs(across - x), **bars)
            means = (last[f"{of}_mean"].values.ravel() for of in ("query_key_alignment", name))
            ax.set_title(correlations.words(*means).replace(", ", "\n"), fontsize=6, loc="left")
            ax.set_ylabel(style.wrap(words(runs, name), 1.5, 7), fontsize=7)
        row[0].set_ylabel(f"{label}\n{count(run.results)}\n{row[0].get_ylabel()}", fontsize=7)
    axes[0, 0].set(xlim=(-1.1, 1.1), xticks=(-1, 0, 1))  # all that a cosine can be
    for ax in axes[-1]:
        ax.set_xlabel(style.wrap(words(runs, "query_key_alignment"), 1.1, 7), fontsize=7)
    bars = band(points, "query_key_alignment", *SHARPNESS).replace("band", "bars")
    style.title(figure, f"Sharpness against alignment of each head, last checkpoint, all positions{bars}")
    style.block_bar(figure, colours, axes)
    style.footer(figure, runs)
    return figure


def heads(results: xr.Dataset) -> xr.Dataset:
    """Of the last checkpoint, all positions: every head, those of further seeds beside those of the first."""
    ends = ("", "_mean", "_low", "_high")
    names = [f"{name}{end}" for name in ("query_key_alignment", *SHARPNESS) for end in ends]
    last = results[names].isel(step=-1).sel(positions="all")
    return last.stack(any_head=("seed", "head"), create_index=False) if "seed" in last.dims else last


def count(results: xr.Dataset) -> str:
    own, runs = results.sizes["block"] * results.sizes["head"], results.sizes.get("seed", 1)
    return f"{own} heads" + f" of each of {runs} runs" * (runs > 1)
