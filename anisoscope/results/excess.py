"""The excess of a quantity over null models, a separate variable with a dimension `null`."""

from typing import Any

import numpy as np
import xarray as xr

from anisoscope.measurement.null_models import DRAWS

NULL = "null"  # the dimension over null models
NULL_WORDS = (  # its long name
    "null model, whose value is subtracted for each batch and replicate; for gaussian the mean over "
    f"{DRAWS} draws"
)


def excess_name(name: str) -> str:
    """Name the variable with the excess of a quantity, or of its average, over null models."""
    return f"{name}_excess"


def about_excess(name: str, about: dict[str, Any]) -> dict[str, Any]:
    """Derive the attributes of an excess from those of the value; an excess has no range."""
    words = {
        "long_name": f"{about.get('long_name', name)}, excess over a null model",
        "units": about.get("units", "1"),
    }
    kept = {key: about[key] for key in ("family", "resampling") if key in about}
    formula = f"value minus that of the null model (gaussian: the mean over {DRAWS} draws)"
    return words | {"formula": formula, "excess_of": name} | kept


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
