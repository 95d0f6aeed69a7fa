"""Convert a table to a pandas DataFrame with a row for each number, and select its values."""

from typing import Any

import pandas as pd
import xarray as xr

from anisoscope.measurement.families.registry import find_family, quantities
from anisoscope.results.derived import NULL, excess_name
from anisoscope.results.join import tidy

ALONE = {"step": 0, "positions": "all", "layer": 0}  # dimensions that tables of arrays may not have


def as_run_table(table: xr.Dataset) -> tuple[xr.Dataset, dict[str, list[Any]]]:
    """Give a table the dimensions and attributes of a run's table.

    Layers are numbered; their names are returned by dimension.
    """
    check_table(table)
    lacking = {dim: at for dim, at in ALONE.items() if dim not in table.dims}
    if "block" in table.dims:  # a DataFrame calls it layer
        lacking.pop("layer", None)
    dataset = table.drop_vars([dim for dim in lacking if dim in table.coords]).expand_dims(
        {dim: [at] for dim, at in lacking.items()}
    )
    names = {}
    for dim in ("layer", "other_layer", "block"):
        if dim in table.dims and table[dim].dtype.kind not in "iu":  # names from the user
            names[dim] = table[dim].values.tolist()
            dataset = dataset.assign_coords({dim: range(len(names[dim]))})
    dataset.attrs = {"run": "", "corpus": ""} | dataset.attrs
    return dataset, names


def check_table(table: Any) -> None:
    """Raise ValueError if this is not a table of values."""
    if not isinstance(table, xr.Dataset) or "statistic" not in table.dims:
        raise ValueError(
            f"table is {type(table).__name__}; pass the whole Dataset that measure returns, "
            "or open the file by xarray.open_dataset"
        )


def to_frame(table: xr.Dataset) -> pd.DataFrame:
    """Convert a table to a DataFrame with one row for each number.

    Args:
        table: from `measure`, `measure_model` or `measure_attention`, or results.nc of a run.

    Returns:
        A DataFrame with columns metric, layer, head and so on, then mean, std, low, high, and the
        excess over each null model with the ends of its interval. Empty columns are left out.

    >>> import numpy as np
    >>> from anisoscope import measure
    >>> layers = [*np.random.default_rng(0).standard_normal((2, 128, 4))]
    >>> table = measure(layers, families="similarity", nulls=())
    >>> to_frame(table).query("metric == 'drift'")[["layer", "mean"]].round(1).values.tolist()
    [[0, 0.2], [1, 0.2]]
    """
    check_table(table)
    frame = tidy(table.expand_dims("run"), table.attrs.get("batches", 1))
    return frame.drop(columns=["run", "corpus", "batches"]).dropna(axis=1, how="all")


def select_values(
    table: xr.Dataset, quantity: str, null: str | None, where: dict[str, Any]
) -> xr.DataArray:
    """Select a quantity, or its excess, at these labels of dimensions; None is the last label."""
    check_table(table)
    names = [str(name) for name in table.data_vars if not str(name).endswith(excess_name(""))]
    if quantity not in names:
        advice = "; pass null= for an excess" if quantity in table else ""
        if quantity in quantities():
            advice = f"; it is measured by families={find_family(quantity)!r}"
        raise ValueError(
            f"{quantity!r} is not a quantity of the table, which has {', '.join(names)}{advice}"
        )
    values = table[quantity]
    if null is not None:
        if excess_name(quantity) not in table:
            raise ValueError(
                f"null {null!r}: the table has no null model of {quantity}; leave it out"
            )
        values, where = table[excess_name(quantity)], where | {NULL: null}
    for dim, at in where.items():
        if dim in values.dims:
            labels = values[dim].values.tolist()
            at = labels[-1] if at is None else at
            if at not in labels:
                raise ValueError(
                    f"{dim} {at!r} is not in the table; choose from {', '.join(map(str, labels))}"
                )
            values = values.sel({dim: at})
        elif at not in (None, "all"):
            raise ValueError(f"{dim} {at!r}: {quantity} has no dimension {dim}; leave it out")
    return values
