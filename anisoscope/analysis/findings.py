"""State the findings of the drawn runs in a few sentences."""

import math
from collections.abc import Iterator

import numpy as np
import xarray as xr

from anisoscope.results.derived import excess_of, nulls_in
from anisoscope.training.objective import OBJECTIVES

POSITIONS = {
    "all": "all positions",
    "without_first_token": "without the first token of each window",
}
WORDS = {
    "anisotropy": "anisotropy at its highest over depth",
    "twonn": "dimension at the last layer (TwoNN)",
}
FEW = 2  # number of runs up to which each has a sentence; beyond it only the extremes are named


def sentences(results: dict[str, xr.Dataset], bits: dict[str, dict[str, float]]) -> Iterator[str]:
    """Yield lines on bits per character, peak anisotropy and dimension at the last checkpoint."""
    for kind, objective in OBJECTIVES.items():  # their bits are not comparable
        members = [run for run in results if results[run].attrs.get("objective") == kind]
        for score, words in (
            ("test_bits", f"bits per character on the test split, predicting {objective.label}"),
            ("test_mask_bits", "bits per character under [MASK]"),
            (
                "test_gain_over_unigram",
                "gain over unigram (bits below the best answer without context)",
            ),
        ):
            if values := _finite({run: bits[run].get(score, math.nan) for run in members}):
                each = ", ".join(f"{run} {value:.2f}" for run, value in values.items())
                yield f"{words}: {each if len(values) <= FEW else _range(values)}"
    for name, words in WORDS.items():
        runs = {run: table for run, table in results.items() if name in table}
        if len(runs) > FEW:
            means = {run: _last(table, name, "all")[0] for run, table in runs.items()}
            if values := _finite({run: mean[_layer(name, mean)] for run, mean in means.items()}):
                yield f"{words}, last step, all positions: {_range(values)}"
            continue
        for run, table in runs.items():
            at = f", step {int(table.step[-1]):,}" if table.sizes["step"] > 1 else ""
            for positions, where in POSITIONS.items():
                if positions in table.positions:
                    yield f"{run}{at}: {words}, {where}: {_with_interval(table, name, positions)}"


def _last(table: xr.Dataset, name: str, positions: str) -> np.ndarray:
    """Return mean, low and high over layers at the last checkpoint."""
    last = table[name].isel(step=-1).sel(positions=positions)
    return last.sel(statistic=["mean", "low", "high"]).transpose("statistic", "layer").values


def _layer(name: str, mean: np.ndarray) -> int:
    """Return the layer to report; argmax finds the first layer without a value, if any."""
    return int(np.argmax(mean)) if name == "anisotropy" else -1


def _with_interval(table: xr.Dataset, name: str, positions: str) -> str:
    mean, low, high = _last(table, name, positions)
    layer = _layer(name, mean)
    if not math.isfinite(mean[layer]):
        return f"not defined (layer {range(mean.size)[layer]} without a value)"
    digits = ".2f" if abs(mean[layer]) < 2 else ".1f"
    words = f"{mean[layer]:{digits}}"
    if math.isfinite(low[layer] + high[layer]):
        words += f" (95 % interval {low[layer]:{digits}} to {high[layer]:{digits}})"
    if name == "anisotropy":
        overlapping = [str(n) for n in range(mean.size) if n != layer and high[n] >= low[layer]]
        words = f"layer {layer}, {words}"
        return words + f", overlapping layers {', '.join(overlapping)}" * bool(overlapping)
    if "gaussian" in nulls_in(table):
        excess = excess_of(table, name, "gaussian").isel(step=-1)
        null = mean[layer] - float(excess.sel(statistic="mean", positions=positions)[layer])
        if math.isfinite(null):
            words += f" against {null:.1f} of a Gaussian cloud with the same spectrum"
    return words


def _finite(values: dict[str, float]) -> dict[str, float]:
    return {run: value for run, value in values.items() if math.isfinite(value)}


def _range(values: dict[str, float]) -> str:
    low, high = min(values, key=values.get), max(values, key=values.get)
    return f"from {values[low]:.2f} ({low}) to {values[high]:.2f} ({high}) over {len(values)} runs"
