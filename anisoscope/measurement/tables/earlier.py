"""Tables of earlier versions, under the names of today."""

import json
from typing import Any

import xarray as xr

from anisoscope.utils import renamed
from anisoscope.utils.settings import of_today

ATTRIBUTES = {"groups": "folds", "site": "hook_point", "site_in_words": "hook_point_in_words"}


def of_before(table: xr.Dataset) -> xr.Dataset:
    """A table as it was read; of an earlier version, as today's would be."""
    table.attrs = _attributes(table.attrs)
    return table.rename({then: now for then, now in renamed.QUANTITIES.items() if then in table})


def _attributes(attrs: dict[str, Any]) -> dict[str, Any]:
    names = ATTRIBUTES | ({"folds": "folds_in_words"} if "groups" in attrs else {})
    found = {names.get(name, name): value for name, value in attrs.items()}
    for name, rename in (("config", of_today), ("made_by", _made_by)):
        if name in found and (now := rename(before := json.loads(found[name]))) != before:
            found[name] = json.dumps(now)
    return found


def _made_by(values: dict[str, Any]) -> dict[str, Any]:
    """Settings by dotted name; of a file of vectors, what its labels are called."""
    return {"clusters" if name == "groups" else name: value for name, value in renamed.settings(values).items()}
