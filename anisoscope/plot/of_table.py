"""One quantity of one table, on axes of the user's own."""

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from anisoscope.measurement.tables.earlier import of_before
from anisoscope.measurement.tables.excess import NULL, excess_name
from anisoscope.plot import style

DIMS = ("layer", "block")  # over which a profile is drawn


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
    table = of_before(table)  # as xarray alone opens it
    chosen = _chosen(table, quantity, null, {"positions": positions, "step": step})
    along = next((dim for dim in DIMS if dim in chosen.dims), None)
    if along is None:
        raise ValueError(f"{quantity} has the dimensions {', '.join(chosen.dims)}; none is layer or block")
    others = [dim for dim in chosen.dims if dim not in (along, "statistic")]
    lines = chosen.stack(line=others) if others else chosen.expand_dims("line")
    ax = plt.subplots()[1] if ax is None else ax
    x = np.arange(chosen.sizes[along])
    for i in range(lines.sizes["line"]):
        of_line = lines.isel(line=i)
        mean, low, high = (of_line.sel(statistic=end).values for end in ("mean", "low", "high"))
        name = label or ", ".join(f"{dim} {of_line[dim].item()}" for dim in others) or None
        (drawn,) = ax.plot(x, mean, marker="o", markersize=4, label=name)
        if np.isfinite(low).any():
            ax.fill_between(x, low, high, color=drawn.get_color(), alpha=0.2, linewidth=0)
    names = chosen[along].values
    if (names == x).all():
        ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    else:
        ax.set_xticks(x, [str(name) for name in names])
    about = table[quantity].attrs
    what = style.label(about.get("long_name", quantity), about.get("units", ""), about.get("symbol", ""))
    ax.set(xlabel=along, ylabel=what if null is None else f"{what},\nexcess over {null}")
    if label or others:
        ax.legend()
    return ax


def _chosen(table: xr.Dataset, quantity: str, null: str | None, where: dict) -> xr.DataArray:
    """The quantity, or its excess, at these places, of dimensions that it has."""
    if quantity not in table:
        raise ValueError(f"the table has no {quantity!r}; it has {', '.join(map(str, table.data_vars))}")
    values = table[quantity]
    if null is not None:
        if excess_name(quantity) not in table:
            raise ValueError(f"null {null!r}: the table has no null model of {quantity}; leave it out")
        values, where = table[excess_name(quantity)], where | {NULL: null}
    for dim, at in where.items():
        if dim in values.dims:
            there = values[dim].values.tolist()
            at = there[-1] if at is None else at
            if at not in there:
                raise ValueError(f"{dim} {at!r} is not in the table; choose from {', '.join(map(str, there))}")
            values = values.sel({dim: at})
    return values
