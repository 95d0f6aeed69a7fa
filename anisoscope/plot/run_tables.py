"""The tables and log of a run, or of runs that differ in seeds alone; and the caption of a figure."""

import collections
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr
from matplotlib.figure import Figure

from anisoscope.analysis import run_summaries
from anisoscope.config.run_config import OBJECTIVE_LABELS, WATCHED_BLOCKS, WATCHED_LAYERS
from anisoscope.engine.intervals import LEVEL
from anisoscope.models import masks
from anisoscope.plot import style
from anisoscope.results.frame import excess_of
from anisoscope.results.join import LOGGED
from anisoscope.results.summary import EMBEDDING

POSITION_LABELS = {
    "all": "all positions",
    "without_first_token": "without the first token",
    "without_special": "without special tokens",
    "without_massive": "without massive vectors",
}
NULLS_IN_FIGURES = {  # those with columns in figures; tables may have others
    "gaussian": "Gaussian cloud,\nsame spectrum",
    "shuffled": "shuffled input",
    "untrained": "same network,\nuntrained",
    "permuted": "windows of one cloud\nin another order",
}
SETTING_WORDS = {
    "adamw": "AdamW",
    "muon": "Muon",
    "sgd": "SGD",
    "twonn": "TwoNN",
}  # in names of runs and captions
INTERVAL = ("mean", "low", "high")
Curve = tuple[np.ndarray, np.ndarray, np.ndarray]  # mean, low, high
AVERAGED = (  # entries of a log line
    *("bits_per_character", "context_free_bits", "gain_over_unigram", "mask_bits"),
    *(*WATCHED_LAYERS, *WATCHED_BLOCKS),
)
IN_FACTS = (  # settings that `_facts` puts in words, as the description of the model does
    *("objective", "train.optimizer", "train.steps", "train.seed", "train.data_seed"),
    *("measure.points", "measure.batches", "pretrained.name"),
)
FEW_RUNS = 2  # with more runs, their differences do not fit on the figure itself
IN_CAPTION = "Differences between the runs are listed in the caption beside this figure."


@dataclass(frozen=True)
class Run:
    """The tables and the log of a run or a model."""

    results: xr.Dataset  # results.nc
    log: list[dict[str, Any]]  # train.jsonl, one dict a line
    tangents: xr.Dataset | None = None  # tangents.nc
    # hook_points/<name>/results.nc
    hook_points: dict[str, xr.Dataset] = field(default_factory=dict)
    kind: str = ""  # for a list of models: encoder or decoder
    modality: str = ""  # likewise: one of MODALITIES of config/pretrained_config.py


def runs_with(runs: dict[str, Run], *variables: str) -> dict[str, Run]:
    """Select the runs whose tables have all these variables."""
    return {label: run for label, run in runs.items() if {*variables} <= {*run.results}}


def label_variable(runs: dict[str, Run], variable: str) -> str:
    """Label a variable by its attributes in the first run."""
    return style.variable_label(next(iter(runs.values())).results[variable])


def interval(results: xr.Dataset, name: str, null: str = "", **where: Any) -> Curve:
    """Return mean, low and high at a place, for the value or its excess over a `null`."""
    values = (excess_of(results, name, null) if null else results[name]).sel(where)
    return tuple(values.sel(statistic=statistic).values for statistic in INTERVAL)


def describe_bands(tables: Iterable[xr.Dataset], *names: str, what: str = "band") -> str:
    """Describe the bands and the noise floor in a sentence each; nothing if there are none."""
    ways, floors = set(), [0.0]
    for table in tables:
        for values in (table[name] for name in names if name in table):
            floors.append(values.attrs.get("noise_floor", 0.0))
            batches = values.attrs.get("resampling") == "batches"
            if ("early_steps" in table.attrs and batches) or not np.isfinite(
                values.sel(statistic="low")
            ).any():
                continue  # random subspaces of tangents: their figures describe the bands
            if "seeds" in table.attrs and "seed" not in values.dims:
                ways.add("range of seeds")
            else:
                resampled = table.attrs["folds"] > 1 and not batches
                way = "windows resampled" if resampled else "over batches"
                ways.add(f"{LEVEL * 100:.0f} % interval, {way}")
    sentences = [f"{what.capitalize()}: {'; or '.join(sorted(ways))}."] * bool(ways)
    if max(floors):
        floor = round_up(max(floors))
        sentences.append(
            f"Batch size and kernels move no value by more than {floor:g} (one batch)."
        )
    return " ".join(sentences)


def round_up(value: float) -> float:
    """Round a positive number up to one digit."""
    unit = 10.0 ** math.floor(math.log10(value))
    return float(f"{math.ceil(value / unit - 1e-9) * unit:.1g}")


def display_name(label: str) -> str:
    """Write a name of the code in words, except a path: adamw_decoder is AdamW decoder."""
    words = (SETTING_WORDS.get(word, word) for word in label.replace("_", " ").split(" "))
    return label if os.sep in label else " ".join(words)


def display_names(runs: dict[str, Run]) -> dict[str, Run]:
    """Write the names of runs in words, unless two would be the same."""
    named = {display_name(label): run for label, run in runs.items()}
    return named if len(named) == len(runs) else runs


def at_last(runs: dict[str, Run]) -> str:
    """Format the last checkpoint for a title, if there are several."""
    return ", last checkpoint" * any(run.results.sizes["step"] > 1 for run in runs.values())


def layers_label(runs: dict[str, Run], words: str) -> str:
    """Drop the embedding from an axis label if layer 0 may be something else in a run."""
    first = {run.results.attrs.get("layer_0", EMBEDDING) for run in runs.values()}
    return words if first == {EMBEDDING} else words.partition(" (")[0]


def last_step(runs: dict[str, Run]) -> int:
    return max(int(run.results.step[-1]) for run in runs.values())


def shared_positions(runs: dict[str, Run]) -> list[str]:
    """List the sets of positions that every run has."""
    first, *others = (run.results.positions.values.tolist() for run in runs.values())
    return [name for name in first if all(name in other for other in others)]


def format_seeds(pairs: list[tuple[int, int]]) -> str:
    """Format the seeds of initial parameters and of data, each named if they differ."""
    words = []
    for kind in zip(*pairs, strict=True):
        seeds = sorted(set(kind))
        words.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
    if all(weights == data for weights, data in pairs):
        return words[0]
    return f"weight {words[0]} and data {words[1]}"


def average_seeds(runs: dict[str, Run]) -> dict[str, Run]:
    """Average each condition over its seeds; bands are the range of the seeds.

    With two or three seeds a t interval is so wide (12.7 and 4.3 standard errors on a side) that it
    hides the curves; the range makes no claim. Contrasts have intervals that pool all conditions.
    """
    conditions = run_summaries.conditions({name: run.results for name, run in runs.items()})
    averaged = {}
    for label, names in conditions.items():
        members = [runs[name] for name in names]
        if len(names) == 1:
            averaged[label] = members[0]
            continue
        seeds = [run_summaries.table_seeds(run.results) for run in members]
        words, tangents = f"{format_seeds(seeds)} together", [run.tangents for run in members]
        averaged[label] = Run(
            average_tables([run.results for run in members], words),
            _average_logs(members),
            None if any(table is None for table in tangents) else average_tables(tangents, words),
        )
    return averaged


def average_tables(tables: list[xr.Dataset], seeds: str) -> xr.Dataset:
    """Join tables of seeds in one that has the form of a single run's, with the range as interval.

    Heads are not averaged, since heads of different seeds do not correspond: their means and
    intervals have a dimension `seed`. Of random subspaces the ends are the extremes of all seeds.
    """
    scores = {name for name, _ in LOGGED.values()}
    shared = set.intersection(*({*table} for table in tables))
    names = [
        name
        for name, values in tables[0].items()
        if name in shared
        and ("statistic" in values.dims or name in scores or "fit" in tables[0].dims)
    ]
    parts = [table[names] for table in tables]
    joined = xr.concat(parts, "seed", join="inner", data_vars="all", combine_attrs="override")
    arrays = {}
    for name, values in joined.items():
        if "statistic" not in values.dims:
            arrays[name] = values.mean("seed", skipna=False, keep_attrs=True)
        elif "head" in values.dims:
            arrays[name] = values
        else:
            mean, low, high = (values.sel(statistic=end, drop=True) for end in INTERVAL)
            random = "fit" in joined.dims and values.attrs["resampling"] == "batches"
            arrays[name] = _range(mean, *((low, high) if random else (mean, mean)))
    return xr.Dataset(arrays, attrs=joined.attrs | {"seeds": seeds})


def _range(mean: xr.DataArray, low: xr.DataArray, high: xr.DataArray) -> xr.DataArray:
    """Return mean, deviation, minimum and maximum over seeds along a dimension `statistic`."""
    with xr.set_options(keep_attrs=True):
        parts = {
            "mean": mean.mean("seed", skipna=False),
            "std": mean.std("seed", ddof=1),
            "low": low.min("seed", skipna=False),
            "high": high.max("seed", skipna=False),
        }
    labels = xr.DataArray([*parts], dims="statistic", name="statistic")
    return xr.concat([*parts.values()], labels, combine_attrs="override")


def _average_logs(members: list[Run]) -> list[dict[str, Any]]:
    """Average each kind of line at the steps that all runs have."""
    lines = collections.defaultdict(dict)
    for number, run in enumerate(members):
        for line in run.log:  # if a step was run twice, the later line counts
            lines[line["step"], line["kind"]][number] = line
    averaged = []
    for (step, kind), by_member in sorted(lines.items()):
        own = by_member.values()
        if len(own) == len(members):
            names = [name for name in AVERAGED if all(name in line for line in own)]
            means = {name: np.mean([line[name] for line in own], axis=0).tolist() for name in names}
            averaged.append({"step": step, "kind": kind} | means)
    return averaged


def caption(figure: Figure, runs: dict[str, Run], shown: str, bands: str = "") -> None:
    """Write on the figure its bands and the shared facts; the full caption is its label."""
    shared, own = provenance(runs)
    differences = ".  ".join(own) if len(runs) <= FEW_RUNS else IN_CAPTION
    style.add_footer(figure, [line for line in (bands, shared, differences) if line])
    figure.set_label("\n".join([f"{shown} {bands}".strip(), "", shared, *own]))


def provenance(runs: dict[str, Run]) -> tuple[str, list[str]]:
    """Return the facts that all runs share, and a line for each run with its differences."""
    in_facts = {*IN_FACTS, *(f"model.{name}" for name in masks.described_fields())}
    settings = {
        label: {
            name: value
            for name, value in run_summaries.table_settings(run.results).items()
            if name not in in_facts and not name.startswith("data.")
        }
        for label, run in runs.items()
    }
    trained = {x: run.results for x, run in runs.items() if "corpus_sha256" in run.results.attrs}
    facts, corpora = {}, run_summaries.corpora(trained)
    for label, run in runs.items():
        # without the settings that differ, two curves would bear one caption
        facts[label] = _facts(run.results, corpora.get(label, "")) + [
            f"{name}={value}"
            for name, value in settings[label].items()
            if any(other.get(name) != value for other in settings.values())
        ]
    first = next(iter(facts.values()))
    shared = [fact for fact in first if all(fact in own for own in facts.values())]
    own = {label: [fact for fact in own if fact not in shared] for label, own in facts.items()}
    return "; ".join(shared), [f"{label}: {'; '.join(rest)}" for label, rest in own.items() if rest]


def _facts(results: xr.Dataset, corpus: str) -> list[str]:
    attrs = results.attrs
    if "provenance" in attrs:  # a model that was not trained here
        sample = f"{attrs['points']:,} points × {attrs['batches']} batches"
        return [*attrs["provenance"].split("; "), *[sample] * bool(attrs["batches"] > 1)]
    steps, last = f"{attrs['steps']:,}", f"{results.step.values[-1]:,}"
    optimizer = run_summaries.table_settings(results).get("train.optimizer", "adamw")
    return [
        corpus or str(attrs["corpus"]),
        *str(attrs["model"]).split(", "),
        f"predicts {OBJECTIVE_LABELS[attrs['objective']]}",
        SETTING_WORDS.get(optimizer, optimizer),
        f"{last} steps" if last == steps else f"step {last} of {steps}",
        attrs["seeds"] if "seeds" in attrs else format_seeds([run_summaries.table_seeds(results)]),
        attrs.get("sample", f"{attrs['points']:,} points × {attrs.get('batches', 1)} batches"),
        *["reads masked windows"] * ("masked as in training" in attrs.get("input", "")),
    ]
