"""Which points are resampled together: J folds of M points each, made of whole clusters.

The panel resamples folds of equal size. A user's clusters are not: the largest first, each goes to
the fold with the fewest points. Each fold gives as many points to the resamples, and its share of
all points is its weight in the interval (intervals.weight_replicates).
"""

import math
import numbers
from typing import NamedTuple

import numpy as np

from anisoscope.sources.array_checks import FEWEST

KEPT = 0.75  # of the points, which thinning must leave to chunks, and should to windows
# of them, which folds resample at least: one that is too small for that repeats its points
LEAST = 0.5
MOST = 0.75  # of them, in one cluster; beyond, the others say too little of how clusters differ


class Folds(NamedTuple):
    """What is resampled of each fold, and what it stands for."""

    index_JM: np.ndarray
    size_J: np.ndarray  # points that it holds; all alike without clusters
    square_J: np.ndarray  # sum of the squared sizes of its clusters

    @property
    def unequal(self) -> bool:
        return self.size_J.min() < self.size_J.max()


def cut(points: int, cluster_P: np.ndarray | None, folds: int, seed: int) -> Folds:
    """Folds of whole clusters; without labels, of runs of consecutive points.

    J is `folds`, or the number of clusters if that is less; ValueError where one holds nearly all.
    """
    if cluster_P is None or folds == 1:
        index_JM = _evened(np.array_split(np.arange(points), min(folds, points // 2)), 1, seed)
        return Folds(index_JM, *np.ones((2, len(index_JM)), int))
    names, number_P = np.unique(cluster_P, return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            f"clusters: all {points} points are of one cluster; leave clusters out, or pass folds=1"
        )
    size_L, count = np.bincount(number_P), min(folds, len(names))
    if size_L.max() > MOST * points:
        raise ValueError(
            f"clusters: the largest holds {size_L.max()} of {points} points, so that clusters "
            "cannot be resampled; thin it, or pass folds=1 for values without intervals"
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
    index_JM = _evened(members, math.ceil(LEAST * points / count), seed)
    return Folds(index_JM, *(np.bincount(fold_L, size_L**power, count) for power in (1, 2)))


def cut_pieces(points: int, cluster_P: np.ndarray | None, count: int, seed: int) -> np.ndarray:
    """Indices (count, M) of the points of each chunk: disjoint, of whole clusters, thinned to the
    size of the smallest.

    Without labels, runs of consecutive points. ValueError where the clusters do not make as many
    chunks.
    """
    most = points // FEWEST
    if not isinstance(count, numbers.Integral) or not 1 <= count <= most:
        raise ValueError(
            f"num_chunks is {count}; it must be a whole number from 1 to {most}, {FEWEST} points each"
        )
    if count == 1:
        return np.arange(points)[None]
    index_JM = cut(points, cluster_P, count, seed).index_JM
    if len(index_JM) < count or index_JM.size < KEPT * points:
        raise ValueError(
            f"num_chunks is {count}, and whole clusters do not make as many of about one size; "
            "pass fewer chunks"
        )
    return index_JM


def cut_windows(windows: int, context: int, folds: int) -> np.ndarray:
    """The same for windows of equal length: whole windows in the order given; as many folds as
    leave KEPT of them.
    """
    counts = range(min(folds, windows), 1, -1)
    count = next((count for count in counts if windows // count * count >= KEPT * windows), 1)
    window_W = np.arange(windows // count * count)
    return (window_W[:, None] * context + np.arange(context)).reshape(count, -1)


def _evened(folds: list[np.ndarray], least: int, seed: int) -> np.ndarray:
    """As many points of each, `least` at least, in their order: chosen at random, or repeated."""
    size = max(least, min(len(fold) for fold in folds))
    generator = np.random.default_rng(seed)
    return np.stack([_resized(fold, size, generator) for fold in folds])


def _resized(fold: np.ndarray, size: int, generator: np.random.Generator) -> np.ndarray:
    times, further = divmod(size, len(fold))
    return np.sort(
        np.concatenate([*[fold] * times, generator.choice(fold, further, replace=False)])
    )
