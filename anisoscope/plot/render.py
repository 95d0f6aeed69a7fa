"""Draw a `Spec`: panels in rows and columns with intervals, labels, a legend and provenance."""

import itertools
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import panel_axes, style
from anisoscope.plot.run_tables import (
    NULLS,
    POSITIONS,
    Run,
    at_last,
    caption,
    describe_bands,
    last_step,
    layers_label,
    runs_with,
    variable_label,
)
from anisoscope.plot.spec_curves import hue_colors, labels_along, panel, select_runs, variable
from anisoscope.plot.specs import GAIN, HOOK_POINT, KIND, NULL, OVER_TRAINING, QUANTITY, RUN, Spec

GAIN_WORDS = "Gain over unigram: bits of the best answer without context minus bits of the model."


def render(spec: Spec, runs: dict[str, Run]) -> Figure | None:
    """Draw the figure of these runs; None if no run has its quantities.

    A run keeps its color if others are missing.
    """
    styles, (runs, quantities) = style.run_styles(runs), select_runs(spec, runs)
    axes = (spec.rows, spec.columns)
    rows, columns = (labels_along(axis, spec, runs, quantities) for axis in axes)
    if not runs or not rows or not columns:
        return None
    every = [*itertools.product(rows, columns)]
    wrapped = bool(spec.wrap) and len(rows) == 1
    across = min(spec.wrap, len(columns)) if wrapped else len(columns)
    down = -(-len(every) // across)
    height = 2.0 if down == 1 else 1.5
    width = style.PAGE if across > 1 or spec.strip else style.SINGLE
    figure = style.new_figure(width, 0.9 + height * down)
    if spec.strip:
        strip, grid = style.grid_below_legend(figure, down, across, height)
    else:
        strip, grid = None, figure.subplots(down, across, squeeze=False)
    hues = labels_along(spec.hue, spec, runs, quantities)
    colors = hue_colors(spec, runs, hues)
    styles = styles if spec.hue == RUN else style.run_styles(hues)
    at = {QUANTITY: quantities[0], "positions": "all", **spec.at}
    panels = dict(zip(every, grid.flat, strict=False))
    for labels, ax in panels.items():
        panel(ax, spec, runs, at | dict(zip(axes, labels, strict=True)), styles, colors)
    for ax in grid.flat[len(every) :]:
        ax.set_axis_off()
    _set_limits(spec, grid)
    for number, ((row, column), ax) in enumerate(panels.items()):
        if spec.columns and (number < across or wrapped) and columns != ["all"]:
            width = 0.75 * style.PAGE / across
            style.panel_title(ax, _name(spec, runs, spec.columns, column), width)
        if spec.rows and number % across == 0 and rows != ["all"]:
            text = style.wrap(_name(spec, runs, spec.rows, row), 1.3, style.SMALL)
            weight = "bold" if spec.rows == RUN else "normal"
            ax.set_ylabel(text, fontsize=style.SMALL, fontweight=weight)
        if ax.lines:
            _x_axis(ax, spec, runs, across)
    _name_axes(spec, runs, grid, quantities[0])
    _add_key(spec, runs, grid, strip, colors)
    one_set = "positions" not in axes or ["all"] in (rows, columns)
    _add_words(spec, runs, figure, quantities, ", all positions" * one_set)
    return figure


def _set_limits(spec: Spec, grid: np.ndarray) -> None:
    panels = [[ax] for ax in grid.flat]
    groups = {"figure": [grid.flat], "row": grid, "column": grid.T, "panel": panels}
    for group in groups[spec.scale]:
        axes = [ax for ax in group if ax.lines]
        if spec.log:
            panel_axes.fit_logarithmic(axes)
        elif axes:
            panel_axes.fit(axes, zero=spec.zero)


def _x_axis(ax: Axes, spec: Spec, runs: dict[str, Run], across: int) -> None:
    if spec.x == GAIN:
        ax.axvline(0, color="0.6", linewidth=0.7, zorder=1)  # as good as frequencies of characters
        ax.set_xlabel("gain over unigram (bits)")
    elif spec.x == "step":
        panel_axes.step_axis(ax, last_step(runs))
    elif spec.x == "depth":
        text = layers_label(runs, panel_axes.DEPTH)
        ax.set_xlabel(text.replace(" (", "\n(") if across > 2 else text)
    elif spec.x in ("layer", "block"):
        full = spec.x == "layer" and across <= 2
        ax.set_xlabel(layers_label(runs, panel_axes.LAYER) if full else spec.x)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    else:
        labels = next(iter(runs.values())).results[spec.x].values
        numbers = labels.dtype.kind in "iuf"
        panel_axes.rank_axis(ax, labels) if numbers else panel_axes.name_axis(ax, spec.x, labels)


def _name_axes(spec: Spec, runs: dict[str, Run], grid: np.ndarray, quantity: str) -> None:
    """Keep axis names only at the lowest panels, and on the left if panels share a scale."""
    for column in grid.T:
        for ax in [ax for ax in column if ax.lines][:-1]:
            ax.set_xlabel("")
            ax.tick_params(labelbottom=False)
    for ax in grid[:, 1:].flat if spec.scale in ("figure", "row") else ():
        ax.tick_params(labelleft=False)
    if QUANTITY in (spec.rows, spec.columns) and not spec.label:
        return
    text, size = spec.label or _name(spec, runs, QUANTITY, quantity), style.RC["font.size"]
    if len(grid) == 1 and not spec.rows:
        grid[0, 0].set_ylabel(style.wrap(text, 1.9, size))
    else:
        grid[0, 0].figure.supylabel(style.wrap(text, 1.4 * len(grid), size), fontsize=size)


def _name(spec: Spec, runs: dict[str, Run], axis: str, label: Any) -> str:
    """Name a row or a column."""
    if label in spec.names:
        return spec.names[label]
    if axis == QUANTITY:
        name = label if runs_with(runs, label) else variable(spec, label)
        return variable_label(runs_with(runs, name), name)
    if axis in ("positions", NULL):
        return (POSITIONS if axis == "positions" else NULLS)[label]
    if axis == "layer" and label == 0:
        return layers_label(runs, "layer 0 (embedding)")
    return str(label) if axis == RUN else f"{axis} {label}"


def _add_key(
    spec: Spec,
    runs: dict[str, Run],
    grid: np.ndarray,
    strip: Axes | None,
    colors: ScalarMappable | None,
) -> None:
    """Add a color bar for hues in order, a legend for others."""
    handles, labels = style.legend_entries(grid.flat)
    corner = grid[0, -1]
    if colors and spec.hue == "step":
        panel_axes.step_bar(corner.figure, colors, grid)
    elif colors:
        named = {"layer": layers_label(runs, panel_axes.LAYER)}
        panel_axes.patch_bar(corner.figure, colors, grid, named.get(spec.hue, spec.hue))
        extra = [line.label for line in spec.lines]
        kept = {name: handle for handle, name in zip(handles, labels, strict=True) if name in extra}
        if kept:
            corner.legend(kept.values(), kept.keys(), loc="upper right")
    elif strip is not None:
        strip.legend(handles, labels, loc="center", ncols=len(labels))
    elif spec.columns == KIND:
        for ax in grid[0]:
            if not style.label_ends(ax):
                ax.legend()
    else:
        named = {*style.legend_entries([corner])[1]} == {*labels}
        if spec.hue != RUN or not named or not style.label_ends(corner):
            style.legend(grid)


def _add_words(
    spec: Spec, runs: dict[str, Run], figure: Figure, quantities: tuple[str, ...], positions: str
) -> None:
    """Add title and caption; a title longer than a line continues in the footer."""
    last = "" if spec.x in OVER_TRAINING or spec.hue == "step" else at_last(runs)
    shown = [run.results for run in runs.values()]
    has_positions = any("positions" in table.dims for table in shown)
    where = last + positions * has_positions
    whole = f"{spec.title}{where}"
    fits = "\n" not in style.wrap(whole, figure.get_figwidth(), style.RC["figure.titlesize"])
    style.title(figure, whole if fits else spec.title)
    if spec.hue == HOOK_POINT:
        shown += [table for run in runs.values() for table in run.hook_points.values()]
    names = [*quantities, *(line.quantity for line in spec.lines)]
    words = [
        f"{where[2:].capitalize()}." * bool(where and not fits),
        describe_bands(shown, *(variable(spec, name) for name in names)),
        spec.note,
        GAIN_WORDS * (spec.x == GAIN),
    ]
    bands = " ".join(word for word in words if word)
    caption(figure, runs, spec.shown, bands, spec.further)
