"""Tables of curved manifolds: the values of every seed; means over seeds with intervals, beside the
closed forms.
"""

import dataclasses
import json
import pathlib

import numpy as np
import xarray as xr

from anisoscope.config.curved_config import FLAT, CurvedConfig
from anisoscope.results import joined_files
from anisoscope.results.seed_summary import summarize_seeds, tidy
from anisoscope.subspaces.curved import curved_theory
from anisoscope.subspaces.curved.curved_program import AXES, energies
from anisoscope.subspaces.curved.curved_quantities import BIASED, LAW, QUANTITIES, SLOPE
from anisoscope.subspaces.curved.curved_theory import SLOPES, TARGETS, WEIGHTINGS

# Columns of results.csv before the numbers.
COLUMNS = ("manifold", "curvature", "target", "spread", "weighting", "bias")


def run(config: CurvedConfig, root: pathlib.Path, name: str) -> None:
    """Write measurements/seeds.nc unless it is there, then results.nc and results.csv."""
    path = root / "measurements" / "seeds.nc"
    if not path.exists():
        joined_files.write(of_seeds(config, energies(config)), path)
    whole = summary(config, joined_files.read_table(path))
    joined_files.write(whole, root / "results.nc")
    joined_files.write_csv(tidy(whole, QUANTITIES, COLUMNS), root / "results.csv")
    print(f"{name}: {config.seeds} seeds: {root / 'results.nc'}, {root / 'results.csv'}")
    for line in format_lines(whole):
        print(f"{name}: {line}")


def of_seeds(config: CurvedConfig, values: dict[str, np.ndarray]) -> xr.Dataset:
    """Every quantity by seed: over spreads, over biases of frequency, and slopes over spreads."""
    measured = xr.Dataset(
        {name: (AXES, value.astype(np.float64)) for name, value in values.items()}
    )
    seeds = config.seed + np.arange(config.seeds)
    measured = measured.assign_coords(
        seed=seeds, manifold=list(config.manifolds), curvature=list(config.curvatures),
        weighting=list(WEIGHTINGS), target=list(TARGETS),
    )  # fmt: skip
    count = len(config.spreads)
    over_spread = measured.isel(setting=slice(count), weighting=0, drop=True).rename(
        setting="spread"
    )
    over_bias = measured.isel(setting=slice(count, None), target=0, drop=True).rename(
        setting="bias"
    )
    law = _with_energies(over_spread.assign_coords(spread=list(config.spreads)))
    biased = _with_energies(over_bias.assign_coords(bias=list(config.biases)))
    slopes = {
        f"slope_{name}": _slopes(law[name].sel(target=TARGETS[0], drop=True)) for name in SLOPES
    }
    whole = xr.merge(
        [law, biased.rename({name: f"biased_{name}" for name in LAW}), xr.Dataset(slopes)]
    )
    return whole.assign_attrs(config=json.dumps(dataclasses.asdict(config)))


def _with_energies(table: xr.Dataset) -> xr.Dataset:
    energies = {f"{side}_energy": table[f"{side}_norm"] ** 2 for side in ("tangent", "normal")}
    share = energies["normal_energy"] / (energies["normal_energy"] + energies["tangent_energy"])
    return table.assign(energies | {"normal_share": share})


def _slopes(values: xr.DataArray) -> xr.DataArray:
    """Of ln values on ln spread, where the spread is small beside the radius of curvature."""
    by_curvature = []
    for curvature in values.curvature.values:
        small = values.sel(curvature=curvature).isel(
            spread=np.flatnonzero(values.spread * curvature <= FLAT)
        )
        x = np.log(small.spread)
        x = x - x.mean()
        by_curvature.append((np.log(small) * x).sum("spread") / (x**2).sum())
    return xr.concat(by_curvature, "curvature")


def summary(config: CurvedConfig, seeds: xr.Dataset) -> xr.Dataset:
    """Summarize every quantity over seeds, beside its closed form
    (subspaces/curved/curved_theory.py).
    """
    predicted = {
        name: _predicted(config, name, seeds[name].isel(seed=0, drop=True)) for name in QUANTITIES
    }
    return summarize_seeds(QUANTITIES, seeds, predicted).assign_attrs(description=words_of(config))


def _predicted(config: CurvedConfig, name: str, example: xr.DataArray) -> xr.DataArray:
    """Evaluate the closed form at every cell of `example`."""
    closed = xr.full_like(
        example, SLOPES.get(name.removeprefix("slope_"), np.nan), dtype=np.float64
    )
    if name in SLOPE:
        return closed
    for index in np.ndindex(example.shape):
        cell = example[index].coords
        place = config, cell["manifold"].item(), cell["curvature"].item()
        if name in BIASED:
            point = cell["weighting"].item(), cell["bias"].item()
            closed[index] = curved_theory.over_bias(*place, *point)[name.removeprefix("biased_")]
        else:
            point = cell["target"].item(), cell["spread"].item()
            closed[index] = curved_theory.over_spread(*place, *point)[name]
    return closed


def format_lines(whole: xr.Dataset) -> list[str]:
    """The slopes, in words: the range over manifolds and curvatures."""
    lines = []
    for name, expected in SLOPES.items():
        mean, low, high = (
            whole[f"slope_{name}"].sel(statistic=end) for end in ("mean", "low", "high")
        )
        held, cells = int(((low <= expected) & (expected <= high)).sum()), mean.size
        span = f"{float(mean.min()):.3f} to {float(mean.max()):.3f}"
        held = (
            f"; the interval holds {expected} in {held} of {cells}"
            if np.isfinite(low).any()
            else ""
        )
        lines.append(f"{LAW[name].long_name}: t^{span}, {expected} in closed form{held}")
    return lines


def words_of(config: CurvedConfig) -> str:
    last = config.seed + config.seeds - 1
    return (
        f"manifolds of dimension {config.dimension} in D={config.width}; linear probe, W = 0; {config.types:,} points; "
        f"by frequency {config.draws:,} draws, spread {config.biased_spread:g}; seeds {config.seed}–{last}"
    )
