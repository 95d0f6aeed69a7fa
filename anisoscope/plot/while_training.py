"""Figures over training steps: a panel per quantity, with a line per run, or with a line per block or layer."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.measurement.tables.averages import over_blocks, over_heads
from anisoscope.plot import rulers, style
from anisoscope.plot.provenance import caption
from anisoscope.plot.run import Run, bands, holding, interval, last_step, words


class Panels(NamedTuple):
    title: str
    quantities: tuple[str, ...]  # a panel each
    one_scale: bool = False  # of all panels


BY_RUN = {
    # Up, then down? (Shape of Learning, 2)
    "dimension_over_training": Panels("Dimension while training", ("twonn", "twonn_microscope"), one_scale=True),
    # How many directions carry the variance while a model learns, and how fast does the spectrum fall?
    "spectrum_over_training": Panels("Spectrum while training", ("effective_rank", "participation_ratio", "alpha_req")),
}

BY_DEPTH = {
    # When does each layer take its final shape, and how much does it change between checkpoints?
    "change_over_training": Panels("Change of layers while training", ("cka_last", "overlap_last", "cka_previous")),
    # Do queries and keys drift apart from 0, together? (Anisotropy Is Inherent to Self-Attention)
    "query_key_drift": Panels(
        "Drift of queries and keys", ("query_drift", "key_drift", "query_key_alignment", "query_key_cosine")
    ),
    # Beside their drift, how far do queries and keys spread, and how much of the scores is the drift's alone?
    "query_key_fluctuation": Panels(
        "Fluctuation of queries and keys", ("query_fluctuation", "key_fluctuation", "score_share_of_means")
    ),
    # Does attention sharpen while a model learns? (Anisotropy Is Inherent to Self-Attention)
    "attention_sharpness": Panels(
        "Sharpness of attention", ("score_std_within", "attention_entropy", "attention_max", "attention_first")
    ),
}


class Axis(NamedTuple):
    """What lies below the curves."""

    of: str  # a variable over steps
    draw: Callable[[Axes, dict[str, Run]], None]
    words: str = ""  # for the caption


def _gains(ax: Axes, runs: dict[str, Run]) -> None:
    ax.axvline(0, color="0.6", linewidth=0.7, zorder=1)  # no better than the frequencies of characters
    ax.set_xlabel("context gain (bits)")


AXES = {
    "step": Axis("step", lambda ax, runs: rulers.step_axis(ax, last_step(runs))),
    "context_gain": Axis(
        "validation_context_gain", _gains, "Context gain: bits less than the best answer without context needs."
    ),
}


def figures(over: str) -> dict[str, Callable[[dict[str, Run]], Figure | None]]:
    """All of them, over steps or context gain."""
    return {
        **{name: partial(by_run, panels, over=AXES[over]) for name, panels in BY_RUN.items()},
        **{name: partial(by_depth, panels, over=AXES[over]) for name, panels in BY_DEPTH.items()},
    }


def by_run(panels: Panels, runs: dict[str, Run], over: Axis) -> Figure | None:
    """A line per run, averaged over blocks."""
    # without the embedding: where positions are rotary it is a few hundred points repeated, of no dimension
    names = [over_blocks(name) for name in panels.quantities]
    looks, runs = style.inks(runs), holding(runs, *panels.quantities, *names)
    if not runs:
        return None
    figure = style.new(style.PAGE, 2.6)
    axes = figure.subplots(1, len(names), sharey=panels.one_scale)
    for ax, name, average in zip(axes, panels.quantities, names, strict=True):
        for label, run in runs.items():
            curve = interval(run.results, average, positions="all")
            style.banded(ax, run.results[over.of].values, *curve, label=label, **looks[label])
        over.draw(ax, runs)
        title = words(runs, name).replace(" (", "\n(").replace(" of the ", "\nof the ")
        ax.set_title(title, fontsize=style.SMALL)
    for group in [axes] if panels.one_scale else [[ax] for ax in axes]:
        rulers.fit(group)
    axes[0].set_ylabel("mean over blocks")
    style.title(figure, f"{panels.title}, all positions")
    style.legend(axes)
    shown = f"{panels.title}: means over the outputs of all blocks."
    caption(figure, runs, shown, f"{bands(runs, *names)} {over.words}".strip())
    return figure


def by_depth(panels: Panels, runs: dict[str, Run], over: Axis) -> Figure | None:
    """A row per run, a line per layer, or per block the mean over heads; a column has one scale: rows compare."""
    title, names, _ = panels
    runs = holding(runs, *names)
    if not runs:
        return None
    depth = "block" if "block" in next(iter(runs.values())).results[names[0]].dims else "layer"
    drawn = [over_heads(name) if depth == "block" else name for name in names]
    figure, axes = rulers.rows_of_runs([*runs], [words(runs, name) for name in names])
    most = max(run.results.sizes[depth] for run in runs.values())
    colours = rulers.block_colours(most) if depth == "block" else rulers.layer_colours(most)
    for row, run in zip(axes, runs.values(), strict=True):
        for ax, name in zip(row, drawn, strict=True):
            over.draw(ax, runs)
            for place in run.results[depth].values:
                curve = interval(run.results, name, positions="all", **{depth: place})
                look = {"color": colours.to_rgba(place), "linewidth": 1.1, "marker": "o", "markersize": 1.8}
                style.banded(ax, run.results[over.of].values, *curve, **look)
    rulers.fit_columns(axes)
    if depth == "block":
        style.title(figure, f"{title}, mean over heads, all positions")
        rulers.block_bar(figure, colours, axes)
    else:
        style.title(figure, f"{title}, all positions")
        rulers.layer_bar(figure, colours, axes)
    lines = "a line for each block, the mean over its heads" if depth == "block" else "a line for each layer"
    caption(figure, runs, f"{title}: {lines}.", f"{bands(runs, *drawn)} {over.words}".strip())
    return figure
