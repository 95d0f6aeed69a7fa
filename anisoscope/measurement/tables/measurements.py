"""The folder measurements/ of a run: which tables stand there, what of them holds today, and what is missing."""

import json
import os
import pathlib
from typing import Any, NamedTuple

import xarray as xr

from anisoscope.measurement.tables import files
from anisoscope.measurement.tables.raw import LAYOUT, Missing, merged, missing
from anisoscope.utils.errors import UserError

UNSAID = {
    "measure.weighting": "none",
    "hidden_states": "blocks",
}  # settings that tables of old do not name, and were made by
ASIDE = "older_layout"  # the folder beside the tables that takes those that cannot be read


class Standing(NamedTuple):
    """What there is of one checkpoint, and what is asked for beyond that."""

    table: xr.Dataset | None  # None: none, or one of an older layout
    older: bool  # a table of an older layout lies there
    missing: Missing  # what has to be measured of the checkpoint; {}: nothing


def plan(
    folder: pathlib.Path, steps: list[int], families: tuple[str, ...], nulls: tuple[str, ...], made_by: dict[str, Any]
) -> dict[int, Standing]:
    """Of every step, what stands in <step>.nc and what is missing there; UserError where the clouds are others.

    `made_by` are the settings that decide which vectors make up a cloud. A table records them too (attribute
    `made_by`), and one that was made by others must not be joined with what is measured now.
    """
    found = {}
    for step in steps:
        path = folder / f"{step}.nc"
        table = files.read(path) if path.exists() else None
        older = table is not None and table.attrs.get("layout") != LAYOUT
        if table is not None and not older:
            _refuse_others(path, table, made_by)
        table = None if older else table
        found[step] = Standing(table, older, missing(table, families, nulls))
    return found


def nothing(families: tuple[str, ...], nulls: tuple[str, ...]) -> Standing:
    """Where a table is not to be used, as its checkpoint has changed: all is measured again."""
    return Standing(None, False, missing(None, families, nulls))


def check(folder: pathlib.Path, made_by: dict[str, Any]) -> None:
    """Raise UserError where tables in the folder are of other clouds; one is read, since all of them agree."""
    for path in sorted(folder.glob("*.nc")):
        table = files.read(path)
        if table.attrs.get("layout") == LAYOUT:
            _refuse_others(path, table, made_by)
            return


def _refuse_others(path: pathlib.Path, table: xr.Dataset, made_by: dict[str, Any]) -> None:
    there, now = UNSAID | json.loads(table.attrs.get("made_by", "{}")), json.loads(json.dumps(made_by))
    different = [
        f"{name}={there[name]!r} there, {now[name]!r} now"
        for name in sorted(there.keys() & now.keys())
        if there[name] != now[name]
    ]
    if different:
        advice = f"pass the same settings, or move {path.parent} away to measure again"
        raise UserError(f"{path} was measured on other clouds: {'; '.join(different)}; {advice}")


def keep(table: xr.Dataset, step: int, there: Standing, folder: pathlib.Path) -> xr.Dataset:
    """Write <folder>/<step>.nc: what is measured now beside what was there; the whole of it."""
    if there.older:
        set_aside(folder, step)
    whole = merged(there.table, table, there.missing)
    files.write(whole, folder / f"{step}.nc")
    return whole


def set_aside(folder: pathlib.Path, step: int) -> pathlib.Path:
    """Move the table of an older layout to a folder of its own, beside any that lies there; where it is now."""
    to = folder / ASIDE / f"{step}.nc"
    to.parent.mkdir(exist_ok=True)
    again = 2
    while to.exists():
        to, again = to.with_name(f"{step}_{again}.nc"), again + 1
    os.rename(folder / f"{step}.nc", to)
    return to
