"""Which points are resampled together: J folds of M points each, made of whole clusters.

The panel resamples folds of equal size. A user's clusters are not: they are dealt out in random order to folds of about
as many points, and each fold is thinned at random to the size of the smallest.
"""

import numbers
from collections.abc import Sequence

import numpy as np

from anisoscope.measurement.sources.validate import FEWEST, labels

KEPT = 0.75  # of the points, which thinning should leave; with fewer folds it leaves more
LEAST = 0.5  # of them, below which the resamples would speak of another cloud


def cut(points: int, clusters: Sequence | None, folds: int, seed: int) -> np.ndarray:
    """Indices (J, M) of the points of each fold; ValueError where the clusters make none.

    Without labels, runs of consecutive points. J is `folds`, or as many as the clusters allow.
    """
    if clusters is None or folds == 1:
        labels(points, clusters)
        return _thinned(np.array_split(np.arange(points), min(folds, points // 2)), seed)
    number_P, names = labels(points, clusters)
    if len(names) < 2:
        raise ValueError(f"clusters: all {points} points are of one cluster; leave clusters out, or pass folds=1")
    size_L = np.bincount(number_P)
    order_L = np.random.default_rng(seed).permutation(len(names))
    middle_L = np.empty(len(names))
    middle_L[order_L] = np.cumsum(size_L[order_L]) - size_L[order_L] / 2
    best = np.empty((0, 0), int)
    for count in range(min(folds, len(names)), 1, -1):
        fold_P = (middle_L * count // points).astype(int)[number_P]
        index_JM = _thinned([np.flatnonzero(fold_P == fold) for fold in range(count)], seed)
        best = max(best, index_JM, key=np.size)
        if index_JM.size >= KEPT * points:
            return index_JM
    if best.size < LEAST * points:
        largest = size_L.argmax()
        raise ValueError(
            f"clusters: {names[largest]!r} holds {size_L[largest]} of {points} points, so that clusters cannot be "
            "resampled; thin it, or pass folds=1 for values without intervals"
        )
    return best


def cut_pieces(points: int, clusters: Sequence | None, count: int, seed: int) -> np.ndarray:
    """Indices (count, M) of the points of each piece: disjoint, of whole clusters, thinned to the size of the smallest.

    Without labels, runs of consecutive points. ValueError where the clusters do not make as many pieces.
    """
    number_P, _ = labels(points, clusters)
    most = points // FEWEST
    if not isinstance(count, numbers.Integral) or not 1 <= count <= most:
        raise ValueError(f"pieces is {count}; it must be a whole number from 1 to {most}, {FEWEST} points each")
    if count == 1:
        return np.arange(points)[None]
    index_JM = cut(points, clusters, count, seed)
    if len(index_JM) < count or index_JM.size < KEPT * points:
        raise ValueError(
            f"pieces is {count}, and whole clusters do not make as many of about one size: the largest holds "
            f"{np.bincount(number_P).max()} of {points} points; pass fewer pieces"
        )
    return index_JM


def cut_windows(windows: int, context: int, folds: int) -> np.ndarray:
    """The same for windows of equal length: whole windows in the order given; as many folds as leave KEPT of them."""
    counts = range(min(folds, windows), 1, -1)
    count = next((count for count in counts if windows // count * count >= KEPT * windows), 1)
    window_W = np.arange(windows // count * count)
    return (window_W[:, None] * context + np.arange(context)).reshape(count, -1)


def _thinned(folds: list[np.ndarray], seed: int) -> np.ndarray:
    """As many points of each, chosen at random, in their order."""
    least = min(len(fold) for fold in folds)
    generator = np.random.default_rng(seed)
    return np.stack([np.sort(generator.choice(fold, least, replace=False)) for fold in folds])
