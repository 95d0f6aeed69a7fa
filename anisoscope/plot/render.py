"""Draw a `Spec`: panels in rows and columns with intervals, labels, a legend and provenance."""

import itertools
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.metrics.registry import null_models_for
from anisoscope.plot import panel_axes, specs, style
from anisoscope.plot import run_tables as tables
from anisoscope.plot.run_tables import NULLS_IN_FIGURES, Curve, Run, layers_label, runs_with
from anisoscope.plot.specs import (
    HOOK_POINT,
    KIND_ROLE,
    LINE,
    NULL_ROLE,
    QUANTITY_ROLE,
    RUN_ROLE,
    Line,
    Place,
    Spec,
)
from anisoscope.results.frame import nulls_in
from anisoscope.results.summary import block_average, over_heads

ORDERED = ("step", "layer", "block")  # hues in order of depth or time: a color bar, no legend
DENSE = 60  # points of a curve without marks
ACROSS = 3  # panels side by side in a figure of a single row
STREAM_NAME = "residual_stream"
AVERAGES = {"blocks": block_average, "heads": over_heads}
GAIN_WORDS = "Gain over unigram: bits of the best answer without context minus bits of the model."
SEED_WORDS = " Seeds are averaged at equal steps, and so are their gains."


def render(spec: Spec, runs: dict[str, Run]) -> Figure | None:
    """Draw the figure of these runs; None if no run has its quantities.

    A run keeps its color if others are missing.
    """
    styles, (runs, quantities) = style.run_styles(runs), select_runs(spec, runs)
    axes = (spec.rows, spec.columns)
    rows, columns = (labels_along(axis, spec, runs, quantities) for axis in axes)
    if not runs or not rows or not columns:
        return None
    every, across = [*itertools.product(rows, columns)], len(columns)
    if single_row := len(rows) == 1:
        across = -(-across // -(-across // ACROSS))
    down, width = -(-len(every) // across), style.PAGE_WIDTH if across > 1 else style.SINGLE_WIDTH
    figure = style.new_figure(width, 0.9 + (2.0 if down == 1 else 1.5) * down)
    grid = figure.subplots(down, across, squeeze=False)
    hues = labels_along(spec.hue, spec, runs, quantities)
    colors = hue_colors(spec, runs, hues)
    styles = styles if spec.hue == RUN_ROLE else style.run_styles(hues)
    at = {QUANTITY_ROLE: quantities[0], "positions": "all", **spec.at}
    panels = dict(zip(every, grid.flat, strict=False))
    for labels, ax in panels.items():
        draw_panel(ax, spec, runs, at | dict(zip(axes, labels, strict=True)), styles, colors)
    for ax in grid.flat[len(every) :]:
        ax.set_axis_off()
    _set_limits(spec, grid, "panel" if single_row and spec.scale == "column" else spec.scale)
    for number, ((row, column), ax) in enumerate(panels.items()):
        if spec.columns and (number < across or single_row) and columns != ["all"]:
            width = 0.75 * style.PAGE_WIDTH / across
            style.panel_title(ax, _name(spec, runs, spec.columns, column), width)
        if spec.rows and number % across == 0 and rows != ["all"]:
            text = style.wrap(_name(spec, runs, spec.rows, row), 1.3, style.SMALL_FONT)
            weight = "bold" if spec.rows == RUN_ROLE else "normal"
            ax.set_ylabel(text, fontsize=style.SMALL_FONT, fontweight=weight)
        if ax.lines:
            _x_axis(ax, spec, runs, across)
    _name_axes(spec, runs, grid, quantities[0])
    _add_key(spec, runs, grid, colors)
    all_positions = "positions" not in axes or ["all"] in (rows, columns)
    _add_words(spec, runs, figure, quantities, ", all positions" * all_positions)
    return figure


def _set_limits(spec: Spec, grid: np.ndarray, scale: str) -> None:
    panels = [[ax] for ax in grid.flat]
    groups = {"figure": [grid.flat], "row": grid, "column": grid.T, "panel": panels}
    for group in groups[scale]:
        axes = [ax for ax in group if ax.lines]
        if spec.log:
            panel_axes.fit_logarithmic(axes)
        elif axes:
            panel_axes.fit_limits(axes, zero=spec.zero)


def _x_axis(ax: Axes, spec: Spec, runs: dict[str, Run], across: int) -> None:
    if spec.x == specs.GAIN_AXIS:
        ax.axvline(0, color="0.6", linewidth=0.7, zorder=1)  # no better than character frequencies
        ax.set_xlabel("gain over unigram (bits)")
    elif spec.x == "step":
        panel_axes.step_axis(ax, tables.last_step(runs))
    elif spec.x == "depth":
        text = layers_label(runs, panel_axes.RELATIVE_DEPTH)
        ax.set_xlabel(text.replace(" (", "\n(") if across > 2 else text)
    elif spec.x in ("layer", "block"):
        full = spec.x == "layer" and across <= 2
        ax.set_xlabel(layers_label(runs, panel_axes.LAYER_LABEL) if full else spec.x)
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    else:
        labels = next(iter(runs.values())).results[spec.x].values
        numbers = labels.dtype.kind in "iuf"
        panel_axes.rank_axis(ax, labels) if numbers else panel_axes.name_axis(ax, spec.x, labels)


def _name_axes(spec: Spec, runs: dict[str, Run], grid: np.ndarray, quantity: str) -> None:
    """Keep axis names only at the lowest panels, and on the left if panels share a scale."""
    full = all(ax.axison for ax in grid.flat)  # else columns end in different rows
    for column in grid.T:
        axes = [ax for ax in column if ax.lines]
        for ax in axes[:-1]:
            ax.set_xlabel("")
            ax.tick_params(labelbottom=not full)
        if axes and not column[-1].lines and any(ax.lines for ax in grid[-1]):
            short = axes[-1].get_xlabel().partition("\n")[0]  # of a middle row
            axes[-1].set_xlabel(short, fontsize=style.SMALL_FONT)
    for ax in grid[:, 1:].flat if spec.scale in ("figure", "row") else ():
        ax.tick_params(labelleft=False)
    if QUANTITY_ROLE in (spec.rows, spec.columns) and not spec.label:
        return
    text, size = spec.label or _name(spec, runs, QUANTITY_ROLE, quantity), style.RC["font.size"]
    grid[0, 0].figure.supylabel(style.wrap(text, 1.6 * len(grid), size), fontsize=size)


def _name(spec: Spec, runs: dict[str, Run], axis: str, label: Any) -> str:
    """Name a row or a column."""
    if label in spec.names:
        return spec.names[label]
    if axis == QUANTITY_ROLE:
        name = label if runs_with(runs, label) else variable(spec, label)
        return tables.label_variable(runs_with(runs, name), name)
    if axis in ("positions", NULL_ROLE):
        return (tables.POSITION_LABELS if axis == "positions" else NULLS_IN_FIGURES)[label]
    if axis == "layer" and label == 0:
        return layers_label(runs, "layer 0 (embedding)")
    return str(label) if axis == RUN_ROLE else f"{axis} {label}"


def _add_key(
    spec: Spec, runs: dict[str, Run], grid: np.ndarray, colors: ScalarMappable | None
) -> None:
    """Add a color bar for hues in order, and a legend of all lines with a name."""
    if colors and spec.hue == "step":
        panel_axes.step_bar(grid[0, 0].figure, colors, grid)
    elif colors:
        words = layers_label(runs, panel_axes.LAYER_LABEL) if spec.hue == "layer" else spec.hue
        panel_axes.patch_bar(grid[0, 0].figure, colors, grid, words)
    handles, labels = style.legend_entries(grid.flat)
    if colors and handles:
        grid[0, -1].legend(handles, labels, loc="upper right")
    elif handles:
        style.legend(grid)


def _add_words(
    spec: Spec, runs: dict[str, Run], figure: Figure, quantities: tuple[str, ...], positions: str
) -> None:
    """Add title and caption."""
    last = "" if spec.x in specs.OVER_TRAINING or spec.hue == "step" else tables.at_last(runs)
    shown = [run.results for run in runs.values()]
    has_positions = any("positions" in table.dims for table in shown)
    style.title(figure, f"{spec.title}{last}{positions * has_positions}")
    if spec.hue == HOOK_POINT:
        shown += [table for run in runs.values() for table in run.hook_points.values()]
    names = [*quantities, *(line.quantity for line in spec.lines)]
    words = [
        tables.describe_bands(shown, *(variable(spec, name) for name in names)),
        spec.note,
        (GAIN_WORDS + SEED_WORDS * any("seeds" in table.attrs for table in shown))
        * (spec.x == specs.GAIN_AXIS),
    ]
    bands = " ".join(word for word in words if word)
    tables.caption(figure, runs, spec.shown, bands)


def variable(spec: Spec, quantity: str) -> str:
    return AVERAGES[spec.average](quantity) if spec.average else quantity


def select_runs(spec: Spec, runs: dict[str, Run]) -> tuple[dict[str, Run], tuple[str, ...]]:
    """Select the runs that have the figure's quantities, and the quantities that some run has.

    A quantity counts only with all variants that lines draw, a run over training with two steps.
    """
    if spec.x in specs.OVER_TRAINING or spec.hue == "step":
        runs = {label: run for label, run in runs.items() if run.results.sizes["step"] > 1}
    if spec.hue == HOOK_POINT:
        runs = {label: run for label, run in runs.items() if run.hook_points}
    if NULL_ROLE in (spec.rows, spec.columns):
        runs = {label: run for label, run in runs.items() if nulls_in(run.results)}
    lines = [line.quantity for line in spec.lines if spec.hue == LINE and "{}" in line.quantity]
    quantities = tuple(
        name
        for name in spec.quantities
        if runs_with(runs, variable(spec, name), *(line.format(name) for line in lines))
    )
    runs = {
        label: run
        for label, run in runs.items()
        if any(variable(spec, name) in run.results for name in quantities)
    }
    return runs, quantities


def labels_along(
    axis: str, spec: Spec, runs: dict[str, Run], quantities: tuple[str, ...]
) -> list[Any]:
    """List the labels along rows, columns or hues."""
    if axis == QUANTITY_ROLE:
        every = NULL_ROLE not in (spec.rows, spec.columns)
        return [name for name in quantities if every or nulls_with(name, runs)]
    if axis == NULL_ROLE:
        return [
            null
            for null in NULLS_IN_FIGURES
            if any(null in nulls_with(name, runs) for name in quantities)
        ]
    if axis == "positions" and runs:
        return tables.shared_positions(runs)
    if axis == KIND_ROLE:
        return [kind for kind in spec.names if kind in {run.kind for run in runs.values()}]
    if axis == HOOK_POINT:
        return [
            STREAM_NAME,
            *dict.fromkeys(name for run in runs.values() for name in run.hook_points),
        ]
    if axis in ("", RUN_ROLE, LINE):
        return {"": [""], RUN_ROLE: [*runs], LINE: [line.label for line in spec.lines]}[axis]
    known = [run.results[axis] for run in runs.values() if axis in run.results.dims]
    return list(dict.fromkeys(label for labels in known for label in labels.values.tolist()))


def nulls_with(quantity: str, runs: dict[str, Run]) -> set[str]:
    """Find the null models that have this quantity in some run."""
    measured = {
        null for run in runs_with(runs, quantity).values() for null in nulls_in(run.results)
    }
    return measured & {*null_models_for(quantity)} if measured else set()


def hue_colors(spec: Spec, runs: dict[str, Run], labels: list[Any]) -> ScalarMappable | None:
    """Map ordered hues to colors; None for others."""
    if spec.hue == "step":
        return panel_axes.step_colors(tables.last_step(runs))
    if spec.hue in ORDERED:
        return panel_axes.patch_colors(len(labels), first=int(spec.hue == "block"))
    return None


def draw_panel(
    ax: Axes,
    spec: Spec,
    runs: dict[str, Run],
    place: Place,
    styles: dict[Any, dict[str, Any]],
    colors: ScalarMappable | None = None,
) -> None:
    """Draw the curves of a panel, or a sentence if it has none."""
    quantity = place[QUANTITY_ROLE]
    if RUN_ROLE in place:
        runs = {place[RUN_ROLE]: runs[place[RUN_ROLE]]}
    if KIND_ROLE in place:
        runs = {label: run for label, run in runs.items() if run.kind == place[KIND_ROLE]}
    if NULL_ROLE in place:
        runs = {
            label: run
            for label, run in runs.items()
            if place[NULL_ROLE] in nulls_with(quantity, {label: run})
        }
    for label, run in runs.items():
        own = (
            [label]
            if spec.hue == RUN_ROLE
            else labels_along(spec.hue, spec, {label: run}, (quantity,))
        )
        for hue in own:
            look = {"color": colors.to_rgba(hue)} if colors else styles[hue]
            at = place if spec.hue == RUN_ROLE else {**place, spec.hue: hue}
            names = {RUN_ROLE: hue, HOOK_POINT: str(hue).replace("_", " ")}
            name = "_nolegend_" if colors else names.get(spec.hue, f"{spec.hue} {hue}")
            lines = [Line(name), *spec.lines]
            if spec.hue == LINE:
                lines = [line for line in spec.lines if line.label == hue]
            for line in lines:
                draw_line(ax, spec, run, at, line, look)
    panel_axes.mark_empty(ax, "no values" if runs else "no such null model")


def draw_line(ax: Axes, spec: Spec, run: Run, place: Place, line: Line, look: Place) -> None:
    """Draw a line of a panel with its interval, if the table has values."""
    quantity, place = line.quantity.format(place[QUANTITY_ROLE]), {**place, **line.at}
    found = curve(spec, run, quantity, place)
    if found is None or place[QUANTITY_ROLE] not in (line.panels or spec.quantities):
        return
    table, (mean, low, high) = found
    if line.model:
        excess = curve(spec, run, quantity, {**place, NULL_ROLE: line.model})
        mean = np.full_like(mean, np.nan) if excess is None else mean - excess[1][0]
    if not np.isfinite(mean).any():
        return
    x = table[spec.x].values
    x = x if x.dtype.kind in "iuf" else np.arange(len(x))
    marks = {"marker": "o", "markersize": 1.8} if len(x) < DENSE else {}
    thin = {"linewidth": 1.1} | marks if spec.hue in ORDERED else {}
    ends = (low, high) if line.band else [np.full_like(mean, np.nan)] * 2
    looks = {**look, **thin, **line.look}
    style.plot_with_interval(ax, x, mean, *ends, label=line.label, **looks)


def curve(spec: Spec, run: Run, quantity: str, place: Place) -> tuple[xr.Dataset, Curve] | None:
    """Return the table and mean, low and high along the curve; None if the table lacks it."""
    hook_point = place.get(HOOK_POINT, STREAM_NAME)
    table = run.results if hook_point == STREAM_NAME else run.hook_points[hook_point]
    name = variable(spec, quantity) if quantity == place[QUANTITY_ROLE] else quantity
    null = place.get(NULL_ROLE, "")
    if name not in table or (null and null not in nulls_in(table)):
        return None
    values = table[name]
    if "step" in values.dims and spec.x not in specs.OVER_TRAINING and "step" not in place:
        table = table.isel(step=-1)
    where = {dim: at for dim, at in place.items() if dim in values.dims}
    if any(at not in table[dim].values for dim, at in where.items()):
        return None
    return table, tables.interval(table, name, null, **where)
