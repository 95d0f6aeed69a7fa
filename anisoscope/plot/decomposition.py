"""Which curves over depth does a handful of vectors make? Last checkpoint, without token 0 and without the longest."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.measurement.families.leading import WITHOUT
from anisoscope.measurement.tables.excess import nulls_in
from anisoscope.plot import rulers, style
from anisoscope.plot.provenance import caption
from anisoscope.plot.run import Run, at_last, bands, holding, interval, layers

NAMES = {  # the quantity, and in the words of a panel
    "anisotropy": "anisotropy",
    "mean_cosine": "mean cosine",
    "drift": "drift |E x|",
    "twonn": "dimension (TwoNN)",
}
EVERYTHING = "all vectors"
COLUMNS = 2  # of the panels of one run alone


def build(runs: dict[str, Run]) -> Figure | None:
    runs = holding(runs, "anisotropy", "first_share", "anisotropy_without")
    if not runs:
        return None
    names = [name for name in NAMES if holding(runs, name, f"{name}_without")]
    columns = min(COLUMNS, len(names)) if len(runs) == 1 else len(names)
    rows = -(-len(runs) * len(names) // columns)
    figure = style.new(style.PAGE if columns > 1 else style.SINGLE, 0.6 + (2.0 if columns <= COLUMNS else 1.6) * rows)
    grid = figure.subplots(rows, columns, sharex=True, squeeze=False)
    places = [(label, name) for label in runs for name in names]
    for ax, (label, name) in zip(grid.flat, places, strict=False):
        panel(ax, runs[label], name)
        rulers.fit([ax], zero=True)
        first = len(runs) == 1 or label == next(iter(runs))
        ax.set_title(NAMES[name] if first else "", fontsize=style.SMALL)
        if len(runs) > 1 and name == names[0]:
            ax.set_ylabel(label)
    for ax in grid.flat[len(places) :]:
        ax.set_axis_off()
    for ax in grid.flat[: len(places)][-columns:]:  # below which there is none
        ax.set_xlabel(layers(runs, rulers.LAYER) if columns <= COLUMNS else "layer")
        ax.tick_params(labelbottom=True)
    style.title(figure, f"Effect of removing the longest vectors{at_last(runs)}")
    style.legend(grid)
    caption(figure, runs, shown(names), bands(runs, *names, what="band, of all vectors"))
    return figure


def panel(ax: Axes, run: Run, name: str) -> None:
    """The versions of a quantity over layers; nothing where the run has none of it."""
    without = f"{name}_without"
    if not holding({"": run}, name, without):
        return
    last = run.results.isel(step=-1)
    everywhere = last.sel(positions="all")
    curves = {EVERYTHING: interval(everywhere, name)}
    if "without_first" in last.positions:
        curves["without token 0"] = interval(last.sel(positions="without_first"), name)
    curves |= {f"without the {words}": interval(everywhere, without, without=words) for words in WITHOUT}
    for (words, curve), ink, marker in zip(curves.items(), style.INKS, style.MARKERS, strict=False):
        ends = curve[1:] if words == EVERYTHING else [np.full_like(curve[0], np.nan)] * 2  # bands would hide bands
        style.banded(ax, last.layer.values, curve[0], *ends, label=words, color=ink, marker=marker)
    bound = interval(everywhere, "first_share")[0]
    if name == "anisotropy" and np.isfinite(bound).any():
        ax.plot(last.layer.values, bound, color="0.35", linestyle=":", label="token 0 alone\n(lower bound)")
    if "gaussian" in nulls_in(last):
        least = WITHOUT[-1]
        null = curves[f"without the {least}"][0] - interval(everywhere, without, "gaussian", without=least)[0]
        if np.isfinite(null).any():
            words = f"Gaussian cloud,\nwithout the {least}"
            ax.plot(last.layer.values, null, color="0.35", linestyle="--", linewidth=0.9, label=words)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))


def shown(names: list[str]) -> str:
    said = ", ".join(NAMES[name] for name in names)
    return (
        f"Over the layers, {said}: of all vectors, without token 0 of each window, without the longest vector of each "
        "window, and without the longest 1 %. Anisotropy is the share of the largest eigenvalue of the variance. What "
        "is removed is long, so that this lowers it in a Gaussian cloud too (dashed). Dotted: the share of the scatter "
        "between token 0 of each window and the rest, which bounds the anisotropy of all vectors from below."
    )
