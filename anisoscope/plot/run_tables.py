"""The tables and log of a run as figures read them, with intervals and their descriptions."""

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.results.derived import EMBEDDING, excess_of

POSITIONS = {
    "all": "all positions",
    "without_first_token": "without the first token",
    "without_special": "without special tokens",
}
NULLS = {  # that figures have columns for; others stand in tables
    "gaussian": "Gaussian cloud,\nsame spectrum",
    "shuffled": "shuffled input",
    "untrained": "same network,\nuntrained",
    "permuted": "windows of one cloud\nin another order",
}
ENDS = ("mean", "low", "high")
VISIBLE = 0.02  # of the height of a panel
SAME = "Without the first token the figure looks the same: no value moves by more than 2 % of their range."
Curve = tuple[np.ndarray, np.ndarray, np.ndarray]  # mean, low, high


@dataclass(frozen=True)
class Run:
    """The tables and the log of a run or a model."""

    results: xr.Dataset  # results.nc
    log: list[dict[str, Any]]  # train.jsonl, one dict a line
    tangents: xr.Dataset | None = None  # tangents.nc
    hook_points: dict[str, xr.Dataset] = field(
        default_factory=dict
    )  # hook_points/<name>/results.nc
    kind: str = ""  # of a list of models: encoder or decoder
    modality: str = ""  # likewise: one of pretrained.models.MODALITIES


def runs_with(runs: dict[str, Run], *variables: str) -> dict[str, Run]:
    """Select the runs whose tables have all these variables."""
    return {
        label: run for label, run in runs.items() if all(name in run.results for name in variables)
    }


def variable_label(runs: dict[str, Run], variable: str) -> str:
    """Label a variable by its attributes in the first run."""
    return style.variable_label(next(iter(runs.values())).results[variable])


def interval(results: xr.Dataset, name: str, null: str = "", **where: Any) -> Curve:
    """Return mean, low and high at a place, for the value or its excess over a `null`."""
    values = (excess_of(results, name, null) if null else results[name]).sel(where)
    return tuple(values.sel(statistic=statistic).values for statistic in ENDS)


def describe_bands(tables: Iterable[xr.Dataset], *names: str, what: str = "band") -> str:
    """Describe the bands and the noise floor in a sentence each; nothing if there are none."""
    ways, floors = set(), [0.0]
    for table in tables:
        for values in (table[name] for name in names if name in table):
            floors.append(values.attrs.get("noise_floor", 0.0))
            random = "early_steps" in table.attrs and values.attrs["resampling"] == "batches"
            if random or not np.isfinite(values.sel(statistic="low")).any():
                continue  # of random subspaces of tangents, which figures describe themselves
            if "seeds" in table.attrs and "seed" not in values.dims:
                ways.add("range of seeds")
            elif table.attrs["folds"] > 1 and values.attrs.get("resampling") != "batches":
                ways.add("windows resampled")
            else:
                ways.add("over batches")
    intervals = " or ".join(sorted(ways - {"range of seeds"}))
    parts = [f"{LEVEL * 100:.0f} % interval, {intervals}"] * bool(intervals)
    parts += ["range of seeds"] * ("range of seeds" in ways)
    sentences = [f"{what.capitalize()}: {'; or '.join(parts)}."] * bool(parts)
    if max(floors):
        sentences.append(f"Batch size and kernels move no value by more than {max(floors):.1g}.")
    return " ".join(sentences)


def tables(runs: dict[str, Run]) -> list[xr.Dataset]:
    return [run.results for run in runs.values()]


def display_names(runs: dict[str, Run]) -> dict[str, Run]:
    """Replace underscores in the names of runs by spaces, except in paths."""
    named = {
        label if os.sep in label else label.replace("_", " "): run for label, run in runs.items()
    }
    return named if len(named) == len(runs) else runs


def at_last(runs: dict[str, Run]) -> str:
    """Format the last checkpoint for a title, if there are several."""
    return ", last checkpoint" * any(run.results.sizes["step"] > 1 for run in runs.values())


def layers_label(runs: dict[str, Run], words: str) -> str:
    """Drop the embedding from an axis label if layer 0 may be something else."""
    return words if embedded(runs) else words.partition(" (")[0]


def embedded(runs: dict[str, Run]) -> bool:
    """Whether layer 0 is the embedding in all runs."""
    return all(run.results.attrs.get("layer_0", EMBEDDING) == EMBEDDING for run in runs.values())


def last_step(runs: dict[str, Run]) -> int:
    return max(int(run.results.step[-1]) for run in runs.values())


def positions(runs: dict[str, Run], *names: str, steps: slice = slice(-1, None)) -> list[str]:
    """Choose the sets of positions to draw: all, and others only if the difference is visible."""
    sets = shared_positions(runs)
    for name in names:
        shown = [
            run.results[name].isel(step=steps).sel(statistic="mean", positions=sets)
            for run in runs.values()
        ]
        rows = [
            values.transpose("positions", ...).values.reshape(len(sets), -1) for values in shown
        ]
        values = np.concatenate(rows, axis=1)
        values = values[:, np.isfinite(values).all(axis=0)]
        if values.size and abs(values[1:] - values[0]).max(initial=0) > VISIBLE * np.ptp(values):
            return sets
    return sets[:1]


def shared_positions(runs: dict[str, Run]) -> list[str]:
    """List the sets of positions that every run has."""
    first, *others = (run.results.positions.values.tolist() for run in runs.values())
    return [name for name in first if all(name in other for other in others)]


def note_same(runs: dict[str, Run], sides: list[str]) -> list[str]:
    """Note in the caption which other sets of positions were measured and look the same."""
    return [SAME] * (len(sides) == 1 < len(shared_positions(runs)))
