"""Leading shares of any part of a layer's vectors, coordinates and mean, with intervals over windows.

Which vectors are massive the package decides (metrics/leading.py), here for each layer by itself. As
there, the shares without a fold of windows follow to first order from one eigenvector. NumPy in float64.

Letters: J folds of whole windows, R replicates (all windows, then without each fold), W windows; the
others are those of docs/reference/letters.md.
"""

from typing import NamedTuple

import numpy as np
import scipy.sparse.linalg

from anisoscope.engine.intervals import estimate
from anisoscope.metrics.leading import is_massive

FOLDS = 8


class Part(NamedTuple):
    """Some vectors of a layer, and sums over them."""

    cloud_PD: np.ndarray
    member_JP: np.ndarray  # 1 where the vector is of the fold
    sum_JD: np.ndarray
    square_JD: np.ndarray  # sums of squares
    moment_DD: np.ndarray  # sum of x x^T over all vectors


def massive(cloud_PD: np.ndarray) -> np.ndarray:
    """Mark the massive vectors of a cloud, by norms in float32."""
    return np.asarray(is_massive(np.linalg.norm(cloud_PD, axis=1).astype(np.float32)))


def make_part(x_WTD: np.ndarray, left_WT: np.ndarray) -> Part:
    """Sum the vectors that are left of the windows of a layer."""
    folds = min(FOLDS, len(x_WTD))
    fold_W = np.arange(len(x_WTD)) * folds // len(x_WTD)
    fold_P = np.broadcast_to(fold_W[:, None], left_WT.shape)[left_WT]
    cloud_PD = x_WTD[left_WT].astype(np.float64)
    member_JP = (fold_P == np.arange(folds)[:, None]).astype(np.float64)
    sums = member_JP @ cloud_PD, member_JP @ np.square(cloud_PD)
    return Part(cloud_PD, member_JP, *sums, cloud_PD.T @ cloud_PD)


def leading_shares(
    part: Part,
    without: np.ndarray | tuple = (),
    centered: bool = True,
    scale: np.ndarray | float = 1.0,
) -> np.ndarray:
    """Return the largest eigenvalue's share of the covariance, or of the second moment about 0, (R,).

    `without` are coordinates that are left out; `scale` multiplies coordinates. Of centered vectors it
    is `metrics.anisotropy`.
    """
    scale_D = np.ones(part.cloud_PD.shape[1]) * scale
    scale_D[np.asarray(without, int)] = 0
    count, mean_D = len(part.cloud_PD), part.sum_JD.sum(0) * scale_D / len(part.cloud_PD)
    moment_DD = part.moment_DD * np.outer(scale_D, scale_D) / count
    moment_DD -= centered * np.outer(mean_D, mean_D)
    start_D = np.random.default_rng(0).standard_normal(len(moment_DD))
    vector_D = scipy.sparse.linalg.eigsh(moment_DD, 1, v0=start_D, tol=1e-9)[1][:, 0]
    score_P = part.cloud_PD @ (scale_D * vector_D)
    ones_P = np.ones(count)
    sums = np.column_stack([part.member_JP @ y_P for y_P in (ones_P, score_P, np.square(score_P))])
    sums, sum_JD = (replicate(x) for x in (sums, part.sum_JD * scale_D))
    n_R, score_R, square_R = sums.T
    variance_R = square_R / n_R - centered * np.square(score_R / n_R)
    total_R = replicate(part.square_JD @ np.square(scale_D)) / n_R
    total_R -= centered * np.square(sum_JD / n_R[:, None]).sum(1)
    return variance_R / total_R


def replicate(sum_J: np.ndarray) -> np.ndarray:
    """Add folds up: all of them, then all but each; of a single fold, that alone."""
    whole = sum_J.sum(0, keepdims=True)
    return whole if len(sum_J) == 1 else np.concatenate([whole, whole - sum_J])


def with_interval(values_R: np.ndarray, least: float = 0.0, most: float = 1.0) -> tuple:
    """Return the value of all windows and its 95 % interval: the jackknife over folds of windows."""
    found = estimate(np.asarray(values_R, float)[None], "jackknife")
    return found.mean, max(found.low, least), min(found.high, most)
