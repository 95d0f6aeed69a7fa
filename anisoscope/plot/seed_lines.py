"""Runs that differ in seeds only, drawn as one: a curve for each setting, not one for each run."""

import collections
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.analysis import run_summaries as tables
from anisoscope.measurement.families.registry import quantities
from anisoscope.plot.footer import seeds_in_words
from anisoscope.plot.run_tables import ENDS, Run
from anisoscope.results.averages import averages
from anisoscope.results.excess import excess_name
from anisoscope.results.scores import OF_LINE
from anisoscope.results.summary import STATISTICS
from anisoscope.training.watch import BLOCKS, LAYERS

# Of what a line says.
AVERAGED = (
    "bits_per_character",
    "context_free_bits",
    "context_gain",
    "mask_bits",
    *LAYERS,
    *BLOCKS,
)
CONCAT = {"dim": "seed", "join": "inner"}


def over_seeds(runs: dict[str, Run]) -> dict[str, Run]:
    """One Run for each condition: the mean over its seeds, and where bands are, the range of the
    seeds.

    Two or three seeds have a t interval so wide (12.7 and 4.3 standard errors to a side) that it
    hides the curves; the range claims nothing. Intervals that pool all conditions are those of the
    contrasts.
    """
    together = {}
    for label, names in tables.conditions(
        {name: run.results for name, run in runs.items()}
    ).items():
        members = [runs[name] for name in names]
        together[label] = members[0] if len(members) == 1 else _together(members)
    return together


def _together(members: list[Run]) -> Run:
    """Its table is as that of one run.

    Of heads nothing is averaged, since head 2 of one seed has nothing in common with head 2 of
    another: their means and intervals have a dimension `seed`. Projections are left out: each run
    has a plane of its own.
    """
    shared = set.intersection(*(set(run.results.data_vars) for run in members))
    values = [one for own in quantities() for one in (own, *averages(own))]
    names = [name for value in values for name in (value, excess_name(value)) if name in shared]
    parts = [run.results[names] for run in members]
    joined = xr.concat(parts, **CONCAT, data_vars="all", combine_attrs="override")
    values, of_heads = joined[names], [name for name in names if "head" in joined[name].dims]
    means = values.sel(statistic="mean", drop=True)
    table = _range(means.drop_vars(of_heads)).assign({name: joined[name] for name in of_heads})
    learned = [name for name, _ in OF_LINE.values() if name in shared]
    scores = xr.concat([run.results[learned] for run in members], **CONCAT)
    table = table.assign(scores.mean("seed", skipna=False, keep_attrs=True))
    pairs = [tables.seeds(run.results) for run in members]
    attrs = joined.attrs | {"seeds": f"{seeds_in_words(pairs)} together"}
    tangents = _tangents([run.tangents for run in members], attrs["seeds"])
    return Run(table.assign_attrs(attrs), _logs(members), tangents)


def _tangents(tables: list[xr.Dataset | None], seeds: str) -> xr.Dataset | None:
    """Means over seeds and their range; of random subspaces the least and the greatest of all
    seeds.
    """
    if any(table is None for table in tables):
        return None
    joined = xr.concat(tables, **CONCAT, data_vars="all", combine_attrs="override")
    labels, arrays = xr.DataArray(list(ENDS), dims="statistic", name="statistic"), {}
    for name, values in joined.items():
        if "statistic" not in values.dims:
            arrays[name] = values.mean("seed", skipna=False, keep_attrs=True)
            continue
        mean, low, high = (values.sel(statistic=end, drop=True) for end in ENDS)
        if values.attrs["resampling"] != "none":
            low = high = mean
        parts = (
            mean.mean("seed", skipna=False),
            low.min("seed", skipna=False),
            high.max("seed", skipna=False),
        )
        arrays[name] = xr.concat(parts, labels).assign_attrs(values.attrs)
    return xr.Dataset(arrays, attrs=joined.attrs | {"seeds": seeds})


def _range(means: xr.Dataset) -> xr.Dataset:
    """The statistics of values over seeds: mean, deviation and, for an interval, the least and the
    greatest.
    """
    statistics = {
        "mean": means.mean("seed", skipna=False),
        "std": means.std("seed", ddof=1),
        "low": means.min("seed", skipna=False),
        "high": means.max("seed", skipna=False),
    }
    labels = xr.DataArray(np.array(STATISTICS), dims="statistic", name="statistic")
    return xr.concat(
        [statistics[statistic] for statistic in STATISTICS], labels, combine_attrs="override"
    )


def _logs(members: list[Run]) -> list[dict[str, Any]]:
    """Means of what all runs say in each kind of line, at the steps that all of them have."""
    lines = collections.defaultdict(dict)
    for number, run in enumerate(members):
        for line in run.log:  # of a step that was run twice the later line counts
            lines[line["step"], line["kind"]][number] = line
    averaged = []
    for (step, kind), by_member in sorted(lines.items()):
        said = by_member.values()
        if len(said) == len(members):
            names = [name for name in AVERAGED if all(name in line for line in said)]
            means = {
                name: np.mean([line[name] for line in said], axis=0).tolist() for name in names
            }
            averaged.append({"step": step, "kind": kind} | means)
    return averaged
