"""Other libraries' conventions in float64 NumPy, where they differ from ours: what shows that nothing else differs."""

import numpy as np
from scipy.optimize import brentq
from scipy.spatial.distance import cdist


def distances(cloud_PD: np.ndarray, count: int) -> np.ndarray:
    """Of every distinct point to its `count` nearest, ascending."""
    cloud_PD = np.unique(cloud_PD, axis=0).astype(np.float64)
    distance_PP = cdist(cloud_PD, cloud_PD)
    np.fill_diagonal(distance_PP, np.inf)
    return np.sort(np.partition(distance_PP, count - 1, axis=1)[:, :count], axis=1)


def twonn_from_zero(cloud_PD: np.ndarray, fraction: float) -> float:
    """The line of TwoNN through ratios numbered from 0: F = (i - 1)/n, i = 1..n."""
    r1_P, r2_P = distances(cloud_PD, 2).T
    x_P = np.sort(np.log(r2_P / r1_P))[: int(fraction * len(r1_P))]
    y_P = -np.log1p(-np.arange(len(x_P)) / len(r1_P))
    return float((x_P * y_P).sum() / np.square(x_P).sum())


def gride_of_the_peers(cloud_PD: np.ndarray, first: int) -> float:
    """The root of GRIDE's score with (n - 1)/d in place of n/d, ratios cut at q50 + 20 (q95 - q50)."""
    distance_PC = distances(cloud_PD, 2 * first)
    ratio_P = distance_PC[:, -1] / distance_PC[:, first - 1]
    middle, high = np.percentile(ratio_P, [50, 95])
    x_P = np.log(ratio_P[ratio_P < middle + 20 * (high - middle)])

    def score(d: float) -> float:
        return (len(x_P) - 1) / d + ((first - 1) * x_P / -np.expm1(-d * x_P) - (2 * first - 1) * x_P).sum()

    return float(brentq(score, 1e-3, 1e4, xtol=1e-12))
