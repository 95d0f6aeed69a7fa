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
WIDTH = 100  # characters, where nothing says how wide the terminal is


def to_text(table: xr.Dataset, width: int | None = None, *, quantities: Sequence[str] = ()) -> str:
    """Format a table as text: a row for each layer, means with their 95 % intervals.

    Columns that do not fit are counted below; `to_frame` has every number.

    Args:
        table: from `measure`, `measure_model` or `measure_attention`.
        width: characters of a line; by default those of the terminal.
        quantities: the columns, such as ("twonn", "twonn_excess"); by default the best known first.

    Returns:
        Lines without a line break at the end. `twonn_excess` is the excess over a Gaussian cloud.

    Raises:
        ValueError: a width that is no whole number, or quantities that are not in one table.

    >>> import numpy as np
    >>> from anisoscope import measure
    >>> layers = [*3 + np.random.default_rng(0).standard_normal((2, 128, 4))]
    >>> table = measure(layers, families="similarity", nulls=())
    >>> print(to_text(table.assign_attrs(title="Two clouds"), width=50))
    Two clouds; mean [95 % interval]
    layer        mean_cosine  mean_cosine_drift
        0  0.92 [0.91, 0.93]  0.98 [0.96, 1.00]
        1  0.93 [0.91, 0.94]  0.98 [0.96, 1.01]
    columns left out: 5
    """
    check_table(table)
    if width is not None and not isinstance(width, numbers.Integral):
        raise ValueError(
            f"width is {width!r}; pass a number of characters, and columns as quantities="
        )
    order = [name for name in FIRST if name in table]
    order += [name for name in values_of(table) if name not in order]
    shown = choose_columns(table, quantities) if quantities else select_columns(table, order)
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
    return "\n".join(lines + [f"columns left out: {len(left)}"] * bool(left))


def choose_columns(table: xr.Dataset, quantities: Sequence[str]) -> dict[str, xr.DataArray]:
    """Select these quantities; ValueError where one is unknown or has other dimensions."""
    names = [quantities] if isinstance(quantities, str) else [*quantities]
    for name in names:
        if name not in table.data_vars:
            select_values(table, name, None, {})  # which refuses it
    shown = select_columns(table, [name for name in names if "statistic" in table[name].dims])
    if lacking := [name for name in names if name not in shown]:
        raise ValueError(
            f"quantities: {lacking[0]} has other dimensions than {names[0]}, or no Gaussian null "
            "model; ask for it by itself, or call to_frame"
        )
    return shown


def select_columns(table: xr.Dataset, order: Sequence[str]) -> dict[str, xr.DataArray]:
    """Select mean and ends of the interval of each quantity with the dimensions of the first."""
    shown: dict[str, xr.DataArray] = {}
    for name in order:
        values = table[name].sel(statistic=["mean", "low", "high"])
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
