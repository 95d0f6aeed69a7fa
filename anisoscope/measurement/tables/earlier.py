"""Tables of earlier versions, under the names and in the layout of today."""

import json
from typing import Any

import xarray as xr

from anisoscope.measurement.tables.excess import NULL, NULL_WORDS, about_excess, excess_name
from anisoscope.utils import renamed
from anisoscope.utils.settings import of_today

LESS, NOTHING = "less", "nothing"
ATTRIBUTES = {
    "groups": "folds",
    "measure.groups": "measure.folds",
    "site": "hook_point",
    "site_in_words": "hook_point_in_words",
}


def of_before(table: xr.Dataset) -> xr.Dataset:
    """A table as it was read; of an earlier version, as today's would be."""
    today = _with_excess(table) if LESS in table.dims else table.copy()
    today.attrs = _attributes(table.attrs)
    return today.rename({then: now for then, now in renamed.QUANTITIES.items() if then in today})


def _attributes(attrs: dict[str, Any]) -> dict[str, Any]:
    names = ATTRIBUTES | ({"folds": "folds_in_words"} if "groups" in attrs else {})
    attributes = {names.get(name, name): value for name, value in attrs.items()}
    for name, rename in (("config", of_today), ("made_by", _made_by)):
        if name in attributes and (now := rename(before := json.loads(attributes[name]))) != before:
            attributes[name] = json.dumps(now)
    return attributes


def _with_excess(table: xr.Dataset) -> xr.Dataset:
    """Values and excess apart: both stood along a dimension `less`, of which `nothing` was the value.

    A quantity that no null model has was NaN along it; it has no excess.
    """
    variables = {}
    for name, array in table.data_vars.items():
        if LESS not in array.dims:
            variables[name] = array
            continue
        variables[name] = array.sel({LESS: NOTHING}, drop=True)
        excess = array.drop_sel({LESS: NOTHING}).rename({LESS: NULL})
        if excess.notnull().any():
            excess.attrs = about_excess(str(name), array.attrs)
            variables[excess_name(str(name))] = excess
    apart = xr.Dataset(variables)
    if NULL in apart.coords:
        apart[NULL].attrs = {"long_name": NULL_WORDS}
    return apart.assign_coords({name: array for name, array in table.coords.items() if LESS not in array.dims})


def _made_by(values: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted name; of a file of vectors, what its labels are called."""
    return {"clusters" if name == "groups" else name: value for name, value in renamed.settings(values).items()}
