"""Cut points into chunks, and each chunk into J folds of M points, made of whole clusters.

The panel resamples folds of equal size, but clusters differ in size. The largest clusters go first,
each to the fold with the fewest points. Each fold contributes equally many points to the resamples,
and its share of all points is its weight in the interval (intervals.weight_replicates).
"""

import math
import numbers
import warnings
from typing import Any, NamedTuple

import numpy as np

from anisoscope.measurement.intervals import degrees_of_freedom
from anisoscope.measurement.resampling import Places, section_count
from anisoscope.sources.array_checks import FEWEST, Vectors

FEWEST_CLUSTERS = 5  # intervals of clusters that weigh as fewer equal ones come with a warning

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
    """Cut at most `folds` folds of whole clusters; without labels, runs of consecutive points."""
    if cluster_P is None or folds == 1:
        index_JM = equalize(np.array_split(np.arange(points), min(folds, points // 2)), 1, seed)
        return Folds(index_JM, *np.ones((2, len(index_JM)), int))
    names, number_P = np.unique(cluster_P, return_inverse=True)
    if len(names) < 2:
        raise ValueError(
            f"clusters: all {points} points have one label; leave clusters out, or pass folds=1"
        )
    size_L, count = np.bincount(number_P), min(folds, len(names))
    if size_L.max() > MOST * points:
        raise ValueError(
            f"clusters: the largest holds {size_L.max()} of {points} points; thin it, or pass "
            "folds=1 for values without intervals"
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
    index_JM = equalize(members, math.ceil(LEAST * points / count), seed)
    return Folds(index_JM, *(np.bincount(fold_L, size_L**power, count) for power in (1, 2)))


def cut_equal_chunks(
    points: int, cluster_P: np.ndarray | None, count: int, seed: int
) -> np.ndarray:
    """Return the indices (count, M) of the points of each chunk, thinned to the smallest."""
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


def cut_windows(windows: int, context: int, folds: int) -> Folds:
    """Cut windows of equal length into folds of whole windows, in their order.

    There are as many folds, up to `folds`, as leave at least KEPT of the windows.
    """
    counts = range(min(folds, windows), 1, -1)
    count = next((count for count in counts if windows // count * count >= KEPT * windows), 1)
    window_W = np.arange(windows // count * count)
    index_JM = (window_W[:, None] * context + np.arange(context)).reshape(count, -1)
    return Folds(index_JM, *np.ones((2, count), int))


def equalize(folds: list[np.ndarray], least: int, seed: int) -> np.ndarray:
    """Take equally many points of each fold, at least `least`: sampled, or repeated."""
    size = max(least, min(len(fold) for fold in folds))
    generator = np.random.default_rng(seed)
    parts = [
        [*[fold] * (size // len(fold)), generator.choice(fold, size % len(fold), replace=False)]
        for fold in folds
    ]
    return np.stack([np.sort(np.concatenate(part)) for part in parts])


class Chunk(NamedTuple):
    """Points measured together; places and folds index these points."""

    rows_P: np.ndarray | slice  # indices among all points; a slice reads them without a copy
    size: int
    places: Places | None
    folds: Folds


def cut_chunks(vectors: Vectors, count: int, folds: int, seed: int) -> list[Chunk]:
    """Cut points into chunks of whole clusters, each with its own folds.

    Folds are equal in number and size across chunks, so that one compiled program serves all.
    """
    cluster_P, time_P = vectors.cluster_P, vectors.time_P
    rows_CP = cut_equal_chunks(vectors.shape[0], cluster_P, count, seed)
    label_CP = [None if cluster_P is None else cluster_P[rows_P] for rows_P in rows_CP]
    for _ in range(2):  # the second time with fewer folds, where a chunk has few clusters
        cuts = [cut_folds(rows_CP.shape[1], label_P, folds, seed) for label_P in label_CP]
        folds = min(len(cut.index_JM) for cut in cuts)
    size, generator = min(cut.index_JM.shape[1] for cut in cuts), np.random.default_rng(seed)
    chunks = []
    for rows_P, label_P, cut in zip(rows_CP, label_CP, cuts, strict=True):
        pick_M = np.sort(generator.choice(cut.index_JM.shape[1], size, replace=False))
        places = None
        if label_P is not None:
            window_P = np.unique(label_P, return_inverse=True)[1]
            place_P = np.full(rows_P.size, -1, np.int32) if time_P is None else time_P[rows_P]
            places = Places(window_P.astype(np.int32), place_P)
        cut = cut._replace(index_JM=cut.index_JM[:, pick_M])
        chunks.append(Chunk(rows_P if count > 1 else slice(None), rows_P.size, places, cut))
    if cluster_P is not None and folds > 1:
        warn_of_few(np.bincount(cluster_P), chunks)
    return chunks


def warn_of_few(size_L: np.ndarray, chunks: list[Chunk]) -> None:
    """Warn where clusters carry as little weight as fewer than FEWEST_CLUSTERS equal ones."""
    size_L = size_L[size_L > 0]
    square_L = np.square(np.float64(size_L))
    weigh_as = square_L.sum() ** 2 / np.square(square_L).sum()
    if round(weigh_as, 6) >= FEWEST_CLUSTERS:
        return
    freedom = sum(degrees_of_freedom(*chunk.folds[1:], "jackknife") for chunk in chunks)
    warnings.warn(
        f"clusters: {size_L.size} of {size_L.min()} to {size_L.max()} points weigh as {weigh_as:.1f} "
        f"equal ones, so intervals have {freedom:.1f} degrees of freedom; below {FEWEST_CLUSTERS} "
        "they cover the truth less often than 95 %: pass more clusters, or folds=1 for no intervals",
        stacklevel=6,
    )


def describe(vectors: Vectors, chunks: list[Chunk]) -> dict[str, Any]:
    """Describe points, width, folds and Student's degrees of freedom, for tables."""
    (folds, size), count = chunks[0].folds.index_JM.shape, len(chunks)
    by = "runs of consecutive points"
    if vectors.cluster_P is not None:
        by = f"whole clusters, of {vectors.cluster_P.max() + 1}"
    each = f" in each of {count} chunks of {chunks[0].size} points" if count > 1 else ""
    attributes = {
        "points": sum(chunk.size for chunk in chunks),
        "width": vectors.width,
        "folds_in_words": f"{folds} of {size} points{each}, {by}",
        "batches": count,
        "folds": folds,
    }
    unequal = any(chunk.folds.unequal for chunk in chunks)
    for kind, equal in (("jackknife", folds), ("sections", section_count(folds))):
        each = [degrees_of_freedom(*x.folds[1:], kind) if unequal else equal - 1 for x in chunks]
        if folds > 1:
            attributes[f"degrees_of_freedom_{kind}"] = round(sum(each), 1)
    return attributes
