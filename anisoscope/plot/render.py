"""Draw a `Spec`: panels in rows and columns with intervals, labels, a legend and provenance."""

import itertools
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import panel_axes, style
from anisoscope.plot.footer import caption
from anisoscope.plot.run_tables import (
    NULLS,
    POSITIONS,
    Run,
    at_last,
    describe_bands,
    last_step,
    layers_label,
    note_same,
    runs_with,
    tables,
    variable_label,
)
from anisoscope.plot.spec_curves import (
    hue_colors,
    labels_along,
    panel,
    quantities_of,
    runs_that_have,
    variable,
)
from anisoscope.plot.specs import GAIN, HOOK_POINT, KIND, NULL, OVER_TRAINING, QUANTITY, RUN, Spec

GAIN_WORDS = "Gain over unigram: bits of the best answer without context minus bits of the model."


def render(spec: Spec, runs: dict[str, Run]) -> Figure | None:
    """Draw the figure of these runs; None if no run has its quantities.

    A run keeps its color if others are missing.
    """
    styles, runs = style.run_styles(runs), runs_that_have(spec, runs)
    if not runs:
        return None
    quantities = quantities_of(spec, runs)
    rows, columns = (
        labels_along(axis, spec, runs, quantities) for axis in (spec.rows, spec.columns)
    )
    if not rows or not columns:
        return None
    every = [*itertools.product(rows, columns)]
    wrapped = bool(spec.wrap) and len(rows) == 1
    across = min(spec.wrap, len(columns)) if wrapped else len(columns)
    down = -(-len(every) // across)
    height = 2.0 if down == 1 else 1.5
    figure = style.new_figure(
        style.PAGE if across > 1 or spec.strip else style.SINGLE, 0.9 + height * down
    )
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
        place = at | dict(zip((spec.rows, spec.columns), labels, strict=True))
        panel(ax, spec, runs, place, styles, colors)
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
    _add_key(spec, runs, figure, grid, strip, colors)
    sides = (
        rows if spec.rows == "positions" else columns if spec.columns == "positions" else ["all"]
    )
    _add_words(spec, runs, figure, quantities, sides)
    return figure


def _set_limits(spec: Spec, grid: np.ndarray) -> None:
    groups = {
        "figure": [grid.flat],
        "row": grid,
        "column": grid.T,
        "panel": [[ax] for ax in grid.flat],
    }
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
    figure: Figure,
    grid: np.ndarray,
    strip: Axes | None,
    colors: ScalarMappable | None,
) -> None:
    """Add a color bar for hues in order, a legend for others."""
    handles, labels = style.legend_entries(grid.flat)
    if colors and spec.hue == "step":
        panel_axes.step_bar(figure, colors, grid)
    elif colors:
        named = {"layer": layers_label(runs, panel_axes.LAYER)}
        panel_axes.patch_bar(figure, colors, grid, named.get(spec.hue, spec.hue))
    elif strip is not None:
        strip.legend(handles, labels, loc="center", ncols=len(labels))
    elif spec.columns == KIND:
        for ax in grid[0]:
            if not style.label_ends(ax):
                ax.legend()
    else:
        named = {*style.legend_entries([grid[0, -1]])[1]} == {*labels}
        if spec.hue != RUN or not named or not style.label_ends(grid[0, -1]):
            style.legend(grid)
    extra = [line.label for line in spec.lines]
    if colors and extra:
        kept = {name: handle for handle, name in zip(handles, labels, strict=True) if name in extra}
        grid[0, -1].legend(kept.values(), kept.keys(), loc="upper right")


def _add_words(
    spec: Spec,
    runs: dict[str, Run],
    figure: Figure,
    quantities: tuple[str, ...],
    sides: list[str],
) -> None:
    """Add title and caption; a title longer than a line continues in the footer."""
    last = "" if spec.x in OVER_TRAINING or spec.hue == "step" else at_last(runs)
    has_positions = any("positions" in table.dims for table in tables(runs))
    where = last + ", all positions" * (has_positions and len(sides) == 1)
    whole = f"{spec.title}{where}"
    fits = "\n" not in style.wrap(whole, figure.get_figwidth(), style.RC["figure.titlesize"])
    style.title(figure, whole if fits else spec.title)
    shown = [*tables(runs)]
    if spec.hue == HOOK_POINT:
        shown += [table for run in runs.values() for table in run.hook_points.values()]
    names = [*quantities, *(line.quantity for line in spec.lines)]
    words = [
        f"{where[2:].capitalize()}." * bool(where and not fits),
        describe_bands(shown, *(variable(spec, name) for name in names), what=spec.bands_of),
        spec.note,
        GAIN_WORDS * (spec.x == GAIN),
    ]
    same = note_same(runs, sides) if "positions" in (spec.rows, spec.columns) else []
    bands = " ".join(word for word in words if word)
    caption(figure, runs, spec.shown, bands, [*spec.further, *same])
