"""Average runs that differ only in seeds, so that each setting has a single curve."""

import collections
from typing import Any, TypeVar

import numpy as np
import xarray as xr

from anisoscope.analysis import run_summaries
from anisoscope.measurement.families.registry import quantities
from anisoscope.plot.footer import format_seeds
from anisoscope.plot.run_tables import ENDS, Run
from anisoscope.results.derived import averages, excess_name
from anisoscope.results.join import LOGGED
from anisoscope.training.watch import BLOCKS, LAYERS

AVERAGED = (  # of a line of the log
    *("bits_per_character", "context_free_bits", "gain_over_unigram", "mask_bits"),
    *(*LAYERS, *BLOCKS),
)
CONCAT = {"dim": "seed", "join": "inner"}
Values = TypeVar("Values", xr.DataArray, xr.Dataset)


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
