"""Figures over the depth of a network: anisotropy, what carries it, and what of a value a null model has too."""

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.data.frequency import BINS
from anisoscope.measurement.families.entries import nulls_of
from anisoscope.measurement.tables.excess import nulls_in
from anisoscope.plot import rulers, style
from anisoscope.plot.provenance import caption
from anisoscope.plot.run import (
    NULLS,
    POSITIONS,
    Run,
    at_last,
    bands,
    holding,
    interval,
    last_step,
    layers,
    positions,
    same,
    words,
)

LARGEST = "\n(largest eigenvalue's share)"
EXCESS = ("anisotropy", "effective_rank", "twonn", "mean_cosine")
HEIGHT = 1.3  # inches of a row of excess
OF_HOOKS = {  # the quantity, and in the words of a panel
    "anisotropy": "anisotropy",
    "effective_rank": "effective rank",
    "mean_cosine": "mean cosine",
    "twonn": "dimension (TwoNN)",
}
CORRELATION, DISTANCE = "frequency_correlation", "centroid_distance_by_frequency"
SINGLE = 1  # characters of a type


def anisotropy_profile(runs: dict[str, Run]) -> Figure | None:
    """Last checkpoint: a bell for decoders, flat for encoders? (Shape of Learning, 1)"""
    looks, runs = style.inks(runs), holding(runs, "anisotropy")
    if not runs:
        return None
    sides = positions(runs, "anisotropy")
    figure = style.new(style.PAGE if len(sides) > 1 else style.SINGLE, 2.6)
    axes = figure.subplots(1, len(sides), sharey=True, squeeze=False)[0]
    depth = layers(runs, rulers.DEPTH)
    depth = depth.replace(" (", "\n(") if len(sides) > 2 else depth
    for ax, side in zip(axes, sides, strict=True):
        for label, run in runs.items():
            last = run.results.isel(step=-1).sel(positions=side)
            style.banded(ax, last.depth.values, *interval(last, "anisotropy"), label=label, **looks[label])
        ax.set(title=POSITIONS[side] if len(sides) > 1 else "", xlabel=depth)
    rulers.fit(axes, zero=True)
    axes[0].set_ylabel(words(runs, "anisotropy") + LARGEST)
    style.title(figure, f"Anisotropy over depth{at_last(runs)}")
    style.legend(axes)
    shown = "Share of the largest eigenvalue in the variance of each layer's vectors, at the last checkpoint."
    further = same(runs, sides)
    caption(figure, runs, shown, bands(runs, "anisotropy"), further)
    return figure


def anisotropy_by_checkpoint(runs: dict[str, Run]) -> Figure | None:
    """One curve per checkpoint: does it grow and settle? (Shape of Learning, 3 and 4)"""
    runs = holding(runs, "anisotropy")
    if not runs:
        return None
    sides = positions(runs, "anisotropy", steps=slice(None))
    panels = [(label, side) for label in runs for side in sides]
    columns = 2 if len(panels) > 1 else 1
    rows = -(-len(panels) // columns)
    figure = style.new(style.PAGE if columns > 1 else style.SINGLE, 0.7 + 1.6 * rows)
    grid = figure.subplots(rows, columns, sharex=len(sides) > 1, sharey=True, squeeze=False)
    colours = rulers.step_colours(last_step(runs))
    for ax, (label, side) in zip(grid.flat, panels, strict=False):
        run = runs[label]
        for step in run.results.step.values:
            curve = interval(run.results, "anisotropy", step=step, positions=side)
            style.banded(ax, run.results.layer.values, *curve, color=colours.to_rgba(step), linewidth=1.1)
        ax.set_title(f"{label}, {POSITIONS[side]}" if len(sides) > 1 else label)
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes = grid.flat[: len(panels)]
    rulers.fit(axes, zero=True)
    for ax in grid.flat[len(panels) :]:
        ax.set_axis_off()
    for ax in axes[-columns:]:
        ax.set_xlabel(layers(runs, rulers.LAYER))
    figure.supylabel(words(runs, "anisotropy") + LARGEST, fontsize=style.RC["font.size"], multialignment="center")
    style.title(figure, "Anisotropy over layers while training")
    rulers.step_bar(figure, colours, grid)
    shown = "Share of the largest eigenvalue in the variance of each layer's vectors: a curve for each checkpoint."
    caption(figure, runs, shown, bands(runs, "anisotropy"), same(runs, sides))
    return figure


def outlier_coordinates(runs: dict[str, Run]) -> Figure | None:
    """How much of the variance do a few coordinates carry, and how anisotropic is the cloud without them?"""
    looks, runs = style.inks(runs), holding(runs, "coordinate_share", "anisotropy_left_out")
    if not runs:
        return None
    tops = next(iter(runs.values())).results.top.values
    figure = style.new(style.PAGE, 4.0)
    axes = figure.subplots(2, len(tops), sharex=True, sharey="row")
    for label, run in runs.items():
        last = run.results.isel(step=-1).sel(positions="all")
        for top, (share, anisotropy) in zip(tops, axes.T, strict=True):
            in_them, without = (interval(last, name, top=top) for name in ("coordinate_share", "anisotropy_left_out"))
            style.banded(share, last.depth.values, *in_them, label=label, **looks[label])
            style.banded(anisotropy, last.depth.values, *without, **looks[label])
            if "anisotropy" in last:
                whole = {"color": looks[label]["color"], "linewidth": 0.9, "linestyle": ":"}
                anisotropy.plot(last.depth.values, interval(last, "anisotropy")[0], **whole)
    for top, ax in zip(tops, axes[0], strict=True):
        ax.set_title("top coordinate" if top == 1 else f"top {top} coordinates")
    for row in axes:
        rulers.fit(row, zero=True)
    axes[1, len(tops) // 2].set_xlabel(layers(runs, rulers.DEPTH))
    axes[0, 0].set_ylabel("share of the\nvariance in them")
    axes[1, 0].set_ylabel("anisotropy without them\n(dotted: with them)")
    style.title(figure, f"Coordinates of largest variance{at_last(runs)}, all positions")
    style.legend(axes)
    above = "Above, how much of the variance lies in the coordinates that have most of it"
    shown = f"{above}; below, the anisotropy without them."
    caption(figure, runs, shown, bands(runs, "coordinate_share", "anisotropy_left_out"))
    return figure


def excess_over_nulls(runs: dict[str, Run]) -> Figure | None:
    """What of a value would a featureless cloud, shuffled text or an untrained network have too? Last checkpoint."""
    looks, runs = style.inks(runs), {label: run for label, run in runs.items() if nulls_in(run.results)}
    names = [name for name in EXCESS if _having(runs, name)]
    if not names:
        return None
    of_these = {null for name in names for null in nulls_of(name)}
    there = {null for run in runs.values() for null in nulls_in(run.results)}
    models = [null for null in NULLS if null in of_these & there]
    figure = style.new(style.PAGE, 0.9 + HEIGHT * len(names))
    axes = figure.subplots(len(names), len(models), squeeze=False)
    for row, name in zip(axes, names, strict=True):
        having = _having(runs, name)
        for ax, null in zip(row, models, strict=True):
            for label, run in having.items():
                if null in nulls_in(run.results):
                    curve = interval(run.results.isel(step=-1), name, null=null, positions="all")
                    style.banded(ax, run.results.depth.values, *curve, label=label, **looks[label])
            _ground(ax, "no values" if ax.lines and null in nulls_of(name) else "no such null model")
        row[0].set_ylabel(style.wrap(words(having, name), HEIGHT, style.SMALL), fontsize=style.SMALL)
    for ax, null in zip(axes[0], models, strict=True):
        ax.set_title(NULLS[null])
    for column in axes.T:
        *above, lowest = [ax for ax in column if ax.lines] or [column[-1]]
        for ax in above:
            ax.tick_params(labelbottom=False)
        lowest.set_xlabel(layers(runs, rulers.DEPTH).replace(" (", "\n("))
    figure.supylabel("excess over the null model", fontsize=style.RC["font.size"])
    style.title(figure, f"Excess over null models{at_last(runs)}, all positions")
    style.legend(axes)
    shown = "Each value less that of a null model at the last checkpoint; every panel has a scale of its own."
    further = ["A Gaussian cloud of the same spectrum differs in its dimension alone."] * ("gaussian" in models)
    caption(figure, runs, shown, bands(runs, *names), further)
    return figure


def hook_points(runs: dict[str, Run]) -> Figure | None:
    """Where in a block does the shape arise? Outputs of attention and the MLP beside the residual stream."""
    runs = {label: run for label, run in runs.items() if run.hook_points}
    tables = {label: {"residual_stream": run.results} | run.hook_points for label, run in runs.items()}
    every = [table for hook_points in tables.values() for table in hook_points.values()]
    names = [name for name in OF_HOOKS if every and all(name in table for table in every)]
    if not names:
        return None
    looks = style.inks(dict.fromkeys(name for hook_points in tables.values() for name in hook_points))
    figure = style.new(style.PAGE, 0.7 + 1.7 * len(runs))
    grid = figure.subplots(len(runs), len(names), sharex=True, squeeze=False)
    for row, (label, hook_points) in zip(grid, tables.items(), strict=True):
        for ax, name in zip(row, names, strict=True):
            for point, table in hook_points.items():
                last, label_of_point = table.isel(step=-1).sel(positions="all"), point.replace("_", " ")
                style.banded(ax, last.layer.values, *interval(last, name), label=label_of_point, **looks[point])
            rulers.fit([ax], zero=True)
            ax.xaxis.set_major_locator(MaxNLocator(integer=True))
        if len(runs) > 1:
            row[0].set_ylabel(label)
    for ax, name in zip(grid[0], names, strict=True):
        ax.set_title(OF_HOOKS[name], fontsize=style.SMALL)
    for ax in grid[-1]:
        ax.set_xlabel("layer")
    style.title(figure, f"Residual stream, and what is added to it{at_last(runs)}, all positions")
    style.legend(grid)
    shown = (
        "The residual stream after every block; what attention and the feed-forward layer add to it, before "
        "it is added; and the values of all heads side by side. Each is a cloud of the same positions. "
        "Layer 0 is the embedding."
    )
    caption(figure, runs, shown, bands({str(n): Run(table, []) for n, table in enumerate(every)}, *names))
    return figure


def distance_by_frequency(runs: dict[str, Run]) -> Figure | None:
    """Do points of frequent characters lie nearer to the centroid of their character? (Revisiting Anisotropy)

    Last checkpoint: the correlation over layers, and the distance by quarter of frequency in the last layer.
    """
    looks, runs = style.inks(runs), holding(runs, CORRELATION, DISTANCE)
    if not runs:
        return None
    figure = style.new(style.PAGE, 2.6)
    left, right = figure.subplots(1, 2, squeeze=False)[0]
    for label, run in runs.items():
        last = run.results.isel(step=-1).sel(positions="all")
        _correlation(left, last, label, looks[label])
        there = last.isel(layer=-1)
        whole, mean = interval(there, "centroid_distance", ngram=SINGLE)[0], interval(there, DISTANCE)[0]
        right.plot(np.arange(len(BINS)), mean / whole, label=label, **looks[label])
    left.axhline(0, color="0.6", linewidth=0.6, zorder=1)
    left.set(xlabel=layers(runs, rulers.LAYER), ylabel="correlation of log frequency\nand distance")
    left.xaxis.set_major_locator(MaxNLocator(integer=True))
    right.set(xlabel="quarter of the text, by its characters' frequency", ylabel="distance over that\nof all points")
    right.set_xticks(range(len(BINS)), [words.replace(" quarter", "").replace(" ", "\n") for words in BINS])
    rulers.fit([right])
    style.title(figure, f"Frequency and distance to the centroid of the own character{at_last(runs)}")
    style.legend(np.array([left, right]))
    shown = (
        "Distance of each point to the mean of the other points of its character. Left: its correlation with the log "
        "frequency of the character, over points; dashed: of a Gaussian cloud of the same spectrum, which is below 0 "
        "since centroids of few points lie farther off. Right: mean distance in each quarter of the text, from the "
        "least frequent characters to the most frequent, in the last layer, over the mean of all points there."
    )
    caption(figure, runs, shown, f"{bands(runs, CORRELATION)} Right: means alone.".strip())
    return figure


def _correlation(ax: Axes, last: xr.Dataset, label: str, look: dict[str, str]) -> None:
    mean, low, high = interval(last, CORRELATION, ngram=SINGLE)
    style.banded(ax, last.layer.values, mean, low, high, label=label, **look)
    if "gaussian" in nulls_in(last):
        null = mean - interval(last, CORRELATION, "gaussian", ngram=SINGLE)[0]
        if np.isfinite(null).any():
            ax.plot(last.layer.values, null, color=look["color"], linestyle="--", linewidth=0.9)


def _ground(ax: Axes, none: str) -> None:
    """With zero; without curves an empty panel that says why."""
    if any(np.isfinite(line.get_ydata()).any() for line in ax.lines):
        rulers.fit([ax], zero=True)
        return
    for line in list(ax.lines):
        line.remove()
    ax.text(0.5, 0.5, none, transform=ax.transAxes, ha="center", color="0.4", fontsize=style.SMALL)
    ax.grid(visible=False)
    ax.set(xticks=[], yticks=[])
    ax.spines[["left", "bottom"]].set_visible(False)


def _having(runs: dict[str, Run], name: str) -> dict[str, Run]:
    """The runs that have this quantity, and a null model that has it."""
    return {label: run for label, run in holding(runs, name).items() if {*nulls_of(name)} & {*nulls_in(run.results)}}
