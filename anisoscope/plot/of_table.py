"""One table, on axes of the user's own."""

from typing import Any, TypeVar

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.ticker import MaxNLocator

from anisoscope.measurement.tables.frame import chosen, whole
from anisoscope.plot import dimension_by_scale, rulers, style
from anisoscope.plot.run import ENDS

DIMS = ("layer", "block")  # over which a profile is drawn
Table = TypeVar("Table", xr.Dataset, xr.DataArray)
DIRECTIONS = ("rankme", "effective_rank", "participation_ratio", "stable_rank")  # how many carry the variance


def profile(
    table: xr.Dataset,
    quantity: str = "anisotropy",
    *,
    null: str | None = None,
    positions: str = "all",
    step: int | None = None,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A quantity over layers, with its 95 % interval as a band.

    Args:
        table: of `measure`, `measure_model`, `measure_attention`, or results.nc of a run.
        quantity: a variable of the table with the dimension layer or block; of heads, one line for each.
        null: a null model, to draw the excess over it; None for the value itself.
        positions: the set of token positions, where the table has several.
        step: the training step, where the table has several; None for the last.
        label: of the line in a legend.
        ax: axes to draw on; None for new ones. Call it again with the same axes to compare tables.

    Returns:
        The axes.

    Raises:
        ValueError: the table has no such quantity, null model, set of positions, step, or layers; in one line.
    """
    values = chosen(table, quantity, null, {"positions": positions, "step": step})
    along = next((dim for dim in DIMS if dim in values.dims), None)
    if along is None:
        raise ValueError(f"{quantity} has the dimensions {', '.join(values.dims)}; none is layer or block")
    others = [dim for dim in values.dims if dim not in (along, "statistic")]
    lines = values.stack(line=others) if others else values.expand_dims("line")
    ax = plt.subplots()[1] if ax is None else ax
    x = np.arange(values.sizes[along])
    for i in range(lines.sizes["line"]):
        of_line = lines.isel(line=i)
        mean, low, high = (of_line.sel(statistic=end).values for end in ENDS)
        name = label or ", ".join(f"{dim} {of_line[dim].item()}" for dim in others) or None
        (drawn,) = ax.plot(x, mean, marker="o", markersize=4, label=name)
        _interval(ax, x, low, high, drawn.get_color())
    _depth_axis(ax, values[along])
    ax.set_ylabel(_words(table, quantity, null))
    if label or others:
        ax.legend()
    return ax


def over_training(
    table: xr.Dataset,
    quantity: str = "anisotropy",
    *,
    null: str | None = None,
    positions: str = "all",
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """A quantity over training steps, with its 95 % interval: a line for each layer or block, shaded by depth.

    Args:
        table: with a dimension step: results.nc of a run, or tables of `measure` joined by `xarray.concat` along it.
        quantity: a variable of the table; of heads, the mean over heads is drawn, without an interval.
        null: a null model, to draw the excess over it; None for the value itself.
        positions: the set of token positions, where the table has several.
        label: of a line of one layer alone, in a legend.
        ax: axes to draw on; None for new ones.

    Returns:
        The axes; of more than one layer their figure has a colour bar too.

    Raises:
        ValueError: the table has no such quantity, null model or set of positions, or no steps; in one line.
    """
    values = chosen(table, quantity, null, {"positions": positions})
    if "head" in values.dims:
        values = values.mean("head").where(values.statistic == "mean")
    along = next((dim for dim in DIMS if dim in values.dims), None)
    further = [dim for dim in values.dims if dim not in ("step", "statistic", along)]
    if "step" not in values.dims or further:
        why = f"the dimensions {', '.join(values.dims)}; step, and layer or block, can be drawn"
        raise ValueError(f"{quantity} has {why}")
    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    values, along = (values, along) if along else (values.expand_dims("layer"), "layer")
    colours = rulers.layer_colours(values.sizes[along])
    for place in range(values.sizes[along]):
        curve = [values.isel({along: place}).sel(statistic=end).values for end in ENDS]
        look = {"color": colours.to_rgba(place), "marker": "o", "markersize": 3}
        style.banded(ax, table.step.values, *curve, **look, label=label)
    rulers.step_axis(ax, int(table.step.values.max()))
    ax.set_ylabel(_words(table, quantity, null))
    _explain_colours(ax, colours, values, along, label)
    return ax


def spectrum(table: xr.Dataset, *, positions: str = "all", step: int | None = None, ax: Axes | None = None) -> Axes:
    """How many directions carry the variance, over layers: the effective dimensions of the spectrum.

    RankMe, effective rank, participation ratio and stable rank weigh small eigenvalues less and less, in this order:
    the wider apart they are, the more uneven is the spectrum. On a logarithmic axis, with 95 % intervals as bands.

    Args:
        table: with the family spectrum.
        positions: the set of token positions, where the table has several.
        step: the training step, where the table has several; None for the last.
        ax: axes to draw on; None for new ones.

    Returns:
        The axes.

    Raises:
        ValueError: the table has no spectrum, set of positions, or step; in one line.
    """
    there = [name for name in DIRECTIONS if name in table]
    if not there:
        raise ValueError(f"the table has no {', '.join(DIRECTIONS)}: measure the family spectrum")
    ax = plt.subplots()[1] if ax is None else ax
    for name, look in style.inks(there).items():
        values = chosen(table, name, None, {"positions": positions, "step": step})
        values = _with_layers(values)
        mean, low, high = (values.sel(statistic=end).values for end in ENDS)
        ax.plot(x := np.arange(len(mean)), mean, **look, markersize=4, label=values.long_name)
        _interval(ax, x, low, high, look["color"])
    rulers.logarithmic(ax.yaxis)
    _depth_axis(ax, values["layer"])
    ax.set_ylabel("directions that carry the variance")
    ax.legend()
    return ax


def scales(table: xr.Dataset, *, positions: str = "all", step: int | None = None, ax: Axes | None = None) -> Axes:
    """The intrinsic dimension (GRIDE) against the rank of the neighbours it is read from: a line for each layer.

    Bands are 95 % intervals; dashed is a Gaussian cloud of the same spectrum, where it
    was measured.

    Args:
        table: with the family scale.
        positions: the set of token positions, where the table has several.
        step: the training step, where the table has several; None for the last.
        ax: axes to draw on; None for new ones.

    Returns:
        The axes; of more than one layer their figure has a colour bar too.

    Raises:
        ValueError: the table has no dimensions by scale, set of positions, or step; in one line.
    """
    full, names = whole(table)
    full = _with_layers(full)
    if "gride" not in full:
        raise ValueError("the table has no gride: measure the family scale")
    chosen(full, "gride", None, {"positions": positions, "step": step})
    at = full.sel(positions=positions, step=full.step.values[-1] if step is None else step)
    ax = plt.subplots(layout="constrained")[1] if ax is None else ax
    values = at.gride.assign_coords(names)
    colours = rulers.layer_colours(at.sizes["layer"])
    dimension_by_scale.curves(ax, at, colours.to_rgba)
    dimension_by_scale.limits([ax])
    ax.set_xticks(ranks := at.neighbours.values, [str(rank) for rank in ranks])
    ax.set(xlabel="neighbour rank k (from r_2k / r_k)", ylabel="intrinsic dimension (GRIDE)")
    ax.legend(handles=dimension_by_scale.key([at]), fontsize="small")
    _explain_colours(ax, colours, values, "layer", None)
    return ax


def _interval(ax: Axes, x: np.ndarray, low: np.ndarray, high: np.ndarray, color: Any) -> None:
    """A band; of one layer, which has no width, a bar."""
    if not np.isfinite(low).any():
        return
    if len(x) == 1:
        ax.vlines(x, low, high, color=color)
    else:
        ax.fill_between(x, low, high, color=color, alpha=0.2, linewidth=0)


def _with_layers(table: Table) -> Table:
    """Of one layer alone too a dimension."""
    return table if "layer" in table.dims else table.drop_vars("layer", errors="ignore").expand_dims(layer=[0])


def _words(table: xr.Dataset, quantity: str, null: str | None) -> str:
    what = style.words(table[quantity])
    return what if null is None else f"{what},\nexcess over {null}"


def _depth_axis(ax: Axes, depth: xr.DataArray) -> None:
    """Layers or blocks by number, or by the names that a user gave; of many, every other or third."""
    names = depth.values
    if names.dtype.kind in "iu" and (names == np.arange(len(names))).all():
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    else:
        every = np.arange(0, len(names), -(-len(names) // 12))
        ax.set_xticks(every, [str(names[place]) for place in every])
    if len(names) == 1:
        ax.set_xlim(-0.5, 0.5)
    ax.set_xlabel(str(depth.name))


def _explain_colours(ax: Axes, colours: ScalarMappable, values: xr.DataArray, along: str, label: str | None) -> None:
    """Which layer is which colour; one layer alone is told by its label, if it has one."""
    count = values.sizes[along]
    if count > 1:
        names = [str(name) for name in values[along].values]
        ticks = range(0, count, -(-count // 8))
        rulers.bar(ax.figure, colours, np.array([ax]), along, ticks, [names[tick] for tick in ticks])
    elif label:
        ax.legend()
