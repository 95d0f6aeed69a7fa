"""Compare the layers of two models from their vectors of the same points.

Letters: M layers of the second model, K permutations, J folds.
"""

import math
import os
from collections.abc import Sequence

import jax
import numpy as np
import pandas as pd
import xarray as xr
from jax.typing import ArrayLike

from anisoscope.api import Vectors
from anisoscope.measurement.families import comparison_family
from anisoscope.measurement.null_models import PERMUTATIONS
from anisoscope.measurement.quantity import Values
from anisoscope.metrics import convert
from anisoscope.sources import array_checks, array_chunks
from anisoscope.sources.folds import Folds
from anisoscope.sources.two_models import Clouds, measure_clouds, summarize_pairs
from anisoscope.utils.progress import library_call

LABELS = ("a", "b")


def compare(
    a: Vectors,
    b: Vectors,
    clusters: ArrayLike | Sequence[object] | None = None,
    *,
    folds: int = 8,
    seed: int = 0,
    labels: tuple[str, str] = LABELS,
    quiet: bool = False,
) -> xr.Dataset:
    """Compare every layer of one model with every layer of another, on the same points.

    Args:
        a: vectors of the first model, as for `measure`: (layers, points, width) or one layer.
        b: vectors of the second model at the same points in the same order; any width.
        clusters: (points,), as for `measure`: the sentence, image or window of each point.
        folds: how many parts of whole clusters are resampled, at most; 1 for values without
            intervals.
        seed: of the null model and the folds.
        labels: names of the models, for figures.
        quiet: without a line about compiling.

    Returns:
        A Dataset of `cka` (linear CKA), `cka_unbiased` and `neighbor_overlap` with the dimensions
        (statistic, layer, other_layer): mean, std, and the 95 % interval low to high. Each has an
        excess over the null model "permuted": whole clusters of `a` in random order (without
        clusters, all points shifted by a random number), so that points no longer correspond.

    Raises:
        ValueError: vectors of different points, or what cannot be measured; in one line.

    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((2, 128, 8))
    >>> table = compare(x, 3 * x[:, :, ::-1])  # rotated and scaled
    >>> table.cka.sel(statistic="mean").values.diagonal().round(3)
    array([1., 1.])
    """
    if isinstance(labels, str) or len(labels) != 2:
        raise ValueError(f"labels is {labels!r}; pass two names")
    for x in (a, b):
        if isinstance(x, str | os.PathLike):
            raise ValueError(f"{x!r} names no vectors; compare_models reads models by name")
    vectors_a, vectors_b = (array_checks.read_vectors(x, clusters) for x in (a, b))
    points, points_b = vectors_a.shape[0], vectors_b.shape[0]
    if points != points_b:
        raise ValueError(f"a has {points} points and b {points_b}; both need the same points")
    if isinstance(a, pd.DataFrame) and isinstance(b, pd.DataFrame) and not a.index.equals(b.index):
        raise ValueError("the indexes of a and b differ; bring both into one order of points")
    sizes = [len(vectors.layers) * math.prod(vectors.shape) for vectors in (vectors_a, vectors_b)]
    floats = array_chunks.WORK * ((1 + PERMUTATIONS) * sizes[0] + sizes[1])
    layers = f"{len(vectors_a.layers)} and {len(vectors_b.layers)} layers of {points:,} points"
    array_chunks.check_memory(4 * floats, layers, None)
    a_NPD, b_MPE = (
        np.stack([convert.as_vectors(layer, "vectors") for layer in vectors.layers])
        for vectors in (vectors_a, vectors_b)
    )
    chunks = array_chunks.cut_chunks(vectors_a, 1, folds, seed)
    null_KNPD = np.stack([a_NPD[:, order_P] for order_P in _orders(vectors_a, seed)])
    with library_call(quiet):
        values = _measure_folds(Clouds(a_NPD, b_MPE, null_KNPD), chunks[0].folds)
    attributes = array_chunks.describe(vectors_a, chunks) | {"seed": seed}
    attributes |= dict(zip(("first", "second"), labels, strict=True))
    table = summarize_pairs([jax.tree.map(lambda x: x[None], values)], ("all",))
    return table.isel(positions=0, drop=True).assign_attrs(attributes)


def _orders(vectors: array_checks.Vectors, seed: int) -> list[np.ndarray]:
    """Draw an order of the points for each permutation: whole clusters in random order."""
    rng, points, cluster_P = np.random.default_rng(seed), vectors.shape[0], vectors.cluster_P
    if cluster_P is None:
        return [np.roll(np.arange(points), rng.integers(1, points)) for _ in range(PERMUTATIONS)]
    ranks = [rng.permutation(cluster_P.max() + 1) for _ in range(PERMUTATIONS)]
    return [np.argsort(rank[cluster_P], kind="stable") for rank in ranks]


@jax.enable_x64(False)
def _measure_folds(clouds: Clouds, folds: Folds) -> dict[str, Values]:
    """Return values of all points, and replicates of the points in folds."""
    index_P, count = folds.index_JM.ravel(), len(folds.index_JM)
    resampled = [x[..., index_P, :] for x in clouds]
    values = jax.device_get(
        measure_clouds(*resampled, folds=count, parts=count if folds.unequal else None)
    )
    if folds.unequal or index_P.size < clouds.first_NPD.shape[1]:
        values_all = jax.device_get(measure_clouds(*clouds, folds=1))
        values = jax.tree.map(lambda x, y: np.concatenate([x, y[..., 1:]], -1), values_all, values)
    if folds.unequal:
        values = array_chunks.weight_folds(values, folds, comparison_family.ACROSS)
    return values
