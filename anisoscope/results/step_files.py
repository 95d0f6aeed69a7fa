"""Read and write the tables of single steps: <step>.nc in the folder measurements/ of a run."""

import functools
import json
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.results import joined_files
from anisoscope.results.replicates_table import merge_families
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.settings import flat, format_differences

STREAM, TANGENTS = "the residual stream", "tangents"  # sources of a table, besides hook points


def read_step(
    path: pathlib.Path, cloud: str = STREAM, run: dict[str, Any] | None = None
) -> xr.Dataset:
    """Read the table of a single step.

    Args:
        path: <step>.nc.
        cloud: A hook point or one of the constants above.
        run: Settings that would differ in a table of another run.

    Raises:
        RunError: The table is damaged, or belongs to another step, run or cloud.
    """
    table = joined_files.read_table(path)
    steps = np.ravel(table.coords["step"].values if "step" in table.coords else [])
    steps = [str(step) for step in steps.tolist()]
    what = TANGENTS if "early_proxies" in table.attrs else STREAM
    what = table.attrs.get("hook_point", what)
    config = flat(json.loads(table.attrs.get("config", "{}")))
    others = [
        f"{name}={config[name]!r}"
        for name, value in (run or {}).items()
        if config.get(name, value) != value
    ]
    if what != cloud:
        wrong = f"of {what}, not of {cloud}"
    elif steps != [path.stem]:
        wrong = f"of step {', '.join(steps[:3]) or '?'}, not of step {path.stem}"
    elif others:
        wrong = f"of another run, with {', '.join(others[:3])}"
    else:
        return table
    raise RunError(
        f"table {path} says that it is {wrong}; move it to its place, or delete it, and the same command measures again"
    )


class StepTables(Mapping[int, xr.Dataset]):
    """The tables at these paths, by step; each is read when it is first used."""

    def __init__(self, paths: dict[int, pathlib.Path], cloud: str):
        self._paths = paths
        self._read = functools.cache(lambda step: read_step(paths[step], cloud))

    def __getitem__(self, step: int) -> xr.Dataset:
        return self._read(step)

    def __iter__(self) -> Iterator[int]:
        return iter(self._paths)

    def __len__(self) -> int:
        return len(self._paths)


def read_same_clouds(
    path: pathlib.Path,
    made_by: dict[str, Any],
    cloud: str = STREAM,
    run: dict[str, Any] | None = None,
) -> xr.Dataset | None:
    """Read the table of a single step; None if there is none.

    `made_by` are the settings that decide which vectors make up a cloud. A table records them in
    the attribute `made_by`, and tables of other clouds must not be joined.

    Raises:
        UserError: The table was measured on other clouds.
    """
    if not path.exists():
        return None
    table = read_step(path, cloud, run)
    _refuse_other_clouds(path, table, made_by)
    return table


def check_folder(folder: pathlib.Path, made_by: dict[str, Any]) -> None:
    """Raise UserError if the first table in a folder has other clouds; all tables agree."""
    if path := min(folder.glob("*.nc"), default=None):
        _refuse_other_clouds(path, joined_files.read_table(path), made_by)


def _refuse_other_clouds(path: pathlib.Path, table: xr.Dataset, made_by: dict[str, Any]) -> None:
    before, now = json.loads(table.attrs.get("made_by", "{}")), json.loads(json.dumps(made_by))
    if different := format_differences(before, now, before.keys() & now.keys()):
        advice = f"pass the same settings, or move {path.parent} away to measure again"
        raise UserError(f"{path} was measured on other clouds: {different}; {advice}")


def write_step(
    path: pathlib.Path, old: xr.Dataset | None, new: xr.Dataset, families: tuple[str, ...]
) -> None:
    """Write <step>.nc: the old table, if any, with these families replaced from the new table."""
    joined_files.write_table(merge_families(old, new, families), path)
