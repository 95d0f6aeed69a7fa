"""Compute 95 % intervals from replicates, in which whole windows are resampled.

Axis 0 of every array is the batch (G, over disjoint windows). Axis 1 is the replicate (R): entry 0
is the value on all windows of the batch, the others are the values on its resamples:

- jackknife, for smooth statistics: replicate j leaves out fold j of the batch's J folds of windows.
- sections, for statistics of nearest neighbors: replicate j is the statistic on section j alone,
  whose relative error is carried over. Leaving folds out would overstate it (1.2 to 1.8 times).
- share_sections, for shares between 0 and 1: the error over sqrt(p (1 - p)) is carried over
  (benchmarks/coverage.py).
- none (counts, or a single fold): the batches are the sample.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtrit  # scipy.stats takes half a second to import

RESAMPLINGS = ("jackknife", "sections", "share_sections")
LEVEL = 0.95


class Estimate(NamedTuple):
    """Mean over batches and its interval, without batch and replicate axes; NaN where unknown."""

    mean: np.ndarray
    std: np.ndarray  # between batches, ddof = 1
    low: np.ndarray
    high: np.ndarray


@np.errstate(invalid="ignore", divide="ignore")  # an infinite dimension has no interval: NaN
def estimate(
    values: np.ndarray,
    kind: str,
    null: np.ndarray | None = None,
    average: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> Estimate:
    """Compute the mean and deviation over batches, and Student's 95 % interval of the mean.

    It has G (J - 1) degrees of freedom. `values` are (batch, replicate, …), their replicates made
    by `kind`. With a `null` model's values, the estimate is that of the difference, replicate by
    replicate. `average` reduces each replicate, for example over layers.
    """
    values = average(_comparable(values, kind) - (0.0 if null is None else _comparable(null, kind)))
    batches, replicates = values.shape[0], values.shape[1] - 1
    whole = values[:, 0]
    mean = whole.mean(axis=0)
    std = whole.std(axis=0, ddof=1) if batches > 1 else np.full_like(mean, np.nan)
    if replicates > 1:
        error = np.sqrt(variance(values[:, 1:], kind).mean(axis=0) / batches)
        freedom = batches * (replicates - 1)
    else:
        error, freedom = std / np.sqrt(batches), max(batches - 1, 1)
    half = stdtrit(freedom, 0.5 + LEVEL / 2) * error
    return Estimate(mean, std, mean - half, mean + half)


def clip(summary: Estimate, least: float, most: float) -> Estimate:
    """Cut an interval at the ends of a quantity's range, but not the mean, which may be rounded."""
    low, high = np.maximum(summary.low, least), np.minimum(summary.high, most)
    return summary._replace(low=np.minimum(low, summary.mean), high=np.maximum(high, summary.mean))


def degrees_of_freedom(size_J: np.ndarray, square_J: np.ndarray, kind: str) -> float:
    """Compute Satterthwaite's degrees of freedom of J unequal folds; J - 1 where all are equal.

    A fold contributes to the variance as the sum of the squared sizes of its clusters under the
    jackknife, which treats the points of a cluster as alike; otherwise as its size.
    """
    part_J = np.float64(square_J if kind == "jackknife" else size_J)
    return max(part_J.sum() ** 2 / np.square(part_J).sum() - 1, 1.0)


@np.errstate(invalid="ignore")
def weight_replicates(
    values: np.ndarray, kind: str, size_J: np.ndarray, square_J: np.ndarray
) -> np.ndarray:
    """Convert replicates (…, 1 + J) of J folds of unequal sizes to those of equal folds.

    w are the folds' shares of the points. With I_j what fold j adds, (1 / w_j - 1) (x - x_j) for the
    jackknife, x the value of all points, and x_j for sections, the variance of a mean is sum w_j^2
    (I_j - sum_k w_k I_k)^2 / (1 - sum w^2), unbiased where the variance of I_j goes as 1 / w_j
    (reconstruction after Busing, Meijer and van der Leeden 1999). `estimate` finds it in the
    returned replicates, which are widened from J - 1 degrees of freedom to those of
    `degrees_of_freedom`.
    """
    values = np.asarray(values, np.float64)
    whole, x, folds, share_J = values[..., :1], values[..., 1:], len(size_J), size_J / size_J.sum()
    jackknife = kind == "jackknife"
    part = (1 / share_J - 1) * (whole - x) if jackknife else x
    mean = (share_J * part).sum(axis=-1, keepdims=True)
    error = share_J * (part - mean) / np.sqrt(1 - np.square(share_J).sum())
    freedoms = degrees_of_freedom(size_J, square_J, kind), folds - 1
    unequal, equal = stdtrit(np.array(freedoms, float), 0.5 + LEVEL / 2)
    scale = np.sqrt(folds / (folds - 1) if jackknife else folds * (folds - 1)) * unequal / equal
    center, sign = (whole, -1) if jackknife else (mean, 1)
    return np.concatenate([whole, center + sign * scale * error], axis=-1)


def _comparable(values: np.ndarray, kind: str) -> np.ndarray:
    """Move the sections of a batch to the value on the whole batch, and scale their deviations.

    NaN where the whole has a scale and its sections, with too few points, have none.
    """
    values = np.asarray(values, np.float64)
    if kind == "jackknife" or values.shape[1] < 3:
        return values
    whole, mean = values[:, :1], values[:, 1:].mean(axis=1, keepdims=True)
    unit, unit_sections = (
        np.sqrt(x * (1 - x)) if kind == "share_sections" else x for x in (whole, mean)
    )
    without = np.where(unit == 0, 1.0, np.nan)
    scale = np.divide(unit, unit_sections, out=without, where=unit_sections != 0)
    return np.concatenate([whole, whole + scale * (values[:, 1:] - mean)], axis=1)


def variance(replicates: np.ndarray, kind: str) -> np.ndarray:
    """Compute the variance of one batch's value from its J replicates on axis 1."""
    spread = np.square(replicates - replicates.mean(axis=1, keepdims=True)).sum(axis=1)
    count = replicates.shape[1]
    return spread * ((count - 1) / count if kind == "jackknife" else 1 / (count * (count - 1)))


def holm(p: ArrayLike) -> np.ndarray:
    """Correct p-values for as many tests as there are numbers, after Holm; NaN entries are not counted."""
    p = np.asarray(p, float)
    corrected, known = np.full(p.shape, np.nan), ~np.isnan(p)
    corrected[known] = holm_of(p[known], known.sum())
    return corrected


def holm_of(p: np.ndarray, at_once: int) -> np.ndarray:
    """Correct p-values when at most `at_once` null hypotheses can hold together (Shaffer 1986).

    NaN entries count as tests.
    """
    order = np.argsort(np.where(np.isnan(p), 1.0, p), kind="stable")
    times = np.minimum(np.arange(len(p), 0, -1), at_once)
    corrected = np.empty(len(p))
    corrected[order] = np.maximum.accumulate(np.nan_to_num(p[order], nan=1.0) * times).clip(max=1.0)
    return np.where(np.isnan(p), np.nan, corrected)
