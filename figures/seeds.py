"""Runs that differ in seeds only, drawn as one: a curve for each setting, not one for each run."""

import collections
from typing import Any

import xarray as xr

from figures.run import Run, seeds_in_words
from panel.quantities import QUANTITIES
from studies import runs as tables


def over_seeds(runs: dict[str, Run]) -> dict[str, Run]:
    """One Run for each cell of `studies.runs`: the mean over its seeds, and where bands are, the range of the seeds.

    Two or three seeds have a t interval so wide (12.7 and 4.3 standard errors to a side) that it hides the curves; the
    range claims nothing. Intervals that pool all cells are those of the contrasts.
    """
    together = {}
    for label, names in tables.conditions({name: run.results for name, run in runs.items()}).items():
        members = [runs[name] for name in names]
        together[label] = members[0] if len(members) == 1 else Run(_tables(members), _logs(members))
    return together


def _tables(members: list[Run]) -> xr.Dataset:
    """As results.nc holds them, with the means of single runs over a dimension `seed` in place of values per batch.

    Of heads nothing is averaged, since head 2 of one seed has nothing in common with head 2 of another: means and their
    intervals have the dimension `seed` too. Projections are left out: each run has a plane of its own.
    """
    kept = set.intersection(*(set(run.results.data_vars) for run in members)) - set(QUANTITIES)
    parts = [run.results[sorted(kept)] for run in members]
    joined = xr.concat(parts, "seed", join="inner", data_vars="all", combine_attrs="override")
    found = {}
    for name in (name for name in QUANTITIES if f"{name}_mean" in joined):
        found[name] = joined[f"{name}_mean"].assign_attrs(members[0].results[name].attrs)
        if "head" in found[name].dims:
            found |= {f"{name}_{end}": joined[f"{name}_{end}"] for end in ("mean", "std", "low", "high")}
            continue
        found |= _range(joined, f"{name}_mean", name)
        found[f"{name}_std"] = found[name].std("seed", ddof=1)
        found[f"{name}_mean"] = found[name].mean("seed", skipna=False)
        if f"{name}_excess" in joined:
            found |= _range(joined, f"{name}_excess", f"{name}_excess")
            for kind in ("null", "excess"):
                found[f"{name}_{kind}"] = joined[f"{name}_{kind}"].mean("seed", skipna=False)
    if "plateau_first" in joined:  # the scales that every seed has on its plateau
        first, last = (
            joined["plateau_first"].max("seed", skipna=False),
            joined["plateau_last"].min("seed", skipna=False),
        )
        found |= {"plateau_first": first.where(first <= last), "plateau_last": last.where(first <= last)}
    pairs = [tables.seeds(run.results) for run in members]
    return xr.Dataset(found, attrs=joined.attrs | {"seeds": f"{seeds_in_words(pairs)} together"})


def _range(joined: xr.Dataset, value: str, name: str) -> dict[str, xr.DataArray]:
    return {
        f"{name}_low": joined[value].min("seed", skipna=False),
        f"{name}_high": joined[value].max("seed", skipna=False),
    }


def _logs(members: list[Run]) -> list[dict[str, Any]]:
    """Mean bits per character of each kind of line at the steps that all runs have."""
    bits = collections.defaultdict(dict)
    for number, run in enumerate(members):
        for line in run.log:  # of a step that was run twice the later line counts
            bits[line["step"], line["kind"]][number] = line["bits_per_character"]
    return [
        {"step": step, "kind": kind, "bits_per_character": sum(found.values()) / len(members)}
        for (step, kind), found in sorted(bits.items())
        if len(found) == len(members)
    ]
