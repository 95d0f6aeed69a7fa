"""What a quantity exceeds null models by: a variable of its own beside the value, with a dimension
`null`.
"""

from typing import Any

import numpy as np
import xarray as xr

from anisoscope.measurement.null_models import DRAWS

NULL = "null"  # the dimension over null models
NULL_WORDS = (  # what it is
    "null model, whose value is taken off batch by batch and replicate by replicate; of the gaussian "
    f"one the mean over {DRAWS} draws"
)


def excess_name(name: str) -> str:
    """Name the variable of what a quantity, or an average of it, exceeds null models by."""
    return f"{name}_excess"


def about_excess(name: str, about: dict[str, Any]) -> dict[str, Any]:
    """Derive the attributes of an excess from those of the value. An excess has no range of its
    own.
    """
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
    """List the quantities of a table and their averages: what has an interval and is no excess."""
    return [
        str(name)
        for name, array in table.data_vars.items()
        if "statistic" in array.dims and not is_excess(array)
    ]


def nulls_in(table: xr.Dataset) -> list[str]:
    """List the null models of a table."""
    return table[NULL].values.tolist() if NULL in table.dims else []


def excess_of(table: xr.Dataset, name: str, null: str) -> xr.DataArray:
    """Subtract that null model from the value; NaN where there is no such excess."""
    if null in nulls_in(table) and excess_name(name) in table:
        return table[excess_name(name)].sel({NULL: null}, drop=True)
    return xr.full_like(table[name], np.nan)
