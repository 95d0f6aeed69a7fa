"""Second moments of a layer by folds of windows, and the leading share of any part of its vectors.

A vector is massive where its norm exceeds MASSIVE times the (lower) median norm of its cloud. Vectors
fall into four groups, by whether they are the first of their window and whether they are massive. Sums
over a group and a fold are kept, so that vectors, coordinates, windows, the mean and a scale of
coordinates can be left out without the vectors. NumPy in float64.

Letters: G groups, J folds of whole windows, W windows; the others are those of docs/reference/letters.md.
"""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import scipy.sparse.linalg

from anisoscope.measurement.intervals import estimate
from anisoscope.metrics.leading import lower_median

MASSIVE = 10  # times the median norm; docs/reference/glossary.md
FOLDS = 8
GROUPS = ((False, False), (True, False), (False, True), (True, True))  # (first, massive)


class Moments(NamedTuple):
    """Sums over the vectors of each group and fold."""

    count_GJ: np.ndarray
    sum_GJD: np.ndarray
    square_GJDD: np.ndarray  # sums of x x^T

    def replicates(self, chosen: list[int]) -> list[tuple[float, np.ndarray, np.ndarray]]:
        """Return count, sum and squares of the chosen groups: of all folds, then without each."""
        chosen = [g for g in chosen if self.count_GJ[g].any()]
        count_J, sum_JD, square_JDD = (part[chosen].sum(0) for part in self)
        whole = count_J.sum(), sum_JD.sum(0), square_JDD.sum(0)
        if len(count_J) == 1:
            return [whole]  # nothing is left without the only fold
        parts = zip(count_J, sum_JD, square_JDD, strict=True)
        return [whole, *(tuple(a - b for a, b in zip(whole, part, strict=True)) for part in parts)]


def massive(cloud_PD: np.ndarray) -> np.ndarray:
    """Mark the vectors whose norm exceeds MASSIVE times the median norm."""
    norm_P = np.linalg.norm(cloud_PD, axis=1)
    return norm_P > MASSIVE * float(lower_median(jnp.asarray(norm_P, jnp.float32)))


def moments(x_WTD: np.ndarray) -> tuple[Moments, np.ndarray]:
    """Sum the windows of a layer by group and fold; return the mask (W, T) of massive vectors too."""
    windows, length, width = x_WTD.shape
    massive_WT = massive(x_WTD.reshape(-1, width)).reshape(windows, length)
    first_WT = np.zeros_like(massive_WT)
    first_WT[:, 0] = True
    folds = np.array_split(np.arange(windows), min(FOLDS, windows))
    shape = len(GROUPS), len(folds)
    found = Moments(np.zeros(shape), np.zeros((*shape, width)), np.zeros((*shape, width, width)))
    for g, (first, long) in enumerate(GROUPS):
        for j, own in enumerate(folds):
            member_WT = (first_WT[own] == first) & (massive_WT[own] == long)
            cloud_PD = x_WTD[own][member_WT].astype(np.float64)
            found.count_GJ[g, j] = len(cloud_PD)
            found.sum_GJD[g, j] = cloud_PD.sum(0)
            found.square_GJDD[g, j] = cloud_PD.T @ cloud_PD
    return found, massive_WT


def groups(first: bool = True, massive: bool = True) -> list[int]:
    """Return the groups that are left with the first tokens, or massive vectors, or without."""
    return [g for g, (is_first, long) in enumerate(GROUPS) if first >= is_first and massive >= long]


def leading_share(
    part: tuple[float, np.ndarray, np.ndarray], without: np.ndarray, centered: bool = True
) -> float:
    """Return the largest eigenvalue's share of the covariance, or of the second moment about 0.

    `without` are coordinates that are left out. Of centered vectors it is `metrics.anisotropy`.
    """
    count, sum_D, square_DD = part
    moment_DD = square_DD / count - centered * np.outer(sum_D, sum_D) / count**2
    moment_DD = np.delete(np.delete(moment_DD, without, 0), without, 1)
    start_D = np.random.default_rng(0).standard_normal(len(moment_DD))
    largest = scipy.sparse.linalg.eigsh(moment_DD, 1, v0=start_D, tol=1e-10)[0][0]
    return largest / moment_DD.trace()


def with_interval(values_R: np.ndarray, least: float = 0.0, most: float = 1.0) -> tuple:
    """Return the value of all windows and its 95 % interval: the jackknife over folds of windows."""
    found = estimate(np.asarray(values_R, float)[None], "jackknife")
    return found.mean, max(found.low, least), min(found.high, most)
