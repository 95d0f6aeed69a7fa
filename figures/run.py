"""What a figure may read of a run: its table, its training log, and the words for both."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from models import description
from panel.intervals import LEVEL, summarise
from studies import runs as tables
from training.objective import OBJECTIVES
from training.optimizer import OPTIMIZERS

POSITIONS = {"all": "all positions", "without_first": "without position 0"}
NULLS = {
    "gaussian": "Gaussian cloud,\nsame spectrum",
    "shuffled": "shuffled bytes\nas input",
    "untrained": "same network,\nuntrained",
}
TOLD = (  # beside what the description of the model tells
    *("objective", "train.optimizer", "train.steps", "train.seed", "train.data_seed"),
    *("measure.points", "measure.batches"),
)


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
    return attrs["long_name"] if attrs["units"] in ("", "1") else f"{attrs['long_name']} ({attrs['units']})"


def interval(results: xr.Dataset, name: str, **where: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mean over batches and the ends of its interval, at these places on the dimensions."""
    return tuple(results[f"{name}_{end}"].sel(where).values for end in ("mean", "low", "high"))


def over_batches(values: xr.DataArray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same of an average over layers or heads, which has no interval in the tables: Student's, from the batches.

    Over seeds, their range. NaN where a batch or a seed has no number: the curve would jump where others of them count.
    """
    if "seed" in values.dims:
        return tuple(getattr(values, end)("seed", skipna=False).values for end in ("mean", "min", "max"))
    values = values.where(np.isfinite(values)).transpose("batch", ...)
    found = summarise(values.values[:, None], "")
    return found.mean, found.low, found.high


def band(runs: dict[str, Run], *names: str) -> str:
    """What the bands of `interval` are, to end a title with; nothing where no run has any."""
    ways = set()
    for run in runs.values():
        ends = [run.results[f"{name}_low"] for name in names if name in run.results]
        if any(np.isfinite(end).any() for end in ends):
            over = "windows resampled" if run.results.attrs["groups"] > 1 else "over batches"
            ways.add("seeds" if "seed" in run.results.dims else over)
    return _band(ways)


def band_over_batches(runs: dict[str, Run]) -> str:
    ways = {dim for run in runs.values() for dim in ("seed", "batch") if run.results.sizes.get(dim, 1) > 1}
    return _band({"seeds" if dim == "seed" else "over batches" for dim in ways})


def _band(ways: set[str]) -> str:
    intervals = " or ".join(sorted(ways - {"seeds"}))
    words = [f"{LEVEL * 100:.0f} % interval, {intervals}"] * bool(intervals)
    words += ["range of seeds"] * ("seeds" in ways)
    return f" (band: {' or '.join(words)})" if words else ""


def last_step(runs: dict[str, Run]) -> int:
    return max(int(run.results.step[-1]) for run in runs.values())


def positions(runs: dict[str, Run]) -> list[str]:
    return list(next(iter(runs.values())).results.positions.values)


def provenance(runs: dict[str, Run]) -> list[str]:
    """Corpus, model, steps, seed and sample of every run: first the facts that all share, then a line for each run."""
    settings = {label: _settings(run.results) for label, run in runs.items()}
    facts = {
        label: _facts(run.results) + [f"{name}={value}" for name, value in _differing(label, settings).items()]
        for label, run in runs.items()
    }
    shared = [fact for fact in next(iter(facts.values())) if all(fact in own for own in facts.values())]
    own = {label: [fact for fact in own if fact not in shared] for label, own in facts.items()}
    lines = ["; ".join(shared), *(f"{label}: {'; '.join(rest)}" for label, rest in own.items() if rest)]
    return [line for line in lines if line]


def _settings(results: xr.Dataset) -> dict[str, Any]:
    """The settings of a run by dotted name, but for those that `_facts` tells in words."""
    found = tables.settings(results)
    told = {*TOLD, *(f"model.{name}" for name in description.told())}
    return {name: value for name, value in found.items() if name not in told and not name.startswith("data.")}


def _differing(label: str, settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What this run sets otherwise than one of the others does: without it, two curves would bear one caption."""
    own = settings[label]
    return {name: value for name, value in own.items() if any(other.get(name) != value for other in settings.values())}


def _facts(results: xr.Dataset) -> list[str]:
    attrs = results.attrs
    reached = f"{results.step.values[-1]:,}"
    return [
        str(attrs["corpus"]),
        *str(attrs["model"]).split(", "),
        f"predicts {OBJECTIVES[attrs['objective']].label}",
        OPTIMIZERS[tables.settings(results).get("train.optimizer", "adamw")].label,  # tables of old have no other
        f"{reached} steps" if reached == f"{attrs['steps']:,}" else f"step {reached} of {attrs['steps']:,}",
        attrs["seeds"] if "seeds" in attrs else seeds_in_words([tables.seeds(results)]),
        f"points × batches = {attrs['points']:,} × {attrs['batches']}",
    ]


def seeds_in_words(pairs: list[tuple[int, int]]) -> str:
    """Seeds of the initial parameters and of the data, told apart where they differ."""
    weights, data = (sorted(set(kind)) for kind in zip(*pairs, strict=True))
    said = [", ".join(map(str, kind)) for kind in (weights, data)]
    if all(one == other for one, other in pairs):
        return f"seed{'s' * (len(weights) > 1)} {said[0]}"
    return f"weight seed{'s' * (len(weights) > 1)} {said[0]} and data seed{'s' * (len(data) > 1)} {said[1]}"
