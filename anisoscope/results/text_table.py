"""Format a table for a terminal: a row for each layer, the quantities that fit beside each other."""

import itertools
import math
import numbers
import shutil
from collections.abc import Sequence

import xarray as xr

from anisoscope.config.measure_config import GAUSSIAN
from anisoscope.results.frame import check_table, select_values, values_of
from anisoscope.results.summary import NULL, excess_name

# the first columns, where a table has them; the excess is that over a Gaussian cloud
FIRST = ("anisotropy", "mean_cosine", "twonn", excess_name("twonn"), "effective_rank")
SHOWN = ["mean", "low", "high"]
WIDTH = 100  # characters, where nothing says how wide the terminal is


def to_text(
    table: xr.Dataset,
    width: int | None = None,
    *,
    quantities: Sequence[str] = (),
    null: str = GAUSSIAN,
) -> str:
    """Format a table as text: a row for each layer, means with their 95 % intervals.

    Columns that do not fit are counted below; `to_frame` has every number.

    Args:
        table: from `measure`, `measure_model` or `measure_attention`.
        width: characters of a line; by default those of the terminal.
        quantities: the columns, such as ("twonn", "twonn_excess"); by default the best known first.
        null: the null model of the columns of an excess that `quantities` names.

    Returns:
        Lines without a line break at the end. `twonn_excess` is the excess over a Gaussian cloud.

    Raises:
        ValueError: a width that is no whole number, quantities that do not fit into one table, or
            a null model that they do not have.

    >>> import numpy as np
    >>> from anisoscope import measure
    >>> layers = [*3 + np.random.default_rng(0).standard_normal((2, 128, 4))]
    >>> table = measure(layers, families="similarity", nulls=())
    >>> print(to_text(table.assign_attrs(title="Two clouds"), width=50))
    Two clouds; mean [95 % interval]
    layer        mean_cosine  mean_cosine_drift
        0  0.92 [0.91, 0.93]  0.98 [0.96, 1.00]
        1  0.93 [0.91, 0.94]  0.98 [0.96, 1.01]
    columns left out: 5 (choose by quantities=)
    """
    check_table(table)
    if width is not None and not isinstance(width, numbers.Integral):
        raise ValueError(
            f"width is {width!r}; pass a number of characters, and columns as quantities="
        )
    order = [name for name in FIRST if name in table]
    order += [name for name in values_of(table) if name not in order]
    shown = choose_columns(table, quantities, null) if quantities else select_columns(table, order)
    rows = next(iter(shown.values())).dims[1:]
    labels = [*itertools.product(*(table[dim].values.tolist() for dim in rows))]
    columns = {dim: [str(row[n]) for row in labels] for n, dim in enumerate(rows)}
    room, left = width or shutil.get_terminal_size((WIDTH, 24)).columns, []
    taken = sum(2 + max(map(len, (dim, *names))) for dim, names in columns.items()) - 2
    for name, values in shown.items():
        cells = [format_cell(*row) for row in values.values.reshape(3, -1).T.tolist()]
        needed = 2 + max(map(len, (name, *cells)))
        if left or (taken + needed > room and len(columns) > len(rows)):
            left.append(name)
        else:
            columns[name], taken = cells, taken + needed
    lines = [
        f"{table.attrs.get('title', 'Anisoscope')}; mean [95 % interval]",
        *align_right(columns),
    ]
    return "\n".join(
        lines + [f"columns left out: {len(left)} (choose by quantities=)"] * bool(left)
    )


def choose_columns(
    table: xr.Dataset, quantities: Sequence[str], null: str
) -> dict[str, xr.DataArray]:
    """Select these quantities; ValueError where one is unknown or has dimensions of its own."""
    chosen: dict[str, xr.DataArray] = {}
    for name in [quantities] if isinstance(quantities, str) else quantities:
        if name not in table.data_vars:
            select_values(table, name, None, {})  # which refuses it
        values = table[name]
        if NULL in values.dims:
            values = select_values(table, values.attrs["excess_of"], str(null), {}).drop_vars(NULL)
        if "statistic" in values.dims:
            chosen[name] = values.sel(statistic=SHOWN)
        else:  # a count
            chosen[name] = values.expand_dims(statistic=["mean"]).reindex(statistic=SHOWN)
    longest = max(chosen, key=lambda name: chosen[name].ndim)
    for name, values in chosen.items():
        if further := {*values.dims} - {*chosen[longest].dims}:
            what = f"{name} has the dimension {', '.join(map(str, further))}, {longest} has not"
            raise ValueError(f"quantities: {what}; ask for them one by one")
    dims = chosen[longest].transpose("statistic", ...).dims
    return {
        name: values.broadcast_like(chosen[longest]).transpose(*dims)
        for name, values in chosen.items()
    }


def select_columns(table: xr.Dataset, order: Sequence[str]) -> dict[str, xr.DataArray]:
    """Select mean and ends of the interval of each quantity with the dimensions of the first."""
    shown: dict[str, xr.DataArray] = {}
    for name in order:
        values = table[name].sel(statistic=SHOWN)
        if NULL in values.dims:
            if GAUSSIAN not in values[NULL]:
                continue
            values = values.sel({NULL: GAUSSIAN}, drop=True)
        dims = next(iter(shown.values()), values).dims
        if {*dims} == {*values.dims}:
            rows = [dim for dim in table[order[0]].dims if dim in dims and dim != "statistic"]
            shown[name] = values.transpose("statistic", *rows)
    return shown


def format_cell(mean: float, low: float, high: float) -> str:
    """Format a mean with its interval, if it has one: 0.37 [0.36, 0.37]."""
    if math.isnan(mean):
        return "-"
    if math.isnan(low) and mean == int(mean):  # a count
        return f"{mean:,.0f}"
    digits = 2 if max(abs(x) for x in (mean, low, high) if not math.isnan(x)) < 100 else 0
    mean, low, high = (f"{x + 0:,.{digits}f}" for x in (mean, low, high))
    zero = f"-{0:.{digits}f}"
    mean, low, high = (x.removeprefix("-") if x == zero else x for x in (mean, low, high))
    return mean if "nan" in (low, high) else f"{mean} [{low}, {high}]"


def align_right(columns: dict[str, list[str]]) -> list[str]:
    """Align columns at their right ends, below their names."""
    padded = []
    for name, cells in columns.items():
        size = max(map(len, (name, *cells)))
        padded.append([x.rjust(size) for x in (name, *cells)])
    return ["  ".join(row) for row in zip(*padded, strict=True)]
