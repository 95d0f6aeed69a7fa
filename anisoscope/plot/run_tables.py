"""The tables and log of a run, or of runs that differ in seeds alone, as figures read them."""

import collections
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from anisoscope.analysis import run_summaries
from anisoscope.measurement.families.registry import quantities
from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.results.derived import EMBEDDING, averages, excess_name, excess_of
from anisoscope.results.join import LOGGED
from anisoscope.training.watch import BLOCKS, LAYERS

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
WORDS = {"adamw": "AdamW", "muon": "Muon", "sgd": "SGD", "twonn": "TwoNN"}  # in names of runs
ENDS = ("mean", "low", "high")
VISIBLE = 0.02  # of the height of a panel
SAME = "Without the first token the figure looks the same: no value moves by more than 2 % of their range."
Curve = tuple[np.ndarray, np.ndarray, np.ndarray]  # mean, low, high

AVERAGED = (  # of a line of the log
    *("bits_per_character", "context_free_bits", "gain_over_unigram", "mask_bits"),
    *(*LAYERS, *BLOCKS),
)
CONCAT = {"dim": "seed", "join": "inner"}
Values = TypeVar("Values", xr.DataArray, xr.Dataset)


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


def display_name(label: str) -> str:
    """Write a name of the code in words, except a path: adamw_decoder is AdamW decoder."""
    words = (WORDS.get(word, word) for word in label.replace("_", " ").split(" "))
    return label if os.sep in label else " ".join(words)


def display_names(runs: dict[str, Run]) -> dict[str, Run]:
    """Write the names of runs in words, unless two would be the same."""
    named = {display_name(label): run for label, run in runs.items()}
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


def format_seeds(pairs: list[tuple[int, int]]) -> str:
    """Format the seeds of initial parameters and of data, each named if they differ."""
    words = []
    for kind in zip(*pairs, strict=True):
        seeds = sorted(set(kind))
        words.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
    if all(weights == data for weights, data in pairs):
        return words[0]
    return f"weight {words[0]} and data {words[1]}"


def over_seeds(runs: dict[str, Run]) -> dict[str, Run]:
    """Average each condition over its seeds; bands are the range of the seeds.

    With two or three seeds a t interval is so wide (12.7 and 4.3 standard errors on a side) that it
    hides the curves; the range makes no claim. Contrasts have intervals that pool all conditions.
    """
    conditions = run_summaries.conditions({name: run.results for name, run in runs.items()})
    return {
        label: runs[names[0]] if len(names) == 1 else _average([runs[name] for name in names])
        for label, names in conditions.items()
    }


def _average(members: list[Run]) -> Run:
    """Join runs in a table that has the form of a single run's.

    Heads are not averaged, since heads of different seeds do not correspond: their means and
    intervals have a dimension `seed`. Projections are dropped, since each run has its own plane.
    """
    shared = set.intersection(*(set(run.results.data_vars) for run in members))
    values = [name for own in quantities() for name in (own, *averages(own))]
    names = [name for value in values for name in (value, excess_name(value)) if name in shared]
    parts = [run.results[names] for run in members]
    joined = xr.concat(parts, **CONCAT, data_vars="all", combine_attrs="override")
    per_head = [name for name in names if "head" in joined[name].dims]
    table = _range(joined.drop_vars(per_head).sel(statistic="mean", drop=True))
    table = table.assign(joined[per_head])
    learned = [name for name, _ in LOGGED.values() if name in shared]
    scores = xr.concat([run.results[learned] for run in members], **CONCAT)
    table = table.assign(scores.mean("seed", skipna=False, keep_attrs=True))
    pairs = [run_summaries.seeds(run.results) for run in members]
    seeds = f"{format_seeds(pairs)} together"
    tangents = average_tangents([run.tangents for run in members], seeds)
    return Run(table.assign_attrs(seeds=seeds), _average_logs(members), tangents)


def average_tangents(tables: list[xr.Dataset | None], seeds: str) -> xr.Dataset | None:
    """Average over seeds with their range; of random subspaces the extremes of all seeds."""
    if any(table is None for table in tables):
        return None
    joined = xr.concat(tables, **CONCAT, data_vars="all", combine_attrs="override")
    arrays = {}
    for name, values in joined.items():
        if "statistic" not in values.dims:
            arrays[name] = values.mean("seed", skipna=False, keep_attrs=True)
            continue
        mean, low, high = (values.sel(statistic=end, drop=True) for end in ENDS)
        random = values.attrs["resampling"] == "batches"
        arrays[name] = _range(mean, low, high) if random else _range(mean)
    return xr.Dataset(arrays, attrs=joined.attrs | {"seeds": seeds})


def _range(mean: Values, low: Values | None = None, high: Values | None = None) -> Values:
    """Return mean, deviation, minimum and maximum over seeds along a dimension `statistic`."""
    with xr.set_options(keep_attrs=True):
        parts = {
            "mean": mean.mean("seed", skipna=False),
            "std": mean.std("seed", ddof=1),
            "low": (mean if low is None else low).min("seed", skipna=False),
            "high": (mean if high is None else high).max("seed", skipna=False),
        }
    labels = xr.DataArray([*parts], dims="statistic", name="statistic")
    return xr.concat([*parts.values()], labels, combine_attrs="override")


def _average_logs(members: list[Run]) -> list[dict[str, Any]]:
    """Average each kind of line at the steps that all runs have."""
    lines = collections.defaultdict(dict)
    for number, run in enumerate(members):
        for line in run.log:  # of a step that was run twice the later line counts
            lines[line["step"], line["kind"]][number] = line
    averaged = []
    for (step, kind), by_member in sorted(lines.items()):
        own = by_member.values()
        if len(own) == len(members):
            names = [name for name in AVERAGED if all(name in line for line in own)]
            means = {name: np.mean([line[name] for line in own], axis=0).tolist() for name in names}
            averaged.append({"step": step, "kind": kind} | means)
    return averaged
