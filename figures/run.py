"""What a figure may read of a run: its tables and its training log, with intervals and the words for both."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from figures import style
from panel.intervals import LEVEL, summarise
from tables.summary import NOTHING

POSITIONS = {
    "all": "all positions",
    "without_first": "without position 0",
    "without_special": "without special tokens",
}
NULLS = {
    "gaussian": "Gaussian cloud,\nsame spectrum",
    "shuffled": "shuffled tokens\nas input",
    "untrained": "same network,\nuntrained",
}
ENDS = ("mean", "low", "high")

Curve = tuple[np.ndarray, np.ndarray, np.ndarray]  # mean, low, high


@dataclass(frozen=True)
class Run:
    results: xr.Dataset  # results.nc
    batches: xr.Dataset  # batches.nc
    log: list[dict[str, Any]]  # train.jsonl, one dict a line


def holding(runs: dict[str, Run], *variables: str) -> dict[str, Run]:
    """The runs whose tables have all these variables: a family may have been left out of a measurement."""
    return {label: run for label, run in runs.items() if all(name in run.results for name in variables)}


def words(runs: dict[str, Run], variable: str) -> str:
    """The variable's name and unit for an axis, from its own attributes."""
    attrs = next(iter(runs.values())).results[variable].attrs
    return style.label(attrs["long_name"], attrs["units"])


def nulls(results: xr.Dataset) -> list[str]:
    """The null models that the run was measured beside."""
    return [less for less in results["less"].values.tolist() if less != NOTHING] if "less" in results else []


def interval(results: xr.Dataset, name: str, less: str = NOTHING, **where: Any) -> Curve:
    """Mean over batches and the ends of its interval, at these places: of the value, or of it `less` a null model's."""
    values = results[name].sel(less=less, **where)
    return tuple(values.sel(statistic=statistic).values for statistic in ENDS)


def over_batches(values: xr.DataArray) -> Curve:
    """The same of an average over layers or heads, which has no interval in the tables: Student's, from the batches.

    Over seeds, their range. NaN where a batch or a seed has no number: the curve would jump where others of them count.
    """
    if "seed" in values.dims:
        return tuple(getattr(values, end)("seed", skipna=False).values for end in ("mean", "min", "max"))
    values = values.where(np.isfinite(values)).transpose("batch", ...)
    found = summarise(values.values[:, None], "")
    return found.mean, found.low, found.high


def bands(runs: dict[str, Run], *names: str, what: str = "band") -> str:
    """What the bands of `interval` are, as a title's remark; nothing where no run has any."""
    ways = set()
    for run in runs.values():
        for values in (run.results[name] for name in names if name in run.results):
            if np.isfinite(values.sel(statistic="low")).any():
                over = "windows resampled" if run.results.attrs["groups"] > 1 else "over batches"
                ways.add("seeds" if "seed" in run.batches.dims and "seed" not in values.dims else over)
    return _bands(ways, what)


def bands_over_batches(runs: dict[str, Run]) -> str:
    ways = {dim for run in runs.values() for dim in ("seed", "batch") if run.batches.sizes.get(dim, 1) > 1}
    return _bands({"seeds" if dim == "seed" else "over batches" for dim in ways})


def _bands(ways: set[str], what: str = "band") -> str:
    intervals = " or ".join(sorted(ways - {"seeds"}))
    said = [f"{LEVEL * 100:.0f} % interval, {intervals}"] * bool(intervals)
    said += ["range of seeds"] * ("seeds" in ways)
    return f"{what}: {' or '.join(said)}" if said else ""


def last_step(runs: dict[str, Run]) -> int:
    return max(int(run.results.step[-1]) for run in runs.values())


def positions(runs: dict[str, Run]) -> list[str]:
    return list(next(iter(runs.values())).results.positions.values)
