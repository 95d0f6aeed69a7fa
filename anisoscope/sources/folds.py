"""Cut points into chunks, and label the folds and sections of each chunk, made of whole clusters.

Clusters differ in size: the largest are placed first, each in the fold with the fewest points. A fold
weighs in the interval as its share of all points (intervals.weight_replicates).

Letters: L clusters, U windows or points, J folds.
"""

import numbers
import warnings
from typing import Any, NamedTuple

import numpy as np

from anisoscope.config.measure_config import SEARCHED
from anisoscope.engine.sizes import Folds
from anisoscope.metrics.resampling import TokenPositions
from anisoscope.sources.array_checks import FEWEST_POINTS, Vectors

FEWEST_CLUSTERS = 5  # intervals of clusters that weigh as fewer equal ones come with a warning

# smallest share of the points in chunks that are cut to the smallest one; below it chunks are unlike
KEPT = 0.75
MOST = (
    0.75  # largest share of points in one cluster: few points are left to show how clusters differ
)
SECTIONS = 4  # number of sections where clusters are unequal
FEWEST_SEARCHED = 64  # smallest sample of points in which neighbors are searched
ALIKE = (
    1.25  # folds count as equal if the largest has at most this many times the smallest's points
)


def cut_folds(
    points: int, cluster_P: np.ndarray | None, folds: int, seed: int, merge: bool = False
) -> Folds:
    """Cut at most `folds` folds of whole clusters; without labels, runs of consecutive points.

    Sections consist of whole folds where the clusters are equal, and otherwise of whole clusters.
    `merge` takes whole clusters in both cases, so that all chunks have sections of the same kind.
    """
    if cluster_P is None or folds == 1:
        return cut_runs(np.arange(points), min(folds, points // 2))
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
    if len(names) % count == 0 and len(set(size_L)) == 1:
        fold_L = np.empty(len(names), int)
        fold_L[order_L] = np.arange(len(names)) * count // len(names)
        section_L = fold_L * section_count(count) // count
        section_L = _balance(size_L, order_L, SECTIONS) if merge else section_L
    else:
        fold_L, section_L = (_balance(size_L, order_L, n) for n in (count, SECTIONS))
    sizes = (
        tuple(np.bincount(label_L, size_L**power) for power in (1, 2))
        for label_L in (fold_L, section_L)
    )
    return Folds(fold_L[number_P], section_L[number_P], *sizes)


def _balance(size_L: np.ndarray, order_L: np.ndarray, count: int) -> np.ndarray:
    """Put clusters, the largest first, each into the part with the fewest points."""
    count = min(count, len(size_L))
    part_L, size_J = np.empty(len(size_L), int), np.zeros(count, int)
    for cluster in order_L[np.argsort(-size_L[order_L], kind="stable")]:
        part_L[cluster] = size_J.argmin()
        size_J[part_L[cluster]] += size_L[cluster]
    return part_L


def cut_runs(number_P: np.ndarray, count: int) -> Folds:
    """Cut numbered units, points or windows, into folds and sections of consecutive ones."""
    units = int(number_P.max()) + 1
    parts = [count, section_count(count)]
    if -(-units // count) > ALIKE * (units // count):
        parts[1] = min(SECTIONS, count)
    fold_U, section_U = (np.arange(units) * part // units for part in parts)
    sizes = [(np.bincount(label_U),) * 2 for label_U in (fold_U, section_U)]
    if sizes[0][0].max() <= ALIKE * sizes[0][0].min():
        section_U = fold_U * parts[1] // count
        sizes = [(np.ones(part, int),) * 2 for part in parts]
    return Folds(fold_U[number_P], section_U[number_P], *sizes)


def cut_rows(points: int, cluster_P: np.ndarray | None, count: int, seed: int) -> list[np.ndarray]:
    """Return the indices of the points of each chunk."""
    most = points // FEWEST_POINTS
    if not isinstance(count, numbers.Integral) or not 1 <= count <= most:
        raise ValueError(
            f"num_chunks is {count}; it must be a whole number from 1 to {most}, {FEWEST_POINTS} points each"
        )
    if count == 1:
        return [np.arange(points)]
    chunk_P = cut_folds(points, cluster_P, count, seed).fold_P
    rows = [np.flatnonzero(chunk_P == chunk) for chunk in range(chunk_P.max() + 1)]
    if len(rows) < count or count * min(map(len, rows)) < KEPT * points:
        raise ValueError(
            f"num_chunks is {count}, but whole clusters do not make that many chunks of similar "
            "size; pass fewer chunks"
        )
    return rows


class Chunk(NamedTuple):
    """Points measured together; places and folds index these points."""

    rows_P: np.ndarray | slice  # indices among all points; a slice reads them without a copy
    size: int
    places: TokenPositions | None
    folds: Folds
    sample: "Chunk | None" = None  # where neighbors are searched; None: among all points


def cut_chunks(
    vectors: Vectors, count: int, folds: int, seed: int, searched: int | None = SEARCHED
) -> list[Chunk]:
    """Cut points into chunks of whole clusters, each with as many folds and sections.

    Neighbors are searched among about `searched` points of a chunk; None: among all.
    """
    cluster_P, time_P = vectors.cluster_P, vectors.time_P
    rows = cut_rows(vectors.shape[0], cluster_P, count, seed)
    labels = [None if cluster_P is None else cluster_P[rows_P] for rows_P in rows]
    merge = False
    for _ in range(2):  # the second time with fewer folds, where a chunk has few clusters
        cuts = [
            cut_folds(len(rows_P), label_P, folds, seed, merge)
            for rows_P, label_P in zip(rows, labels, strict=True)
        ]
        folds, merge = min(cut.count for cut in cuts), any(cut.unequal for cut in cuts)
    chunks = []
    for rows_P, label_P, cut in zip(rows, labels, cuts, strict=True):
        places = None
        if label_P is not None:
            window_P = np.unique(label_P, return_inverse=True)[1]
            place_P = np.full(rows_P.size, -1, np.int32) if time_P is None else time_P[rows_P]
            places = TokenPositions(window_P.astype(np.int32), place_P)
        chunk = Chunk(rows_P if count > 1 else slice(None), rows_P.size, places, cut)
        if searched is not None and chunk.size > searched:
            chunk = chunk._replace(sample=draw_sample(chunk, searched, seed))
        chunks.append(chunk)
    return chunks


def check_searched(searched: Any) -> None:
    """Raise ValueError where a sample of so many points has no neighbors to speak of."""
    whole = isinstance(searched, numbers.Integral) and searched >= FEWEST_SEARCHED
    if searched is not None and not whole:
        raise ValueError(
            f"search_among is {searched}; pass a whole number from {FEWEST_SEARCHED}, or None for all"
        )


def draw_sample(chunk: Chunk, most: int, seed: int) -> Chunk:
    """Draw about `most` points, in whole clusters, the same share of every fold."""
    generator, places = np.random.default_rng(seed), None
    if chunk.places is None:
        kept_P = np.sort(generator.choice(chunk.size, most, replace=False))
        folds = cut_runs(np.arange(most), chunk.folds.count)
    else:
        _, first_L, number_P = np.unique(
            chunk.places.window_P, return_index=True, return_inverse=True
        )
        size_L, kept_L = np.bincount(number_P), np.zeros(len(first_L), bool)
        labels_L = chunk.folds.fold_P[first_L], chunk.folds.section_P[first_L]
        if chunk.folds.count == 1:  # runs of points, which are not resampled
            labels_L = np.zeros_like(first_L), np.zeros_like(first_L)
        order_L = generator.permutation(len(first_L))
        for fold in range(chunk.folds.count):
            own_L = order_L[labels_L[0][order_L] == fold]
            share = most * size_L[own_L].sum() // chunk.size
            kept_L[own_L] = np.cumsum(size_L[own_L]) <= max(share, size_L[own_L[0]])
        kept_P = np.flatnonzero(kept_L[number_P])
        sizes = (
            tuple(np.bincount(label_L[kept_L], size_L[kept_L] ** power) for power in (1, 2))
            for label_L in labels_L
        )
        folds = Folds(*(label_L[number_P[kept_P]] for label_L in labels_L), *sizes)
        window_P = np.unique(number_P[kept_P], return_inverse=True)[1]
        places = TokenPositions(window_P.astype(np.int32), chunk.places.time_P[kept_P])
    rows_P = kept_P if isinstance(chunk.rows_P, slice) else chunk.rows_P[kept_P]
    return Chunk(rows_P, len(kept_P), places, folds)


def warn_of_few(vectors: Vectors, chunks: list[Chunk]) -> bool:
    """Warn where clusters carry as little weight as fewer than FEWEST_CLUSTERS equal ones."""
    if vectors.cluster_P is None or chunks[0].folds.count == 1:
        return False
    size_L = np.bincount(vectors.cluster_P)
    size_L = size_L[size_L > 0]
    square_L = np.square(np.float64(size_L))
    weigh_as = square_L.sum() ** 2 / np.square(square_L).sum()
    if round(weigh_as, 6) >= FEWEST_CLUSTERS:
        return False
    freedom = sum(chunk.folds.degrees_of_freedom("jackknife") for chunk in chunks)
    warnings.warn(
        f"clusters: {size_L.size} of {size_L.min()} to {size_L.max()} points weigh as {weigh_as:.1f} "
        f"equal ones, so intervals have {freedom:.1f} degrees of freedom; below {FEWEST_CLUSTERS} "
        "they cover the truth less often than 95 %: pass more clusters, or folds=1 for no intervals",
        stacklevel=3,
    )
    return True


def describe(vectors: Vectors, chunks: list[Chunk]) -> dict[str, Any]:
    """Describe points, width, folds and Student's degrees of freedom, for tables."""
    count, folds = len(chunks), chunks[0].folds.count
    by = "runs of consecutive points"
    if vectors.cluster_P is not None:
        by = f"whole clusters, of {vectors.cluster_P.max() + 1}"
    each = f" in each of {count} chunks" if count > 1 else ""
    sizes = sorted({*np.concatenate([np.bincount(chunk.folds.fold_P) for chunk in chunks])})
    size = " to ".join(str(number) for number in sorted({sizes[0], sizes[-1]}))
    attributes = {
        "points": sum(chunk.size for chunk in chunks),
        "width": vectors.width,
        "folds_in_words": f"{folds} of {size} points{each}, {by}",
        "batches": count,
        "folds": folds,
    }
    for kind in ("jackknife", "sections"):
        each = [chunk.folds.degrees_of_freedom(kind) for chunk in chunks]
        if folds > 1:
            attributes[f"degrees_of_freedom_{kind}"] = round(sum(each), 1)
    return attributes


def section_count(folds: int) -> int:
    """Choose the number of sections, each of equally many whole folds.

    4, 3, 2, or the smallest divisor: small sections have other scales than the whole cloud.
    """
    return next(count for count in (4, 3, *range(2, folds + 1), 1) if folds % count == 0)
