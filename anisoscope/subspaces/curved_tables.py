"""Write tables of curved manifolds: values of every seed, and means with intervals.

The means come with the closed forms of curved_program.py.
"""

import dataclasses
import json
import pathlib

import numpy as np
import xarray as xr

from anisoscope.config.untrained_config import FLATTEST, CurvedConfig
from anisoscope.metrics.quantity import Quantity, magnitude, share
from anisoscope.results import joined_files
from anisoscope.results.summary import summarize_seeds, tidy_seeds
from anisoscope.subspaces import curved_program
from anisoscope.subspaces.curved_program import CURVED_AXES, SLOPES, TARGETS, WEIGHTINGS, energies

CURVED_SOURCE = (
    "reconstruction after Bernas et al. 2026, Revisiting Anisotropy in Language Transformers"
)
PROBE_GRADIENT = "G = dL/dW of L = E[(W x - y)^2]/2 at W = 0"
LAW = {
    "tangent_norm": magnitude(
        "norm of the tangent gradient",
        f"|Q' G|, {PROBE_GRADIENT}, Q the tangent space",
        CURVED_SOURCE,
    ),
    "normal_norm": magnitude(
        "norm of the normal gradient",
        f"|G - Q Q' G|, {PROBE_GRADIENT}, Q the tangent space",
        CURVED_SOURCE,
    ),
    "tangent_energy": magnitude("energy of the tangent gradient", "tangent_norm^2", CURVED_SOURCE),
    "normal_energy": magnitude("energy of the normal gradient", "normal_norm^2", CURVED_SOURCE),
    "normal_share": share(
        "share of the gradient's energy that is normal",
        "normal_energy / (normal_energy + tangent_energy)",
        CURVED_SOURCE,
    ),
    "normal_variance_share": share(
        "share of the points' variance that is normal", "variance of x outside of Q over all of it"
    ),
}
LAW = {name: dataclasses.replace(entry, resampling="") for name, entry in LAW.items()}
BIASED = {f"biased_{name}": quantity for name, quantity in LAW.items()}  # drawn by frequency
SLOPE = {
    f"slope_{name}": Quantity(
        f"slope of the {LAW[name].long_name}",
        f"of ln {name} on ln t, least squares over the spreads t of at most 0.1 / curvature",
        CURVED_SOURCE,
        resampling="",
    )
    for name in SLOPES
}
CURVED_QUANTITIES = LAW | BIASED | SLOPE
CURVED_COLUMNS = (
    "manifold",
    "curvature",
    "target",
    "spread",
    "weighting",
    "bias",
)  # of results.csv


def measure_manifolds(config: CurvedConfig, root: pathlib.Path, name: str) -> None:
    """Write measurements/seeds.nc unless it exists, then results.nc and results.csv."""
    path = root / "measurements" / "seeds.nc"
    if not path.exists():
        joined_files.write_table(seed_table(config, energies(config)), path)
    results = summarize_manifolds(config, joined_files.read_table(path))
    joined_files.write_table(results, root / "results.nc")
    joined_files.write_csv(
        tidy_seeds(results, CURVED_QUANTITIES, CURVED_COLUMNS), root / "results.csv"
    )
    print(f"{name}: {config.seeds} seeds: {root / 'results.nc'}, {root / 'results.csv'}")
    for line in format_lines(results):
        print(f"{name}: {line}")


def seed_table(config: CurvedConfig, values: dict[str, np.ndarray]) -> xr.Dataset:
    """Split values by spread and by bias of frequency, and fit slopes over spreads."""
    table = xr.Dataset(
        {name: (CURVED_AXES, value.astype(np.float64)) for name, value in values.items()}
    )
    for side in ("tangent", "normal"):
        table[f"{side}_energy"] = table[f"{side}_norm"] ** 2
    table["normal_share"] = table.normal_energy / (table.normal_energy + table.tangent_energy)
    seeds = config.seed + np.arange(config.seeds)
    labels = {"seed": seeds, "manifold": config.manifolds, "curvature": config.curvatures}
    labels |= {"weighting": WEIGHTINGS, "target": TARGETS}
    table = table.assign_coords({name: list(values) for name, values in labels.items()})
    count = len(config.spreads)
    law = table.isel(setting=slice(count), weighting=0, drop=True).rename(setting="spread")
    law = law.assign_coords(spread=list(config.spreads))
    biased = table.isel(setting=slice(count, None), target=0, drop=True).rename(setting="bias")
    biased = biased.assign_coords(bias=list(config.biases))
    biased = biased.rename({name: f"biased_{name}" for name in LAW})
    slopes = {
        f"slope_{name}": _slopes(law[name].sel(target=TARGETS[0], drop=True)) for name in SLOPES
    }
    results = xr.merge([law, biased, xr.Dataset(slopes)])
    return results.assign_attrs(config=json.dumps(dataclasses.asdict(config)))


def _slopes(values: xr.DataArray) -> xr.DataArray:
    """Fit ln values to ln spread, for spreads small relative to the radius of curvature."""
    by_curvature = []
    for curvature in values.curvature.values:
        small = values.sel(curvature=curvature, spread=values.spread * curvature <= FLATTEST)
        x = np.log(small.spread)
        x = x - x.mean()
        by_curvature.append((np.log(small) * x).sum("spread") / (x**2).sum())
    return xr.concat(by_curvature, "curvature")


def summarize_manifolds(config: CurvedConfig, seeds: xr.Dataset) -> xr.Dataset:
    """Summarize every quantity over seeds, with its closed form (curved_program.py)."""
    predicted = {
        name: _predicted(config, name, seeds[name].isel(seed=0, drop=True))
        for name in CURVED_QUANTITIES
    }
    last = config.seed + config.seeds - 1
    description = (
        f"manifolds of dimension {config.dimension} in D={config.width}; linear probe, W = 0; {config.types:,} points; "
        f"by frequency {config.draws:,} draws, spread {config.biased_spread:g}; seeds {config.seed}–{last}"
    )
    return summarize_seeds(CURVED_QUANTITIES, seeds, predicted).assign_attrs(
        description=description
    )


def _predicted(config: CurvedConfig, name: str, example: xr.DataArray) -> xr.DataArray:
    """Evaluate the closed form at every cell of `example`."""
    slope = SLOPES.get(name.removeprefix("slope_"), np.nan)
    closed = xr.full_like(example, slope, dtype=np.float64)
    if name in SLOPE:
        return closed
    biased = name in BIASED
    predict = curved_program.predict_over_bias if biased else curved_program.predict_over_spread
    for index in np.ndindex(example.shape):
        cell = {axis: value.item() for axis, value in example[index].coords.items()}
        closed[index] = predict(config, **cell)[name.removeprefix("biased_")]
    return closed


def format_lines(results: xr.Dataset) -> list[str]:
    """Format the slopes: their range over manifolds and curvatures."""
    lines = []
    for name, expected in SLOPES.items():
        mean, low, high = results[f"slope_{name}"].sel(statistic=["mean", "low", "high"])
        line = f"{LAW[name].long_name}: t^{float(mean.min()):.3f} to {float(mean.max()):.3f}, {expected} in closed form"
        if np.isfinite(low).any():
            holds = int(((low <= expected) & (expected <= high)).sum())
            line += f"; the interval holds {expected} in {holds} of {mean.size}"
        lines.append(line)
    return lines
