"""Draw one table on axes of the user's own, with the code and the style of all other figures."""

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import panel_axes, style
from anisoscope.plot.render import NULL, QUANTITY, SHADED, Line, Spec, panel
from anisoscope.plot.run_tables import NULLS, Run
from anisoscope.plot.specs import SPECS
from anisoscope.results.frame import check_table, chosen, whole

DEPTHS = ("layer", "block")
DIRECTIONS = ("rankme_centered", "effective_rank", "participation_ratio", "stable_rank")


def by_layer(
    table: xr.Dataset,
    quantity: str = "anisotropy",
    *,
    null: str | None = None,
    positions: str = "all",
    step: int | None = None,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a quantity over layers, with its 95 % interval as a band.

    Args:
        table: of `measure`, `measure_model`, `measure_attention`, or results.nc of a run.
        quantity: a variable of the table with the dimension layer or block; of heads, a line each.
        null: a null model, to draw the excess over it; None for the value itself.
        positions: the set of token positions, where the table has several.
        step: the training step, where the table has several; None for the last.
        label: of the line in a legend.
        ax: axes to draw on; None for new ones. Call it again with the same axes to compare tables.

    Returns:
        The axes.

    Raises:
        ValueError: the table has no such quantity, null model, positions, step, or layers.
    """
    values = chosen(table, quantity, null, {"positions": positions, "step": step})
    along = next((dim for dim in DEPTHS if dim in values.dims), None)
    others = [dim for dim in values.dims if dim not in (along, "statistic")]
    if along is None or len(others) > 1:
        dims = ", ".join(map(str, values.dims))
        raise ValueError(
            f"{quantity} has the dimensions {dims}; layer or block, and one more, can be drawn"
        )
    hue = {"hue": others[0]} if others else {}
    spec = Spec("", "", (quantity,), x=along, **hue)
    ax = _draw(spec, table, quantity, null, positions, step, label, ax)
    _name_depth(ax, table, along)
    if label or others:
        ax.legend()
    return ax


def by_step(
    table: xr.Dataset,
    quantity: str = "anisotropy",
    *,
    null: str | None = None,
    positions: str = "all",
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a quantity over training steps: a line for each layer or block, shaded by depth.

    Args:
        table: with a dimension step: results.nc of a run, or tables of `measure` joined by
            `xarray.concat` along it.
        quantity: a variable of the table; of heads, the mean over heads is drawn, without interval.
        null: a null model, to draw the excess over it; None for the value itself.
        positions: the set of token positions, where the table has several.
        label: of a line of one layer alone, in a legend.
        ax: axes to draw on; None for new ones.

    Returns:
        The axes; of more than one layer their figure has a colour bar too.

    Raises:
        ValueError: the table has no such quantity, null model or positions, or no steps.
    """
    values = chosen(table, quantity, null, {"positions": positions})
    if "head" in values.dims:
        mean = table[values.name].mean("head", keep_attrs=True)
        table = table.assign({values.name: mean.where(mean.statistic == "mean")})
        values = values.isel(head=0)
    along = next((dim for dim in DEPTHS if dim in values.dims), None)
    further = [dim for dim in values.dims if dim not in ("step", "statistic", along)]
    if "step" not in values.dims or further:
        dims = ", ".join(map(str, values.dims))
        raise ValueError(
            f"{quantity} has the dimensions {dims}; step, and layer or block, can be drawn"
        )
    spec = Spec("", "", (quantity,), x="step", **({"hue": along} if along else {}))
    ax = _draw(spec, table, quantity, null, positions, None, label, ax)
    panel_axes.step_axis(ax, int(table.step.values.max()))
    return ax


def effective_ranks(
    table: xr.Dataset, *, positions: str = "all", step: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw how many directions carry the variance, over layers: effective ranks of the spectrum.

    RankMe, effective rank, participation ratio and stable rank weigh small eigenvalues less and
    less, in this order: the wider apart they are, the more uneven is the spectrum. On a logarithmic
    axis, with 95 % intervals as bands.

    Args:
        table: with the family spectrum.
        positions: the set of token positions, where the table has several.
        step: the training step, where the table has several; None for the last.
        ax: axes to draw on; None for new ones.

    Returns:
        The axes.

    Raises:
        ValueError: the table has no spectrum, positions, or step; in one line.
    """
    check_table(table)
    there = [name for name in DIRECTIONS if name in table]
    if not there:
        raise ValueError(f"the table has no {', '.join(DIRECTIONS)}: measure the family spectrum")
    lines = tuple(Line(table[name].attrs.get("long_name", name), name) for name in there)
    spec = Spec("", "", tuple(there), x="layer", hue="line", lines=lines)
    chosen(table, there[0], None, {"positions": positions, "step": step})
    ax = _draw(spec, table, there[0], None, positions, step, None, ax)
    panel_axes.logarithmic(ax.yaxis)
    _name_depth(ax, table, "layer")
    ax.set_ylabel("directions that carry the variance")
    ax.legend()
    return ax


def dimension_by_scale(
    table: xr.Dataset, *, positions: str = "all", step: int | None = None, ax: Axes | None = None
) -> Axes:
    """Draw the intrinsic dimension (GRIDE) against the rank of the neighbours it is read from.

    A line for each layer with its 95 % interval; dashed is a Gaussian cloud of the same spectrum,
    where it was measured.

    Args:
        table: with the family scale.
        positions: the set of token positions, where the table has several.
        step: the training step, where the table has several; None for the last.
        ax: axes to draw on; None for new ones.

    Returns:
        The axes; of more than one layer their figure has a colour bar too.

    Raises:
        ValueError: the table has no dimensions by scale, positions, or step; in one line.
    """
    check_table(table)
    if "gride" not in table:
        raise ValueError("the table has no gride: measure the family scale")
    chosen(table, "gride", None, {"positions": positions, "step": step})
    ax = _draw(SPECS["dimension_by_scale"], table, "gride", None, positions, step, None, ax)
    panel_axes.fit_logarithmic([ax])
    panel_axes.rank_axis(ax, table.neighbours.values)
    ax.set_ylabel("intrinsic dimension (GRIDE)")
    handles, labels = style.entries([ax])
    if handles:
        ax.legend(handles, labels)
    return ax


def _draw(
    spec: Spec,
    table: xr.Dataset,
    quantity: str,
    null: str | None,
    positions: str,
    step: int | None,
    label: str | None,
    ax: Axes | None,
) -> Axes:
    """The lines of the spec, on new axes or the user's; a colour bar where hues are in order."""
    results, names = whole(table)
    if "layer" not in results.dims and "layer" in (spec.x, spec.hue):  # one layer alone
        results = results.drop_vars("layer", errors="ignore").expand_dims(layer=[0])
    if step is not None:
        results = results.sel(step=[step])
    place: dict[str, Any] = {QUANTITY: quantity, "positions": positions} | (
        {NULL: null} if null else {}
    )
    name = "" if label is None else style.literal(label)
    with style.context(mathematics=True):
        ax = plt.subplots(layout="constrained")[1] if ax is None else ax
        count = len({line.get_color() for line in ax.lines}) if spec.hue == "run" else 0
        ink = style.INKS[count % len(style.INKS)]
        labels = [name] if spec.hue == "run" else _hues(spec, results)
        looks = {name: {"color": ink, "marker": "o"}} if spec.hue == "run" else style.inks(labels)
        colours = None
        if spec.hue in SHADED:
            colours = panel_axes.layer_colours(len(labels))
            start = int(results[spec.hue].values[0])
            results = results.assign_coords({spec.hue: results[spec.hue] - start})
        panel(ax, spec, {name: Run(results, [])}, place, looks, colours)
        for line in ax.lines:
            if spec.hue not in (*SHADED, "run", "line") and not line.get_label().startswith("_"):
                line.set_label(f"{spec.hue} {line.get_label().removeprefix(f'{spec.hue} ')}")
        words = style.words(table[quantity])
        ax.set_ylabel(
            words
            if null is None
            else f"{words},\nexcess over {NULLS.get(null, null)}".replace("\n", " ")
        )
        if colours and len(labels) > 1:
            called = names.get(spec.hue, table[spec.hue].values.tolist())
            ticks = range(0, len(called), -(-len(called) // 8))
            told = [style.literal(called[tick]) for tick in ticks]
            panel_axes.bar(ax.figure, colours, np.array([ax]), spec.hue, ticks, told)
        elif label and spec.hue in SHADED:
            for line in ax.lines[-1:]:
                line.set_label(name)
            ax.legend()
    return ax


def _hues(spec: Spec, results: xr.Dataset) -> list[Any]:
    if spec.hue == "line":
        return [line.label for line in spec.lines]
    return results[spec.hue].values.tolist()


def _name_depth(ax: Axes, table: xr.Dataset, along: str) -> None:
    """Layers or blocks by number, or by the names that a user gave."""
    names = np.atleast_1d(table[along].values) if along in table.dims else np.zeros(1, int)
    if names.dtype.kind in "iu":
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    else:
        panel_axes.name_axis(ax, along, [style.literal(name) for name in names])
    if len(names) == 1:
        ax.set_xlim(names[0] - 0.5 if names.dtype.kind in "iu" else -0.5, None)
    ax.set_xlabel(along)
