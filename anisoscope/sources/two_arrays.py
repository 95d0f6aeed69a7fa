"""Compare two models by the vectors that a user has of both, at the same points.

Letters: M layers of the second model, K clusters, Q pairs of points.
"""

import os
from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.engine.sizes import Folds
from anisoscope.metrics.convert import ArrayLike, as_vectors, check_same_points
from anisoscope.metrics.quantity import MEASURED, PERMUTED, Values
from anisoscope.results.missing_names import as_table
from anisoscope.sources import array_checks, array_chunks, paired_clouds
from anisoscope.sources.array_checks import Vectors, VectorsLike
from anisoscope.sources.arrays import join_positions
from anisoscope.sources.axes import is_named
from anisoscope.sources.folds import Chunk, cut_chunks, describe, warn_of_few
from anisoscope.sources.paired_clouds import PairedClouds
from anisoscope.utils.progress import library_call


def compare(
    a: VectorsLike,
    b: VectorsLike,
    clusters: ArrayLike | Sequence[object] | None = None,
    *,
    axes: Sequence[str] | None = None,
    mask: ArrayLike | Sequence[Sequence[int]] | None = None,
    families: str | Sequence[str] = "comparison",
    folds: int = 8,
    seed: int = 0,
    labels: tuple[str, str] = ("a", "b"),
    quiet: bool = False,
) -> xr.Dataset:
    """Compare every layer of one model with every layer of another, on the same points.

    Args:
        a: vectors of the first model, as for `measure`: one layer, or a list or dict of layers.
        b: vectors of the second model at the same points in the same order; any width.
        clusters: (points,), as for `measure`: the sentence, image or window of each point.
        axes: as for `measure`.
        mask: as for `measure`, where layers are (texts, tokens, width).
        families: "comparison"; ("comparison", "alignment") adds `rsa` and `procrustes`, which take
            a decomposition for each pair of layers.
        folds: maximum number of folds of whole clusters to resample; 1: no intervals.
        seed: random seed of the null model and the folds.
        labels: names of the models in figures.
        quiet: do not show the message about compiling.

    Returns:
        A Dataset of `cka` (linear CKA), `cka_unbiased` and `neighbor_overlap` with the dimensions
        (statistic, layer, other_layer), and of texts with `positions`, as for `measure`. Each has
        an excess over the null model "permuted": each cluster of `a` beside another of `b` of
        similar size, both cut to the shorter; the excess is that of the points that are left.
        Without clusters all points are shifted by a random number, at least a quarter of them.

    Raises:
        ValueError: the points differ, or the input cannot be measured; the message is one line.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((2, 128, 8))
    >>> table = compare([*x], [*3 * x[:, :, ::-1]])  # rotated and scaled
    >>> table.cka.sel(statistic="mean").values.diagonal().round(3)
    array([1., 1.])
    """
    if isinstance(labels, str) or not isinstance(labels, Sequence) or len(labels) != 2:
        raise ValueError(f"labels is {labels!r}; pass two names")
    for x in (a, b):
        if isinstance(x, str | os.PathLike):
            raise ValueError(f"{x!r} names no vectors; compare_models reads models by name")
    settings = array_checks.make_settings(families, ("layers",), (), folds, seed)
    if {"comparison"} != {*settings.families} - {"alignment"}:
        raise ValueError("families: pass comparison, with or without alignment, of two models")
    check_same_points(layer for x in (a, b) for layer in _list(x))
    first, second = (_read(x, name, clusters, axes, mask) for name, x in (("a", a), ("b", b)))
    _check_same(first, second)
    array_checks.check_texts(first, settings.folds)
    with library_call(quiet):
        sets = [array_checks.position_sets(vectors) for vectors in (first, second)]
        tables, warned = {}, False
        for name, points in sets[0].items():
            chunks = cut_chunks(points, 1, settings.folds, settings.seed)
            warned = warned or warn_of_few(points, chunks)
            tables[name] = _compare_points(points, sets[1][name], chunks, settings)
    table = join_positions(tables) if first.texts else tables["all"]
    names = {"layer": first.names, "other_layer": second.names}
    table = table.assign_coords({dim: x for dim, x in names.items() if x is not None})
    sides = dict(zip(("first", "second"), labels, strict=True))
    sides["title"] = f"Anisoscope {anisoscope.__version__}: {labels[0]} (layer) and {labels[1]}"
    return as_table(table.assign_attrs({"seed": settings.seed} | sides))


def _list(x: Any) -> Sequence[Any]:
    if is_named(x):
        return [x[name] for name in x.keys()]  # noqa: SIM118
    return x if isinstance(x, list | tuple) else [x]


def _read(x: Any, name: str, clusters: Any, axes: Any, mask: Any) -> Vectors:
    try:
        return array_checks.read_vectors(x, clusters, None, axes, mask)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _check_same(first: Vectors, second: Vectors) -> None:
    """Raise ValueError where two models do not have the same points."""
    points = [vectors.texts or vectors.shape[:1] for vectors in (first, second)]
    if points[0] != points[1]:
        counts = [" texts x ".join(map(str, shape)) for shape in points]
        words = [
            f"{x} {'tokens' if len(n) > 1 else 'points'}"
            for x, n in zip(counts, points, strict=True)
        ]
        raise ValueError(f"a has {words[0]} and b {words[1]}; both need the same points")
    if not np.array_equal(first.cluster_P, second.cluster_P):
        why = "they have an index, and one of a and b has none"
        raise ValueError(f"clusters are in another order for a than for b ({why}); pass an array")


def _compare_points(
    first: Vectors, second: Vectors, chunks: list[Chunk], settings: MeasureConfig
) -> xr.Dataset:
    """Compare one set of points, and the null model of them."""
    points, width = first.shape[0], max(first.widths)
    floats = (
        array_chunks.WORK
        * points
        * (2 * len(first.layers) * width + len(second.layers) * max(second.widths))
    )
    layers = f"{len(first.layers)} and {len(second.layers)} layers of {points:,} points"
    array_chunks.check_available(4 * floats, layers, None)
    a_NPD, b_MPE = (_stack(vectors, name) for name, vectors in (("a", first), ("b", second)))
    aligned = "alignment" in settings.families
    cut, (row_Q, other_Q) = chunks[0].folds, pair_points(first, settings.seed)
    values = _measure(PairedClouds(a_NPD, b_MPE), cut, aligned)
    if len(row_Q):
        pairs = PairedClouds(a_NPD[:, other_Q], b_MPE[:, row_Q])
        null_cut = cut_pairs(cut, first.cluster_P, row_Q)
        null = _measure(pairs, null_cut, aligned)
        if len(row_Q) < points:  # fewer points are more alike by chance: excess of the paired ones
            paired = _measure(PairedClouds(a_NPD[:, row_Q], b_MPE[:, row_Q]), null_cut, aligned)
            null = {name: null[name] + values[name] - x for name, x in paired.items()}
    else:  # a single cluster
        null = {name: np.full_like(x, np.nan) for name, x in values.items()}
    table = paired_clouds.make_pair_table([[{MEASURED: values, PERMUTED: null}]], ("all",))
    return table.isel(positions=0, drop=True).assign_attrs(describe(first, chunks))


def _stack(vectors: Vectors, name: str) -> np.ndarray:
    """Read all layers; columns of zeros, which change no comparison, fill up narrow ones."""
    width = max(vectors.widths)
    layers = [as_vectors(x, f"layer {n} of {name}") for n, x in enumerate(vectors.layers)]
    return np.stack([np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in layers])


def _measure(pair: PairedClouds, folds: Folds, aligned: bool) -> Values:
    return paired_clouds.compare_clouds(pair, folds, aligned)[MEASURED]


def pair_points(vectors: Vectors, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Pair points of `b` (first) with points of `a` from another cluster of similar size.

    Clusters in the order of their sizes are exchanged two by two, the last three in a circle where
    their number is odd. The first points of both are kept, as many as the shorter has. A single
    cluster has no pair. Without clusters all points are paired, shifted by a quarter to three
    quarters of them.
    """
    rng, points, cluster_P = np.random.default_rng(seed), vectors.shape[0], vectors.cluster_P
    if cluster_P is None:
        least = max(1, points // 4)  # points near one another may be alike
        return np.arange(points), np.roll(
            np.arange(points), -rng.integers(least, points - least + 1)
        )
    time_P = np.arange(points) if vectors.time_P is None else vectors.time_P
    order_P = np.lexsort((time_P, cluster_P))
    size_K = np.bincount(cluster_P)
    member_K = np.split(order_P, np.cumsum(size_K)[:-1])
    if len(size_K) == 1:
        return order_P[:0], order_P[:0]
    order_K = rng.permutation(len(size_K))
    order_K = order_K[np.argsort(size_K[order_K], kind="stable")]
    other_K = np.arange(len(order_K)) ^ 1  # 1, 0, 3, 2, …
    if len(order_K) % 2:
        other_K[-3:] = np.arange(len(order_K))[[-2, -1, -3]]
    pairs = [
        (member_K[k][:shorter], member_K[other][:shorter])
        for k, other in zip(order_K, order_K[other_K], strict=True)
        for shorter in [min(size_K[k], size_K[other])]
    ]
    row_Q, other_Q = (np.concatenate(rows) for rows in zip(*pairs, strict=True))
    sorted_Q = np.argsort(row_Q)
    return row_Q[sorted_Q], other_Q[sorted_Q]


def cut_pairs(folds: Folds, cluster_P: np.ndarray | None, row_Q: np.ndarray) -> Folds:
    """Cut paired points into the folds of their clusters."""
    if cluster_P is None:
        return folds
    _, number_Q, size_K = np.unique(cluster_P[row_Q], return_inverse=True, return_counts=True)
    first_K = np.unique(number_Q, return_index=True)[1]
    labels = [label_P[row_Q] for label_P in folds[:2]]
    sizes = [
        tuple(np.bincount(label_Q[first_K], size_K**power, len(size_J)) for power in (1, 2))
        for label_Q, (size_J, _) in zip(labels, folds[2:], strict=True)
    ]
    return Folds(*labels, *sizes)
