"""A table as a pandas DataFrame: one row for each number."""

import pandas as pd
import xarray as xr

from anisoscope.measurement.tables.earlier import of_before
from anisoscope.measurement.tables.join import tidy

ALONE = {"step": 0, "positions": "all", "layer": 0}  # dimensions that tables of arrays may not have
UNUSED = ("run", "corpus", "batches")


def to_frame(table: xr.Dataset) -> pd.DataFrame:
    """One row for each number: metric, layer, head …, then mean, std, low, high and the excess over each null model.

    Args:
        table: of `measure`, `measure_model`, `measure_attention`, or results.nc of a run.

    Returns:
        A DataFrame; columns that the table has nothing for are left out.
    """
    table = of_before(table)  # as xarray alone opens it
    lacking = {dim: at for dim, at in ALONE.items() if dim not in table.dims}
    if "block" in table.dims:  # which is a layer in a frame
        lacking.pop("layer", None)
    whole = table.drop_vars([dim for dim in lacking if dim in table.coords]).expand_dims(
        {dim: [at] for dim, at in lacking.items()}
    )
    names = {}
    for dim in ("layer", "block"):
        if dim in table.dims and table[dim].dtype.kind not in "iu":  # names that a user gave
            names[dim] = dict(enumerate(table[dim].values.tolist()))
            whole = whole.assign_coords({dim: list(names[dim])})
    whole.attrs = {"run": "", "corpus": ""} | whole.attrs
    frame = tidy(whole, whole.attrs.get("batches", 1)).drop(columns=[*UNUSED, *lacking])
    for of_layer in names.values():
        frame["layer"] = frame["layer"].map(of_layer)
    return frame.dropna(axis=1, how="all")
