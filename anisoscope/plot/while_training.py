"""Figures over training steps: a panel per quantity, with a line per run, or with a line per block or layer.

From tables of checkpoints; and from the log: the loss, and what was watched, dense in time.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from anisoscope.measurement.tables.averages import over_blocks, over_heads
from anisoscope.plot import rulers, style
from anisoscope.plot.provenance import caption
from anisoscope.plot.run import Run, bands, holding, interval, last_step, words
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.watch import BLOCKS, LAYERS


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
WORDS = LAYERS | BLOCKS
WATCHED = {
    "watched_geometry": ("Geometry", ("anisotropy", "participation_ratio", "mean_cosine", "drift")),
    "watched_attention": ("Norms and attention", ("mean_norm", "attention_first", "gradient_norm")),
}
READ = "Lines: layers, of a batch of the training text, another at each look."


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
    heads = depth == "block"
    style.title(figure, f"{title}{', mean over heads' * heads}, all positions")
    rulers.patch_bar(figure, colours, axes, depth if heads else rulers.LAYER)
    lines = f"a line for each {depth}{', the mean over its heads' * heads}"
    caption(figure, runs, f"{title}: {lines}.", f"{bands(runs, *drawn)} {over.words}".strip())
    return figure


def training_curve(runs: dict[str, Run]) -> Figure | None:
    looks, runs = style.inks(runs), {label: run for label, run in runs.items() if run.log}
    if not runs:
        return None
    kinds = [kind for kind in OBJECTIVES if any(run.results.attrs["objective"] == kind for run in runs.values())]
    figure = style.new(style.PAGE * (0.65 if len(kinds) == 1 else 1), 2.6)
    axes = figure.subplots(1, len(kinds), squeeze=False)[0]
    for ax, kind in zip(axes, kinds, strict=True):
        last, free_levels = 0, set()
        for label, run in runs.items():
            if run.results.attrs["objective"] != kind:
                continue
            color, marker = looks[label]["color"], looks[label]["marker"]
            steps, bits = curve(run.log, "train")
            ax.plot(steps, bits, color=color, linewidth=0.6, alpha=0.7)
            marked, measured = curve(run.log, "valid")
            ax.plot(marked, measured, color=color, marker=marker, markersize=3, linestyle="none", label=label)
            if free := [line["context_free_bits"] for line in run.log if "context_free_bits" in line]:
                free_levels.add(round(free[-1], 3))
            last = max(last, *steps, *marked)
        for level in free_levels:
            ax.axhline(level, color="0.4", linewidth=0.8, linestyle=":", label="without context")
        rulers.step_axis(ax, last)
        ax.set(title=f"predicting {OBJECTIVES[kind].label}", ylabel="bits per predicted character")
    style.legend(axes)
    style.title(figure, "Bits per predicted character while training")
    read = "Lines: training batches; marks: validation; dotted: what frequencies of characters alone give."
    apart = ["Bits of the two objectives are not comparable."] * (len(kinds) > 1)
    caption(figure, runs, "Loss while training.", " ".join([read, *apart]))
    return figure


def curve(log: list[dict[str, Any]], kind: str) -> tuple[list[int], list[float]]:
    """Steps and bits per character of one kind of line; of a step that was run twice the later line counts."""
    bits = {line["step"]: line["bits_per_character"] for line in log if line["kind"] == kind}
    return sorted(bits), [bits[step] for step in sorted(bits)]


def watched(title: str, names: tuple[str, ...], runs: dict[str, Run]) -> Figure | None:
    """Each column has one scale: rows compare. Runs that were not watched are left out."""
    curves = {label: curve for label, run in runs.items() if (curve := of_watch(run.log))}
    runs = {label: runs[label] for label in curves}
    if not runs:
        return None
    figure, axes = rulers.rows_of_runs([*runs], [style.label(*WORDS[name]) for name in names])
    firsts = [curve[names[0]] for curve in curves.values()]
    colours = rulers.layer_colours(max(values.shape[1] for _, values in firsts))
    last = max(int(steps[-1]) for steps, _ in firsts)
    for row, label in zip(axes, runs, strict=True):
        for ax, name in zip(row, names, strict=True):
            steps, values = curves[label][name]
            for place, line in enumerate(values.T, start=int(name in BLOCKS)):
                ax.plot(steps, line, color=colours.to_rgba(place), linewidth=0.8)
            rulers.step_axis(ax, last)
    rulers.fit_columns(axes)
    style.title(figure, f"{title} of training batches, all positions")
    rulers.patch_bar(figure, colours, axes)
    caption(figure, runs, f"{title} while training (training/watch.py).", READ)
    return figure


def of_watch(log: list[dict[str, Any]]) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """{quantity: (steps, values by layer)}; the step is that of the parameters, before the update that a line is of."""
    lines = {line["step"] - 1: line for line in log if line["kind"] == "watch"}
    steps = np.array(sorted(lines))
    return {name: (steps, np.array([lines[step][name] for step in steps])) for name in WORDS} if lines else {}


# From the log: the file's name and what draws it.
FROM_LOG = {"training_curve": training_curve} | {name: partial(watched, *panels) for name, panels in WATCHED.items()}
