"""How much of the scatter between runs comes from the initial parameters, how much from the order
of the data?

Letters: S data seeds.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.analysis.run_summaries import numbers

WEIGHTS, DATA = "train.seed", "train.data_seed"


class Components(NamedTuple):
    """Variances; shares of their sum, an estimate below 0 counted as 0; degrees of freedom."""

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
    """Two-way random effects y_ws = mean + a_w + b_s + e_ws from W weight seeds × S data seeds, one
    run each.

    Balanced analysis of variance, estimates by the method of moments: residual = MS_e, weights =
    (MS_w - MS_e) / S, data = (MS_s - MS_e) / W. They are unbiased, so one near 0 may be estimated
    below 0, and is reported so. With one run per pair of seeds the residual holds their interaction
    and whatever else differs between runs. NaN where a run has no number; no shares where no run
    differs from another.
    """
    W, S = values_WS.shape
    mean_weights, mean_data, residual = mean_squares(values_WS)
    weights, data = (mean_weights - residual) / S, (mean_data - residual) / W
    kept = np.maximum([weights, data, residual], 0)
    shares = kept / kept.sum() if kept.sum() > 0 else np.full(3, np.nan)
    return Components(
        values_WS.mean(), weights, data, residual, *shares, W - 1, S - 1, (W - 1) * (S - 1)
    )


def mean_squares(values_WS: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """MS_w, MS_s and MS_e of one table, or of each along the last two axes."""
    W, S = values_WS.shape[-2:]
    mean = values_WS.mean(axis=(-2, -1), keepdims=True)
    weights, data = (values_WS.mean(axis=axis, keepdims=True) - mean for axis in (-1, -2))
    residual = values_WS - mean - weights - data
    sums = (S * np.square(weights), W * np.square(data), np.square(residual))
    freedoms = (W - 1, S - 1, (W - 1) * (S - 1))
    return tuple(
        squares.sum(axis=(-2, -1)) / freedom
        for squares, freedom in zip(sums, freedoms, strict=True)
    )


def components(runs: xr.Dataset) -> pd.DataFrame:
    """Of every condition whose runs are a full grid of weight and data seeds, two of each at least.

    Rows for every shape, bits per character (test split), and anisotropy per layer at the run's
    last checkpoint. `runs` is what runs.nc holds.
    """
    rows = []
    for label in dict.fromkeys(runs["condition"].values):
        own = runs.isel(run=runs["condition"].values == label)
        weights, data = (np.unique(own[name], return_inverse=True) for name in (WEIGHTS, DATA))
        shape = len(weights[0]), len(data[0])
        pairs = set(zip(weights[1].tolist(), data[1].tolist(), strict=True))
        if min(shape) < 2 or not len(pairs) == own.sizes["run"] == shape[0] * shape[1]:
            continue
        for quantity, positions, layer, values in _measured(own):
            values_WS = np.full(shape, np.nan)
            values_WS[weights[1], data[1]] = values
            about = {
                "condition": label,
                "quantity": quantity,
                "positions": positions,
                "layer": layer,
            }
            rows.append(about | two_way(values_WS)._asdict())
    return pd.DataFrame(
        rows, columns=["condition", "quantity", "positions", "layer", *Components._fields]
    ).astype({"layer": "Int64"})


def _measured(runs: xr.Dataset) -> list[tuple[str, str, int | None, np.ndarray]]:
    values_of_each = [
        (quantity, positions, None, values) for quantity, positions, values in numbers(runs)
    ]
    if "anisotropy" in runs:
        means = runs["anisotropy"].sel(statistic="mean").dropna("step", how="all")
        values_of_each += [
            (
                "anisotropy",
                str(p),
                int(layer),
                means.sel(positions=p, layer=layer).isel(step=-1).values,
            )
            for p in means.positions.values
            for layer in means.layer.values
            if means.sizes["step"]
        ]
    return values_of_each
