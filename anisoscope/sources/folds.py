"""Cut points into J folds of M points each, made of whole clusters.

The panel resamples folds of equal size, but clusters differ in size. The largest clusters go first,
each to the fold with the fewest points. Each fold contributes equally many points to the resamples,
and its share of all points is its weight in the interval (intervals.weight_replicates).
"""

import math
import numbers
from typing import NamedTuple

import numpy as np

from anisoscope.sources.array_checks import FEWEST

KEPT = 0.75  # share of the points that thinning must leave in chunks, and should in windows
# share of the points that folds resample at least: a fold that is too small repeats its points
LEAST = 0.5
MOST = 0.75  # share in one cluster; above it the others hardly show how clusters differ


class Folds(NamedTuple):
    """The points that are resampled in each fold, and the sizes that weight the fold."""

    index_JM: np.ndarray
    size_J: np.ndarray  # points of each fold; all equal without clusters
    square_J: np.ndarray  # sum of the squared sizes of its clusters

    @property
    def unequal(self) -> bool:
        return self.size_J.min() < self.size_J.max()


def cut_folds(points: int, cluster_P: np.ndarray | None, folds: int, seed: int) -> Folds:
    """Cut folds of whole clusters; without labels, of runs of consecutive points.

    J is `folds`, or the number of clusters if that is less.

    Raises:
        ValueError: one cluster holds nearly all points.
    """
    if cluster_P is None or folds == 1:
        index_JM = _equalize(np.array_split(np.arange(points), min(folds, points // 2)), 1, seed)
        return Folds(index_JM, *np.ones((2, len(index_JM)), int))
    names, number_P = np.unique(cluster_P, return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            f"clusters: all {points} points have one label; leave clusters out, or pass folds=1"
        )
    size_L, count = np.bincount(number_P), min(folds, len(names))
    if size_L.max() > MOST * points:
        raise ValueError(
            f"clusters: the largest holds {size_L.max()} of {points} points, so clusters cannot be "
            "resampled; thin it, or pass folds=1 for values without intervals"
        )
    order_L = np.random.default_rng(seed).permutation(len(names))
    fold_L = np.empty(len(names), int)
    if len(names) % count == 0 and len(set(size_L)) == 1:
        fold_L[order_L] = np.arange(len(names)) * count // len(names)
    else:
        size_J = np.zeros(count, int)
        for cluster in order_L[np.argsort(-size_L[order_L], kind="stable")]:
            fold_L[cluster] = size_J.argmin()
            size_J[fold_L[cluster]] += size_L[cluster]
    members = [np.flatnonzero(fold_L[number_P] == fold) for fold in range(count)]
    index_JM = _equalize(members, math.ceil(LEAST * points / count), seed)
    return Folds(index_JM, *(np.bincount(fold_L, size_L**power, count) for power in (1, 2)))


def cut_equal_chunks(
    points: int, cluster_P: np.ndarray | None, count: int, seed: int
) -> np.ndarray:
    """Return the indices (count, M) of the points of each chunk.

    Chunks are disjoint, consist of whole clusters, and are thinned to the size of the smallest.
    Without labels they are runs of consecutive points.

    Raises:
        ValueError: the clusters do not make that many chunks of similar size.
    """
    most = points // FEWEST
    if not isinstance(count, numbers.Integral) or not 1 <= count <= most:
        raise ValueError(
            f"num_chunks is {count}; it must be a whole number from 1 to {most}, {FEWEST} points each"
        )
    if count == 1:
        return np.arange(points)[None]
    index_JM = cut_folds(points, cluster_P, count, seed).index_JM
    if len(index_JM) < count or index_JM.size < KEPT * points:
        raise ValueError(
            f"num_chunks is {count}, but whole clusters do not make that many chunks of similar "
            "size; pass fewer chunks"
        )
    return index_JM


def cut_windows(windows: int, context: int, folds: int) -> np.ndarray:
    """Cut windows of equal length into folds of whole windows, in their order.

    There are as many folds, up to `folds`, as leave at least KEPT of the windows.
    """
    counts = range(min(folds, windows), 1, -1)
    count = next((count for count in counts if windows // count * count >= KEPT * windows), 1)
    window_W = np.arange(windows // count * count)
    return (window_W[:, None] * context + np.arange(context)).reshape(count, -1)


def _equalize(folds: list[np.ndarray], least: int, seed: int) -> np.ndarray:
    """Take equally many points of each fold, at least `least`: sampled, or repeated."""
    size = max(least, min(len(fold) for fold in folds))
    generator = np.random.default_rng(seed)
    parts = [
        [*[fold] * (size // len(fold)), generator.choice(fold, size % len(fold), replace=False)]
        for fold in folds
    ]
    return np.stack([np.sort(np.concatenate(part)) for part in parts])
