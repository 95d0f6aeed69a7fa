"""Draw most figures: a `Spec` says what stands in rows, columns and lines, and `render` draws it.

Anything drawn is a quantity of a run at a place: a step, a set of positions, a layer, a head. A
spec names the dimension that makes the rows, the one of the columns, and the one told by hue; all
of them may be a dimension of the tables or one of RUN, QUANTITY, NULL, LINE and HOOK_POINT.
"""

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from anisoscope.measurement.families.registry import nulls_of
from anisoscope.plot import panel_axes, style
from anisoscope.plot.footer import caption
from anisoscope.plot.run_tables import (
    NULLS,
    POSITIONS,
    Run,
    at_last,
    bands,
    interval,
    last_step,
    layers,
    positions,
    same,
    words,
)
from anisoscope.results.averages import over_blocks, over_heads
from anisoscope.results.excess import nulls_in

RUN, QUANTITY, NULL, LINE, HOOK_POINT = "run", "quantity", "null", "line", "hook_point"
SHADED = ("step", "layer", "block")  # hues in order of depth or time: a colour bar, no legend
GAIN = "validation_context_gain"
DENSE = 60  # points of a curve without marks
AVERAGES: dict[str, Callable[[str], str]] = {"blocks": over_blocks, "heads": over_heads}
Place = Mapping[str, Any]


@dataclass(frozen=True)
class Line:
    """A line of a panel beside or in place of the panel's quantity."""

    label: str
    quantity: str = "{}"  # a variable; {} stands for the panel's quantity
    at: Place = field(default_factory=dict)
    of: tuple[str, ...] = ()  # quantities whose panels have it; none named: all
    model: str = ""  # a null model: its own value is drawn, not the excess over it
    look: Place = field(default_factory=dict)
    band: bool = True


@dataclass(frozen=True)
class Spec:
    """What a figure shows."""

    title: str
    shown: str  # the first sentence of the caption
    quantities: tuple[str, ...]
    x: str = "depth"  # depth (relative), layer, block, step, or a dimension of the quantities
    hue: str = RUN
    rows: str = ""
    columns: str = ""
    at: Place = field(default_factory=dict)
    average: str = ""  # blocks or heads: the average over these is drawn
    lines: tuple[Line, ...] = ()  # with hue=LINE all that is drawn, else drawn beside it
    scale: str = "figure"  # panels that share limits: of the figure, a row, a column; or panel
    zero: bool = False
    log: bool = False
    needs: tuple[str, ...] = ()  # further variables that a run must have
    any_of: bool = False  # whether some of the quantities suffice
    names: Mapping[str, str] = field(default_factory=dict)  # words of a panel for a label
    levels: Mapping[str, str] = field(default_factory=dict)  # words for labels of rows and columns
    label: str = ""  # of the vertical axis
    bands_of: str = "band"  # what the caption calls the intervals
    further: tuple[str, ...] = ()  # sentences of the caption
    wrap: int = 0  # panels beside each other where there is one row; 0: all


def render(spec: Spec, runs: dict[str, Run], over: str = "step") -> Figure | None:
    """The figure of these runs; None where no run has what it shows."""
    looks, runs = style.inks(runs), having(spec, runs)
    if not runs:
        return None
    quantities = tuple(
        name for name in spec.quantities if any(_whole(spec, name, run) for run in runs.values())
    )
    labels = {axis: labels_of(axis, spec, runs, quantities) for axis in (spec.rows, spec.columns)}
    if not all(labels.values()):
        return None
    keys = list(itertools.product(labels[spec.rows], labels[spec.columns]))
    columns = len(labels[spec.columns])
    if spec.wrap and len(labels[spec.rows]) == 1:
        columns = min(spec.wrap, columns)
    rows = -(-len(keys) // columns)
    page = style.PAGE if columns > 1 else style.SINGLE
    figure = style.new(page, 0.9 + (2.0 if rows == 1 else 1.5) * rows)
    grid = figure.subplots(rows, columns, squeeze=False)
    colours = colours_of(spec, runs, quantities)
    hues = looks if spec.hue == RUN else style.inks(labels_of(spec.hue, spec, runs, quantities))
    at = spec.at
    if "positions" not in (spec.rows, spec.columns, spec.hue):
        at = {"positions": "all"} | dict(at)
    panels = {}
    for ax, (row, column) in zip(grid.flat, keys, strict=False):
        place = {QUANTITY: quantities[0]} | dict(at)
        place |= {axis: label for axis, label in ((spec.rows, row), (spec.columns, column)) if axis}
        panels[row, column] = ax
        panel(ax, spec, runs, place, hues, colours, over)
    for ax in grid.flat[len(keys) :]:
        ax.set_axis_off()
    _limits(spec, grid, keys)
    _labels(spec, runs, grid, panels, quantities, over)
    sides = labels.get("positions", ["all"])
    where = "" if "positions" in labels and len(sides) > 1 else ", all positions"
    last = "" if "step" in (spec.x, spec.hue) else at_last(runs)
    style.title(figure, f"{spec.title}{last}{where}")
    _key(spec, runs, figure, grid, colours)
    drawn = [
        variable(spec, name) for name in (*quantities, *(line.quantity for line in spec.lines))
    ]
    tables = {label: Run(table, []) for label, table in tables_of(spec, runs).items()}
    further = [*spec.further, *(same(runs, sides) if "positions" in labels else [])]
    caption(figure, runs, spec.shown, _band_words(spec, tables, drawn, over), further)
    return figure


def _band_words(spec: Spec, tables: dict[str, Run], drawn: list[str], over: str) -> str:
    gain = "Context gain: bits less than the best answer without context needs."
    said = bands(tables, *drawn, what=spec.bands_of)
    return f"{said} {gain if over == 'context_gain' and spec.x == 'step' else ''}".strip()


def having(spec: Spec, runs: dict[str, Run]) -> dict[str, Run]:
    """The runs that have what the figure shows."""
    if spec.hue == HOOK_POINT:
        runs = {label: run for label, run in runs.items() if run.hook_points}
    if NULL in (spec.rows, spec.columns):
        runs = {label: run for label, run in runs.items() if nulls_in(run.results)}
    needed = [*spec.needs, *(variable(spec, name) for name in spec.quantities)]
    if spec.any_of:
        return {
            label: run
            for label, run in runs.items()
            if any(variable(spec, name) in run.results for name in spec.quantities)
            and all(name in run.results for name in spec.needs)
        }
    return {
        label: run for label, run in runs.items() if all(name in run.results for name in needed)
    }


def _whole(spec: Spec, quantity: str, run: Run) -> bool:
    """Whether a run has a quantity, and all variants of it that lines draw."""
    lines = spec.lines if spec.hue == LINE else ()
    variants = [line.quantity.format(quantity) for line in lines if "{}" in line.quantity]
    return all(name in run.results for name in (quantity, *variants))


def variable(spec: Spec, quantity: str) -> str:
    return AVERAGES[spec.average](quantity) if spec.average else quantity


def tables_of(spec: Spec, runs: dict[str, Run]) -> dict[str, xr.Dataset]:
    """The tables that are read."""
    found = {label: run.results for label, run in runs.items()}
    if spec.hue == HOOK_POINT:
        found |= {
            f"{label}, {name}": table
            for label, run in runs.items()
            for name, table in run.hook_points.items()
        }
    return found


def labels_of(
    axis: str, spec: Spec, runs: dict[str, Run], quantities: tuple[str, ...]
) -> list[Any]:
    """What stands along rows, columns or hues."""
    if axis == "":
        return [""]
    if axis == RUN:
        return [*runs]
    if axis == LINE:
        return [line.label for line in spec.lines]
    if axis == HOOK_POINT:
        return [
            "residual_stream",
            *dict.fromkeys(name for run in runs.values() for name in run.hook_points),
        ]
    if axis == QUANTITY:
        if NULL in (spec.rows, spec.columns):
            return [name for name in quantities if nulls_with(name, runs)]
        return list(quantities)
    if axis == NULL:
        return [
            null for null in NULLS if any(null in nulls_with(name, runs) for name in quantities)
        ]
    if axis == "positions":
        steps = slice(None) if spec.hue == "step" else slice(-1, None)
        return positions(runs, *quantities, steps=steps)
    tables = [table for table in tables_of(spec, runs).values() if axis in table.dims]
    return list(dict.fromkeys(label for table in tables for label in table[axis].values.tolist()))


def nulls_with(quantity: str, runs: dict[str, Run]) -> set[str]:
    """Null models that have this quantity and were measured in some run."""
    there = {
        null for run in runs.values() if quantity in run.results for null in nulls_in(run.results)
    }
    return there & {*nulls_of(quantity)}


def colours_of(
    spec: Spec, runs: dict[str, Run], quantities: tuple[str, ...]
) -> ScalarMappable | None:
    if spec.hue == "step":
        return panel_axes.step_colours(last_step(runs))
    if spec.hue in SHADED:
        most = len(labels_of(spec.hue, spec, runs, quantities))
        return (
            panel_axes.layer_colours(most)
            if spec.hue == "layer"
            else panel_axes.block_colours(most)
        )
    return None


def panel(
    ax: Axes,
    spec: Spec,
    runs: dict[str, Run],
    place: Place,
    looks: Mapping[Any, Place],
    colours: ScalarMappable | None = None,
    over: str = "step",
) -> None:
    """The lines of a panel; a sentence where it has none."""
    quantity = place[QUANTITY]
    members = {place[RUN]: runs[place[RUN]]} if RUN in place else runs
    if NULL in place:
        members = {
            label: run
            for label, run in members.items()
            if place[NULL] in nulls_with(quantity, {label: run})
        }
    names = (quantity,)
    for label, run in members.items():
        hues = [label] if spec.hue == RUN else labels_of(spec.hue, spec, {label: run}, names)
        beside = () if spec.hue == LINE else spec.lines
        for hue in hues:
            look = {"color": colours.to_rgba(hue)} if colours else dict(looks[hue])
            own = dict(place) | ({} if spec.hue == RUN else {spec.hue: hue})
            _line(ax, spec, run, own, look, "_nolegend_" if colours else str(hue), over)
            for line in beside:
                _beside(ax, spec, run, own, line, look, over)
    panel_axes.ground(ax, "no values" if members else "no such null model")


def _line(
    ax: Axes, spec: Spec, run: Run, place: Place, look: dict[str, Any], label: str, over: str
) -> None:
    """A hue of a run: its value with its interval, where the table has it."""
    quantity, banded = place[QUANTITY], True
    if spec.hue == LINE:
        (line,) = (line for line in spec.lines if line.label == place[LINE])
        if line.of and quantity not in line.of:
            return
        if line.model or line.look:
            _beside(ax, spec, run, place, line, {"color": look["color"]}, over)
            return
        place, banded = dict(place) | dict(line.at), line.band
        quantity = line.quantity.format(quantity)
    curve = curve_of(spec, run, quantity, place)
    if curve is None:
        return
    table, (mean, low, high) = curve
    x = abscissa(spec, table, over)
    ends = (low, high) if banded else [np.full_like(mean, np.nan)] * 2
    size = {"linewidth": 1.1} if spec.hue in SHADED else {}
    size |= {"marker": "o", "markersize": 1.8} if spec.hue in SHADED and len(x) < DENSE else {}
    style.banded(
        ax,
        x,
        mean,
        *ends,
        label=label.replace("_", " ") if spec.hue == HOOK_POINT else label,
        **look,
        **size,
    )


def _beside(
    ax: Axes, spec: Spec, run: Run, place: Place, line: Line, look: dict[str, Any], over: str
) -> None:
    """A further line: a bound, a null model's own value, the whole."""
    if line.of and place[QUANTITY] not in line.of:
        return
    own = dict(place) | dict(line.at)
    quantity = line.quantity.format(place[QUANTITY])
    curve = curve_of(spec, run, quantity, own)
    if curve is None:
        return
    table, (mean, *_) = curve
    if line.model:
        excess = curve_of(spec, run, quantity, own | {NULL: line.model})
        if excess is None:
            return
        mean = mean - excess[1][0]
    if np.isfinite(mean).any():
        further = {"linewidth": 0.9, "color": look["color"]} | dict(line.look)
        ax.plot(abscissa(spec, table, over), mean, label=line.label, **further)


def curve_of(spec: Spec, run: Run, quantity: str, place: Place) -> tuple[xr.Dataset, Any] | None:
    """The table of the curve, and mean, low and high along it; None where the table lacks it."""
    table = run.results
    if place.get(HOOK_POINT, "residual_stream") != "residual_stream":
        table = run.hook_points[place[HOOK_POINT]]
    name = variable(spec, quantity) if quantity in (place[QUANTITY], "{}") else quantity
    if name not in table:
        return None
    values = table[name]
    if "step" in values.dims and spec.x != "step" and "step" not in place:
        table = table.isel(step=-1)
    null = place.get(NULL, "")
    if null and null not in nulls_in(table):
        return None
    where = {dim: at for dim, at in place.items() if dim in values.dims}
    for dim, at in where.items():
        if at not in table[dim].values:
            return None
    curves = interval(table, name, null, **where)
    return table, curves


def abscissa(spec: Spec, table: xr.Dataset, over: str) -> np.ndarray:
    """Where the points of a curve stand."""
    values = table[GAIN if spec.x == "step" and over == "context_gain" else spec.x].values
    return values if values.dtype.kind in "iuf" else np.arange(len(values))


def _limits(spec: Spec, grid: np.ndarray, keys: list) -> None:
    axes = [ax for ax in grid.flat[: len(keys)] if ax.lines]
    if spec.log:
        panel_axes.fit_logarithmic(axes)
        return
    groups = {
        "figure": [axes],
        "row": [[ax for ax in row if ax in axes] for row in grid],
        "column": [[ax for ax in column if ax in axes] for column in grid.T],
        "panel": [[ax] for ax in axes],
    }
    for group in groups[spec.scale]:
        if group:
            panel_axes.fit(group, zero=spec.zero)


def _labels(
    spec: Spec,
    runs: dict[str, Run],
    grid: np.ndarray,
    panels: dict,
    quantities: tuple[str, ...],
    over: str,
) -> None:
    """Words of rows, columns and axes."""
    rows, columns = grid.shape
    width = 0.75 * style.PAGE / columns
    wrapped = spec.wrap and len({row for row, _ in panels}) == 1
    for (row, column), ax in panels.items():
        place = ax.get_subplotspec()
        named = spec.columns != "positions" or len({column for _, column in panels}) > 1
        if spec.columns and named and (place.is_first_row() or wrapped):
            ax.set_title(
                style.wrap(_words(spec, runs, spec.columns, column), width, style.SMALL),
                fontsize=style.SMALL,
            )
        if place.is_first_col() and spec.rows:
            text = style.wrap(_words(spec, runs, spec.rows, row), 1.3, style.SMALL)
            ax.set_ylabel(
                text, fontsize=style.SMALL, fontweight="bold" if spec.rows == RUN else "normal"
            )
        if ax.lines:
            _x_axis(ax, spec, runs, over)
    below = [[ax for ax in column if ax in panels.values() and ax.lines] for column in grid.T]
    for column in below:
        for ax in column[:-1]:
            ax.set_xlabel("")
            ax.tick_params(labelbottom=False)
    if spec.scale in ("figure", "row"):
        for ax in grid[:, 1:].flat:
            ax.tick_params(labelleft=False)
    if QUANTITY not in (spec.rows, spec.columns) or spec.label:
        text = spec.label or _words(spec, runs, QUANTITY, quantities[0])
        if rows == 1 and not spec.rows:
            grid[0, 0].set_ylabel(style.wrap(text, 1.9, style.RC["font.size"]))
        else:
            size = style.RC["font.size"]
            grid[0, 0].figure.supylabel(style.wrap(text, 1.4 * rows, size), fontsize=size)


def _words(spec: Spec, runs: dict[str, Run], axis: str, label: Any) -> str:
    """What a row or a column is called."""
    if label in spec.names:
        return spec.names[label]
    if axis == QUANTITY:
        name = (
            label if any(label in run.results for run in runs.values()) else variable(spec, label)
        )
        return words({k: run for k, run in runs.items() if name in run.results}, name)
    if axis in ("positions", NULL):
        return (POSITIONS if axis == "positions" else NULLS)[label]
    return str(label) if axis == RUN else f"{axis} {label}"


def _x_axis(ax: Axes, spec: Spec, runs: dict[str, Run], over: str) -> None:
    narrow = ax.get_subplotspec().get_gridspec().ncols > 2
    if spec.x == "step" and over == "context_gain":
        # no better than the frequencies of characters
        ax.axvline(0, color="0.6", linewidth=0.7, zorder=1)
        ax.set_xlabel("context gain (bits)")
    elif spec.x == "step":
        panel_axes.step_axis(ax, last_step(runs))
    elif spec.x == "depth":
        text = layers(runs, panel_axes.DEPTH)
        ax.set_xlabel(text.replace(" (", "\n(") if narrow else text)
    elif spec.x in ("layer", "block"):
        ax.set_xlabel(
            layers(runs, panel_axes.LAYER) if spec.x == "layer" and not narrow else spec.x
        )
        ax.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    else:
        labels = next(iter(runs.values())).results[spec.x].values
        numbers = labels.dtype.kind in "iuf"
        panel_axes.rank_axis(ax, labels) if numbers else panel_axes.name_axis(ax, spec.x, labels)


def _key(
    spec: Spec,
    runs: dict[str, Run],
    figure: Figure,
    grid: np.ndarray,
    colours: ScalarMappable | None,
) -> None:
    """A colour bar for hues in order, a legend for others."""
    if spec.hue == "step":
        panel_axes.step_bar(figure, colours, grid)
    elif colours:
        panel_axes.patch_bar(
            figure,
            colours,
            grid,
            layers(runs, panel_axes.LAYER) if spec.hue == "layer" else spec.hue,
        )
    if not colours:
        style.legend(grid)
    elif spec.lines:
        handles, names = style.entries(grid.flat)
        beside = {line.label for line in spec.lines}
        kept = {name: handle for handle, name in zip(handles, names, strict=True) if name in beside}
        grid[0, -1].legend(kept.values(), kept.keys(), loc="upper right")
