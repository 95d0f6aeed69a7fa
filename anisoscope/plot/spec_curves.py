"""The curves in a panel of a `Spec`."""

from typing import Any

import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable

from anisoscope.measurement.families.registry import null_models_for
from anisoscope.plot import panel_axes, style
from anisoscope.plot.run_tables import (
    NULLS,
    Curve,
    Run,
    interval,
    last_step,
    runs_with,
    shared_positions,
)
from anisoscope.plot.specs import (
    HOOK_POINT,
    KIND,
    LINE,
    NULL,
    OVER_TRAINING,
    QUANTITY,
    RUN,
    Line,
    Place,
    Spec,
)
from anisoscope.results.derived import nulls_in, over_blocks, over_heads

ORDERED = ("step", "layer", "block")  # hues in order of depth or time: a color bar, no legend
DENSE = 60  # points of a curve without marks
STREAM = "residual_stream"
AVERAGES = {"blocks": over_blocks, "heads": over_heads}


def variable(spec: Spec, quantity: str) -> str:
    return AVERAGES[spec.average](quantity) if spec.average else quantity


def select_runs(spec: Spec, runs: dict[str, Run]) -> tuple[dict[str, Run], tuple[str, ...]]:
    """Select the runs that have the figure's quantities, and the quantities that some run has.

    A quantity counts only with all variants that lines draw.
    """
    if spec.hue == HOOK_POINT:
        runs = {label: run for label, run in runs.items() if run.hook_points}
    if NULL in (spec.rows, spec.columns):
        runs = {label: run for label, run in runs.items() if nulls_in(run.results)}
    enough = any if spec.any_of else all
    runs = {
        label: run
        for label, run in runs_with(runs, *spec.needs).items()
        if enough(variable(spec, name) in run.results for name in spec.quantities)
    }
    lines = [line.quantity for line in spec.lines if spec.hue == LINE and "{}" in line.quantity]
    found = []
    for name in spec.quantities:
        variants = {variable(spec, name), *(line.format(name) for line in lines)}
        if runs_with(runs, *variants):
            found.append(name)
    return runs, tuple(found)


def labels_along(
    axis: str, spec: Spec, runs: dict[str, Run], quantities: tuple[str, ...]
) -> list[Any]:
    """List the labels along rows, columns or hues."""
    if axis == QUANTITY:
        every = NULL not in (spec.rows, spec.columns)
        return [name for name in quantities if every or nulls_with(name, runs)]
    if axis == NULL:
        return [
            null for null in NULLS if any(null in nulls_with(name, runs) for name in quantities)
        ]
    if axis == "positions" and runs:
        return shared_positions(runs)
    if axis == KIND:
        return [kind for kind in spec.names if kind in {run.kind for run in runs.values()}]
    if axis == HOOK_POINT:
        return [STREAM, *dict.fromkeys(name for run in runs.values() for name in run.hook_points)]
    if axis in ("", RUN, LINE):
        return {"": [""], RUN: [*runs], LINE: [line.label for line in spec.lines]}[axis]
    tables = [run.results for run in runs.values() if axis in run.results.dims]
    return list(dict.fromkeys(label for table in tables for label in table[axis].values.tolist()))


def nulls_with(quantity: str, runs: dict[str, Run]) -> set[str]:
    """Find the null models that have this quantity in some run."""
    tables = [run.results for run in runs.values() if quantity in run.results]
    measured = {null for table in tables for null in nulls_in(table)}
    return measured & {*null_models_for(quantity)} if measured else set()


def hue_colors(spec: Spec, runs: dict[str, Run], labels: list[Any]) -> ScalarMappable | None:
    """Map ordered hues to colors; None for others."""
    if spec.hue == "step":
        return panel_axes.step_colors(last_step(runs))
    if spec.hue in ORDERED:
        return panel_axes.patch_colors(len(labels), first=int(spec.hue == "block"))
    return None


def panel(
    ax: Axes,
    spec: Spec,
    runs: dict[str, Run],
    place: Place,
    styles: dict[Any, dict[str, Any]],
    colors: ScalarMappable | None = None,
) -> None:
    """Draw the curves of a panel, or a sentence if it has none."""
    quantity = place[QUANTITY]
    if RUN in place:
        runs = {place[RUN]: runs[place[RUN]]}
    if KIND in place:
        runs = {label: run for label, run in runs.items() if run.kind == place[KIND]}
    if NULL in place:
        runs = {
            label: run
            for label, run in runs.items()
            if place[NULL] in nulls_with(quantity, {label: run})
        }
    for label, run in runs.items():
        own = (
            [label] if spec.hue == RUN else labels_along(spec.hue, spec, {label: run}, (quantity,))
        )
        for hue in own:
            look = {"color": colors.to_rgba(hue)} if colors else styles[hue]
            at = place if spec.hue == RUN else {**place, spec.hue: hue}
            names = {RUN: hue, HOOK_POINT: str(hue).replace("_", " ")}
            name = "_nolegend_" if colors else names.get(spec.hue, f"{spec.hue} {hue}")
            lines = [Line(name), *spec.lines]
            if spec.hue == LINE:
                lines = [line for line in spec.lines if line.label == hue]
            for line in lines:
                draw_line(ax, spec, run, at, line, look)
    panel_axes.mark_empty(ax, "no values" if runs else "no such null model")


def draw_line(ax: Axes, spec: Spec, run: Run, place: Place, line: Line, look: Place) -> None:
    """Draw a line of a panel with its interval, if the table has values."""
    quantity, place = line.quantity.format(place[QUANTITY]), {**place, **line.at}
    found = curve(spec, run, quantity, place)
    if found is None or place[QUANTITY] not in (line.panels or spec.quantities):
        return
    table, (mean, low, high) = found
    if line.model:
        excess = curve(spec, run, quantity, {**place, NULL: line.model})
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
    hook_point = place.get(HOOK_POINT, STREAM)
    table = run.results if hook_point == STREAM else run.hook_points[hook_point]
    name = variable(spec, quantity) if quantity == place[QUANTITY] else quantity
    null = place.get(NULL, "")
    if name not in table or (null and null not in nulls_in(table)):
        return None
    values = table[name]
    if "step" in values.dims and spec.x not in OVER_TRAINING and "step" not in place:
        table = table.isel(step=-1)
    where = {dim: at for dim, at in place.items() if dim in values.dims}
    if any(at not in table[dim].values for dim, at in where.items()):
        return None
    return table, interval(table, name, null, **where)
