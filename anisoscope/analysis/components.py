"""Variance components: scatter between runs due to initial parameters and to data order.

Letters: W weight seeds, S data seeds.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.analysis.run_summaries import SEEDS, numbers


class Components(NamedTuple):
    """Variances, their shares (negative estimates count as 0) and degrees of freedom."""

    mean: float
    weights: float
    data: float
    residual: float
    weights_share: float
    data_share: float
    residual_share: float
    weights_freedom: int
    data_freedom: int
    residual_freedom: int


def two_way(values_WS: np.ndarray) -> Components:
    """Estimate y_ws = mean + a_w + b_s + e_ws with random effects of W weight and S data seeds.

    Balanced analysis of variance by the method of moments: residual = MS_e, weights = (MS_w -
    MS_e) / S, data = (MS_s - MS_e) / W. The estimates are unbiased, so a small variance may have a
    negative estimate, which is reported as such. With a single run for each pair of seeds, the
    residual holds their interaction and all other differences between runs. NaN if a run has no
    number; shares are NaN if all runs are equal.
    """
    weight_seeds, data_seeds = values_WS.shape
    mean_weights, mean_data, residual = mean_squares(values_WS)
    parts = np.array(
        [(mean_weights - residual) / data_seeds, (mean_data - residual) / weight_seeds, residual]
    )
    kept = np.maximum(parts, 0)
    shares = kept / kept.sum() if kept.sum() > 0 else np.full(3, np.nan)
    return Components(
        values_WS.mean(),
        *parts,
        *shares,
        weight_seeds - 1,
        data_seeds - 1,
        (weight_seeds - 1) * (data_seeds - 1),
    )


def mean_squares(values_WS: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return MS_w, MS_s and MS_e of a table, or of each table along the last two axes."""
    weight_seeds, data_seeds = values_WS.shape[-2:]
    mean = values_WS.mean(axis=(-2, -1), keepdims=True)
    weights, data = (values_WS.mean(axis=axis, keepdims=True) - mean for axis in (-1, -2))
    residual = values_WS - mean - weights - data
    sums = (data_seeds * np.square(weights), weight_seeds * np.square(data), np.square(residual))
    freedoms = (weight_seeds - 1, data_seeds - 1, (weight_seeds - 1) * (data_seeds - 1))
    return tuple(
        squares.sum(axis=(-2, -1)) / freedom
        for squares, freedom in zip(sums, freedoms, strict=True)
    )


def components(runs: xr.Dataset) -> pd.DataFrame:
    """Estimate the components of each condition with a full grid of at least 2 × 2 seeds.

    A row for every shape, bits per character (test split), and anisotropy per layer at the run's
    last checkpoint.
    """
    rows = []
    for label in dict.fromkeys(runs["condition"].values):
        own = runs.isel(run=runs["condition"].values == label)
        (weights, row), (data, column) = (
            np.unique(own[name], return_inverse=True) for name in SEEDS[:2]
        )
        shape = len(weights), len(data)
        pairs = set(zip(row.tolist(), column.tolist(), strict=True))
        if min(shape) < 2 or not len(pairs) == own.sizes["run"] == shape[0] * shape[1]:
            continue
        for quantity, positions, layer, values in _measured(own):
            values_WS = np.full(shape, np.nan)
            values_WS[row, column] = values
            about = {"condition": label, "quantity": quantity, "positions": positions}
            rows.append(about | {"layer": layer} | two_way(values_WS)._asdict())
    columns = ["condition", "quantity", "positions", "layer", *Components._fields]
    return pd.DataFrame(rows, columns=columns).astype({"layer": "Int64"})


def _measured(runs: xr.Dataset) -> list[tuple[str, str, int | None, np.ndarray]]:
    measured = [
        (quantity, positions, None, values) for quantity, positions, values in numbers(runs)
    ]
    if "anisotropy" in runs:
        means = runs["anisotropy"].sel(statistic="mean").dropna("step", how="all")
        for positions in means.positions.values if means.sizes["step"] else ():
            for layer in means.layer.values:
                values = means.sel(positions=positions, layer=layer).isel(step=-1).values
                measured.append(("anisotropy", str(positions), int(layer), values))
    return measured
