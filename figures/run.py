"""What a figure may read of a run: its table, its training log, and the words for both."""

import json
from dataclasses import dataclass
from typing import Any

import xarray as xr

POSITIONS = {"all": "all positions", "without_first": "without position 0"}
OBJECTIVES = {"next": "next character", "masked": "masked characters"}


TOLD = (
    *("model.mask", "model.norm", "model.layers", "model.width", "model.heads", "model.context", "model.positions"),
    *("model.tied", "model.bias", "model.expansion", "train.steps", "train.seed", "measure.points", "measure.batches"),
)


@dataclass(frozen=True)
class Run:
    results: xr.Dataset  # results.nc
    log: list[dict[str, Any]]  # train.jsonl, one dict a line


def holding(runs: dict[str, Run], *variables: str) -> dict[str, Run]:
    """The runs whose tables have all these variables: a family may have been left out of a measurement."""
    return {label: run for label, run in runs.items() if all(name in run.results for name in variables)}


def words(runs: dict[str, Run], variable: str) -> str:
    """The variable's name and unit for an axis, from its own attributes."""
    attrs = next(iter(runs.values())).results[variable].attrs
    return attrs["long_name"] if attrs["units"] in ("", "1") else f"{attrs['long_name']} ({attrs['units']})"


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
    config = json.loads(results.attrs["config"])
    groups = {name: group for name, group in config.items() if isinstance(group, dict) and name not in ("data", "mesh")}
    flat = {f"{name}.{field}": value for name, group in groups.items() for field, value in group.items()}
    return {name: value for name, value in flat.items() if name not in TOLD}


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
        f"predicts {OBJECTIVES[attrs['objective']]}",
        f"{reached} steps" if reached == f"{attrs['steps']:,}" else f"step {reached} of {attrs['steps']:,}",
        f"seed {attrs['seed']}",
        f"points × batches = {attrs['points']:,} × {attrs['batches']}",
    ]
