"""The folder measurements/ of a run: which tables stand there, what of them holds today, and what
is missing.
"""

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope.results import joined_files
from anisoscope.results.replicates_table import Missing, merged, missing
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.settings import flat, format_differences

STREAM, TANGENTS = "the residual stream", "tangents"  # what tables are of, beside hook points


class Standing(NamedTuple):
    """What there is of one checkpoint, and what is asked for beyond that."""

    table: xr.Dataset | None
    missing: Missing  # what has to be measured of the checkpoint; {}: nothing


def plan(
    folder: pathlib.Path,
    steps: list[int],
    families: tuple[str, ...],
    nulls: tuple[str, ...],
    made_by: dict[str, Any],
    run: dict[str, Any] | None = None,
    of: str = STREAM,
) -> dict[int, Standing]:
    """Of every step, what stands in <step>.nc and what is missing there; UserError where the clouds
    are others.

    `made_by` are the settings that decide which vectors make up a cloud. A table records them too
    (attribute `made_by`), and one that was made by others must not be joined with what is measured
    now. `run` and `of` are those of `read`.
    """
    standings = {}
    for step in steps:
        path = folder / f"{step}.nc"
        table = read_step(path, of, run) if path.exists() else None
        if table is not None:
            _refuse_others(path, table, made_by)
        standings[step] = Standing(table, missing(table, families, nulls))
    return standings


def read_step(
    path: pathlib.Path, of: str = STREAM, run: dict[str, Any] | None = None
) -> xr.Dataset:
    """<step>.nc, the table of one checkpoint; RunError where it says that it is of another, or of
    something else.

    `of` is a hook point or one of the constants above; `run` holds settings that a table of another
    run has otherwise.
    """
    table = joined_files.read_table(path)
    steps, what = _said(table)
    there = flat(json.loads(table.attrs.get("config", "{}")))
    others = [
        f"{name}={there[name]!r}"
        for name, value in (run or {}).items()
        if there.get(name, value) != value
    ]
    if what != of:
        wrong = f"of {what}, not of {of}"
    elif steps != [path.stem]:
        wrong = f"of step {', '.join(steps[:3]) or '?'}, not of step {path.stem}"
    elif others:
        wrong = f"of another run, with {', '.join(others[:3])}"
    else:
        return table
    raise RunError(
        f"table {path} says that it is {wrong}; move it to its place, or delete it, and the same command measures again"
    )


def _said(table: xr.Dataset) -> tuple[list[str], str]:
    """Of which steps a table says that it is, and of what."""
    if "hook_point" in table.attrs:
        what = table.attrs["hook_point"]
    elif "early_proxies" in table.attrs:
        what = TANGENTS
    else:
        what = STREAM
    steps = table.coords["step"].values if "step" in table.coords else []
    return [str(step) for step in np.ravel(steps).tolist()], what


def nothing(families: tuple[str, ...], nulls: tuple[str, ...]) -> Standing:
    """Where a table is not to be used, as its checkpoint has changed: all is measured again."""
    return Standing(None, missing(None, families, nulls))


def check_folder(folder: pathlib.Path, made_by: dict[str, Any]) -> None:
    """Raise UserError where tables in the folder are of other clouds; one is read, since all of
    them agree.
    """
    if path := min(folder.glob("*.nc"), default=None):
        _refuse_others(path, joined_files.read_table(path), made_by)


def _refuse_others(path: pathlib.Path, table: xr.Dataset, made_by: dict[str, Any]) -> None:
    there, now = json.loads(table.attrs.get("made_by", "{}")), json.loads(json.dumps(made_by))
    if different := format_differences(there, now, there.keys() & now.keys()):
        advice = f"pass the same settings, or move {path.parent} away to measure again"
        raise UserError(f"{path} was measured on other clouds: {different}; {advice}")


def keep(table: xr.Dataset, step: int, there: Standing, folder: pathlib.Path) -> xr.Dataset:
    """Write <folder>/<step>.nc: what is measured now beside what was there; the whole of it."""
    whole = merged(there.table, table, there.missing)
    joined_files.write(whole, folder / f"{step}.nc")
    return whole
