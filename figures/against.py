"""One quantity against another at the last checkpoint: do the layers, or the heads, that have much of one have much
of the other?"""

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from figures import scales, style
from figures.provenance import footer
from figures.run import POSITIONS, Run, bands, holding, interval, positions, words
from studies import correlations

SHARPNESS = ("attention_entropy", "attention_max", "score_std_within", "attention_first")


def cosine_against_drift(runs: dict[str, Run]) -> Figure | None:
    """A point per layer (Anisotropy Is Inherent to Self-Attention)."""
    looks, runs = style.inks(runs), holding(runs, "mean_cosine", "drift")
    if not runs:
        return None
    sides = positions(runs)
    key = 0.4 + 0.3 * len(runs)  # inches: a title and two lines of type for each run
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
        below.legend(*style.entries([ax]), loc="upper center", title="Pearson r, Spearman ρ (hollow: embedding)")
    figure.axes[0].set_ylabel(words(runs, "mean_cosine"))
    bars = bands(runs, "drift", "mean_cosine", what="bars")
    style.title(figure, "Mean cosine against drift, last checkpoint", bars)
    footer(figure, runs)
    return figure


def sharpness_against_alignment(runs: dict[str, Run]) -> Figure | None:
    """Are the heads whose queries and keys drift together the sharp ones? (Anisotropy Is Inherent to Self-Attention)

    A point per head, of every seed; all heads of a row are one correlation.
    """
    runs = holding(runs, "query_key_alignment", *SHARPNESS)
    if not runs:
        return None
    figure = style.new(style.PAGE, 0.8 + 1.9 * len(runs))
    axes = figure.subplots(len(runs), len(SHARPNESS), sharex=True, sharey="col", squeeze=False)
    colours = scales.block_colours(max(run.results.sizes["block"] for run in runs.values()))
    for row, (label, run) in zip(axes, runs.items(), strict=True):
        last = every_head(run.results)
        for ax, name in zip(row, SHARPNESS, strict=True):
            for block in last.block.values:
                (x, *across), (y, *upright) = (interval(last, of, block=block) for of in ("query_key_alignment", name))
                bars = {"elinewidth": 0.6, "fmt": "o", "markersize": 2.5, "color": colours.to_rgba(block)}
                ax.errorbar(x, y, np.abs(upright - y), np.abs(across - x), **bars)
            means = (interval(last, of)[0].ravel() for of in ("query_key_alignment", name))
            ax.set_title(correlations.words(*means).replace(", ", "\n"), fontsize=6, loc="left")
            ax.set_ylabel(style.wrap(words(runs, name), 1.5, 7), fontsize=7)
        row[0].set_ylabel(f"{label}\n{count(run.results)}\n{row[0].get_ylabel()}", fontsize=7)
    axes[0, 0].set(xlim=(-1.1, 1.1), xticks=(-1, 0, 1))  # all that a cosine can be
    for ax in axes[-1]:
        ax.set_xlabel(style.wrap(words(runs, "query_key_alignment"), 1.1, 7), fontsize=7)
    bars = bands(runs, "query_key_alignment", *SHARPNESS, what="bars")
    style.title(figure, "Sharpness against alignment of each head, last checkpoint, all positions", bars)
    scales.block_bar(figure, colours, axes)
    footer(figure, runs)
    return figure


def every_head(results: xr.Dataset) -> xr.Dataset:
    """Of the last checkpoint, all positions: every head, those of further seeds beside those of the first."""
    last = results[["query_key_alignment", *SHARPNESS]].isel(step=-1).sel(positions="all")
    return last.stack(any_head=("seed", "head"), create_index=False) if "seed" in last.dims else last


def count(results: xr.Dataset) -> str:
    own, runs = results.sizes["block"] * results.sizes["head"], results.sizes.get("seed", 1)
    return f"{own} heads" + f" of each of {runs} runs" * (runs > 1)
