"""What a figure may read of a run: its table, its training log, and the words for both."""

from dataclasses import dataclass
from typing import Any

import xarray as xr

POSITIONS = {"all": "all positions", "without_first": "without position 0"}
OBJECTIVES = {"next": "next character", "masked": "masked characters"}


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
    facts = {label: _facts(run.results) for label, run in runs.items()}
    shared = [fact for fact in next(iter(facts.values())) if all(fact in own for own in facts.values())]
    own = {label: [fact for fact in own if fact not in shared] for label, own in facts.items()}
    lines = ["; ".join(shared), *(f"{label}: {'; '.join(rest)}" for label, rest in own.items() if rest)]
    return [line for line in lines if line]


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
