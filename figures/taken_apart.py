"""On how few vectors does the anisotropy hang? Last checkpoint, with and without token 0 and the longest vectors."""

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from figures import scales, style
from figures.over_depth import LARGEST
from figures.provenance import caption
from figures.run import Run, at_last, bands, holding, interval, layers, nulls
from panel.leading import WITHOUT

NAME = "anisotropy_without"
EVERYTHING = "all vectors"
COLUMNS = 3


def build(runs: dict[str, Run]) -> Figure | None:
    runs = holding(runs, "anisotropy", "first_share", NAME)
    if not runs:
        return None
    columns = min(COLUMNS, len(runs))
    rows = -(-len(runs) // columns)
    figure = style.new(style.PAGE if columns > 1 else style.SINGLE, 0.6 + 2.0 * rows)
    grid = figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False)
    for ax, (label, run) in zip(grid.flat, runs.items(), strict=False):
        last = run.results.isel(step=-1)
        everywhere = last.sel(positions="all")
        curves = {EVERYTHING: interval(everywhere, "anisotropy")}
        if "without_first" in last.positions:
            curves["without token 0"] = interval(last.sel(positions="without_first"), "anisotropy")
        curves |= {f"without the {words}": interval(everywhere, NAME, without=words) for words in WITHOUT}
        for (words, curve), ink, marker in zip(curves.items(), style.INKS, style.MARKERS, strict=False):
            ends = curve[1:] if words == EVERYTHING else [np.full_like(curve[0], np.nan)] * 2  # bands would hide bands
            style.banded(ax, last.layer.values, curve[0], *ends, label=words, color=ink, marker=marker)
        bound = interval(everywhere, "first_share")[0]
        if np.isfinite(bound).any():
            ax.plot(last.layer.values, bound, color="0.35", linestyle=":", label="token 0 alone\n(lower bound)")
        if "gaussian" in nulls(last):
            excess = interval(everywhere, NAME, less="gaussian", without=WITHOUT[-1])[0]
            null = curves[f"without the {WITHOUT[-1]}"][0] - excess
            words = f"Gaussian cloud,\nwithout the {WITHOUT[-1]}"
            ax.plot(last.layer.values, null, color="0.35", linestyle="--", linewidth=0.9, label=words)
        ax.set_title(label)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        ax.set_xlabel(layers(runs, scales.LAYER))
    axes = list(grid.flat[: len(runs)])
    scales.fit(axes, zero=True)
    for ax in grid.flat[len(runs) :]:
        ax.set_axis_off()
    grid[0, 0].set_ylabel(f"anisotropy{LARGEST}")
    style.title(figure, f"Anisotropy taken apart{at_last(runs)}")
    style.legend(grid)
    shown = (
        "Share of the largest eigenvalue in the variance of each layer's vectors: of all vectors, without token 0 of "
        "each window, without the longest vector of each window, and without the longest 1 %. What is removed is long, "
        "so that this lowers the value in a Gaussian cloud too. Dotted: the share of the scatter that lies between "
        "token 0 of each window and the rest, which bounds the anisotropy of all vectors from below."
    )
    caption(figure, runs, shown, bands(runs, "anisotropy", what="band, of all vectors"))
    return figure
