"""Convert a table to a pandas DataFrame with a row for each number, and select its values."""

from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from pandas.api.types import is_numeric_dtype

from anisoscope.metrics.registry import find_family, quantities
from anisoscope.results.summary import NULL, STATISTICS, excess_name
from anisoscope.utils.errors import did_you_mean

ALONE = {"step": 0, "positions": "all", "layer": 0}  # dimensions that tables of arrays may not have
PLACES = ("run", "step", "positions", "layer", "block", "head")  # dimensions with a column each
ENDINGS = {"": "mean", "_low": "low", "_high": "high"}  # endings of an excess's columns
NOISE_FLOOR = "noise_floor"  # attribute of a run (JSON, by quantity) and of each quantity


def is_excess(variable: xr.DataArray) -> bool:
    return "excess_of" in variable.attrs


def values_of(table: xr.Dataset) -> list[str]:
    """List the quantities of a table and their averages, without excesses."""
    return [
        str(name)
        for name, array in table.data_vars.items()
        if "statistic" in array.dims and not is_excess(array)
    ]


def nulls_in(table: xr.Dataset) -> list[str]:
    """List the null models of a table."""
    return table[NULL].values.tolist() if NULL in table.dims else []


def excess_of(table: xr.Dataset, name: str, null: str) -> xr.DataArray:
    """Return the excess over this null model; NaN if the table has none."""
    if null in nulls_in(table) and excess_name(name) in table:
        return table[excess_name(name)].sel({NULL: null}, drop=True)
    return xr.full_like(table[name], np.nan)


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


def tidy(results: xr.Dataset, batches: int) -> pd.DataFrame:
    """Make a row for each number: run, corpus, step, positions, metric, layer, head, statistics.

    `axis` and `at` name any other dimension and the place on it, such as neighbors 8 or top 4. The
    statistics are mean, std, low and high over batches, and excess_<null>, excess_<null>_low and
    excess_<null>_high. `layer` may be a block. An average over blocks is a metric of its own
    (`twonn_over_blocks`) without a layer. `noise_floor`, for pretrained models, says how much a
    value of the metric varies with batch size and kernels.
    """
    names, nulls, parts = values_of(results), nulls_in(results), []
    excesses = [results[excess_name(name)] for name in names if excess_name(name) in results]
    nulls = nulls if any(excess.notnull().any() for excess in excesses) else []
    for name in names:
        values = results[name]
        frame = _rows(values)
        for null in nulls:
            excess = _rows(excess_of(results, name, null).transpose(*values.dims))
            ends = {f"excess_{null}{end}": excess[key] for end, key in ENDINGS.items()}
            frame = frame.assign(**ends)
        further = [dim for dim in frame.index.names if dim not in PLACES]
        if len(further) > 1:
            what = f"{name} has the dimensions {', '.join(map(str, further))}"
            raise ValueError(f"{what}; select a place on all but one of them")
        frame = frame.reset_index().rename(
            columns={"block": "layer"} | dict.fromkeys(further, "at")
        )
        frame = frame.assign(metric=name, units=values.attrs["units"])
        frame[NOISE_FLOOR] = values.attrs.get(NOISE_FLOOR, np.nan)
        parts.append(frame.assign(axis=further[0]) if further else frame)
    attributes = {"run": results.attrs.get("run"), "corpus": results.attrs.get("corpus")}
    frame = pd.concat(parts, ignore_index=True).assign(**attributes, batches=batches)
    columns = ["run", "corpus", "step", "positions", "metric", "layer", "head", "axis", "at"]
    columns += [*STATISTICS, *(f"excess_{null}{end}" for null in nulls for end in ENDINGS)]
    columns += [NOISE_FLOOR] * bool(frame[NOISE_FLOOR].notna().any()) + ["batches", "units"]
    if "layer_name" in results.coords:  # names from the user
        words = dict(zip(results["layer"].values, results["layer_name"].values, strict=True))
        frame["layer_name"] = frame["layer"].map(words)
        columns.insert(columns.index("head"), "layer_name")
    frame = frame.reindex(columns=columns)
    whole = [
        name
        for name in ("layer", "head")
        if is_numeric_dtype(frame[name]) and (frame[name].dropna() % 1 == 0).all()
    ]
    return frame.astype(dict.fromkeys(whole, "Int64"))


def _rows(values: xr.DataArray) -> pd.DataFrame:
    """Make a row for each place, and a column for each statistic."""
    dims = [dim for dim in values.dims if dim != "statistic"]
    dataset = values.reset_coords(drop=True).to_dataset("statistic")
    return dataset.to_dataframe(dim_order=dims)


def select_values(
    table: xr.Dataset, quantity: str, null: str | None, where: dict[str, Any]
) -> xr.DataArray:
    """Select a quantity, or its excess, at these labels of dimensions; None is the last label."""
    check_table(table)
    names = [str(name) for name in table.data_vars if not str(name).endswith(excess_name(""))]
    if not isinstance(quantity, str):
        raise ValueError(f"quantity is {quantity!r}; pass one name, and call again for the next")
    if quantity not in names:
        advice = did_you_mean(str(quantity), names)
        if quantity in quantities():
            advice = f"families={find_family(quantity)!r} measures it; "
        advice = "pass null= for an excess; " if quantity in table else advice
        raise ValueError(
            f"{quantity!r} is not a quantity of the table; {advice}choose from {', '.join(names)}"
        )
    values = table[quantity]
    if null is not None:
        if excess_name(quantity) not in table:
            raise ValueError(
                f"null {null!r}: the table has no null model of {quantity}; leave it out"
            )
        if null in nulls_in(table) and not excess_of(table, quantity, null).notnull().any():
            _refuse_empty_excess(table, quantity, null)
        values, where = table[excess_name(quantity)], where | {NULL: null}
    for dim, at in where.items():
        if dim in values.dims:
            labels = values[dim].values.tolist()
            at = labels[-1] if at is None else at
            if at not in labels:
                advice = did_you_mean(str(at), labels)
                known = ", ".join(map(str, labels))
                raise ValueError(f"{dim} {at!r} is not in the table; {advice}choose from {known}")
            values = values.sel({dim: at})
        elif at not in (None, "all"):
            raise ValueError(f"{dim} {at!r}: {quantity} has no dimension {dim}; leave it out")
    return values


def _refuse_empty_excess(table: xr.Dataset, quantity: str, null: str) -> None:
    """Raise ValueError for a null model without an excess, unless the values are missing too."""
    others = [name for name in nulls_in(table) if excess_of(table, quantity, name).notnull().any()]
    if table[quantity].notnull().any():
        raise ValueError(
            f"null {null!r}: {quantity} has no excess over it; "
            + (f"choose from {', '.join(others)}" if others else "leave it out")
        )
