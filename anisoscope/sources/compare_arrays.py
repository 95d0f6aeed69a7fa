"""Compare the layers of two models from their vectors of the same points.

Letters: M layers of the second model, K permutations.
"""

from collections.abc import Sequence

import jax
import numpy as np
import pandas as pd
import xarray as xr
from jax.typing import ArrayLike

from anisoscope.api import Vectors
from anisoscope.measurement.families import comparison_family
from anisoscope.measurement.null_models import PERMUTATIONS, PERMUTED
from anisoscope.metrics import convert
from anisoscope.results.excess import NULL, about_excess, excess_name
from anisoscope.sources import array_checks, arrays

LABELS = ("a", "b")


def compare(
    a: Vectors,
    b: Vectors,
    clusters: ArrayLike | Sequence[object] | None = None,
    *,
    folds: int = 8,
    seed: int = 0,
    labels: tuple[str, str] = LABELS,
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
    vectors_a, vectors_b = (array_checks.read_vectors(x, clusters) for x in (a, b))
    layers_a, layers_b = vectors_a.layers, vectors_b.layers
    (points, width_a), (points_b, width_b) = np.shape(layers_a[0]), np.shape(layers_b[0])
    if points != points_b:
        raise ValueError(f"a has {points} points and b {points_b}; both need the same points")
    if isinstance(a, pd.DataFrame) and isinstance(b, pd.DataFrame) and not a.index.equals(b.index):
        raise ValueError("the indexes of a and b differ; bring both into one order of points")
    width, count = max(width_a, width_b), len(layers_a)
    # zero columns change neither inner products nor distances
    padded = [
        np.pad(convert.as_float32(layer, "vectors"), ((0, 0), (0, width - layer.shape[1])))
        for layer in (*layers_a, *layers_b)
    ]
    whole = arrays.measure_vectors(
        padded, "comparison", (), clusters=vectors_a.cluster_P, folds=folds, seed=seed
    )
    table = whole.isel(layer=slice(count), other_layer=slice(count, None)).drop_vars("depth")
    table = table.assign_coords(other_layer=np.arange(len(layers_b)))
    null = _permuted_values(
        np.stack(padded[:count]), np.stack(padded[count:]), vectors_a.cluster_P, seed
    )
    variables = {}
    for name, quantity in comparison_family.ACROSS.items():
        value = table[f"{name}_layers"].assign_attrs(long_name=quantity.long_name)
        variables[name] = value
        shift = xr.where(
            value.statistic == "std", 0.0, xr.DataArray(null[name], dims=value.dims[1:])
        )
        excess = (value - shift).transpose(*value.dims).expand_dims({NULL: [PERMUTED]})
        variables[excess_name(name)] = excess.assign_attrs(about_excess(name, value.attrs))
    about = table.attrs | dict(zip(("first", "second"), labels, strict=True))
    return xr.Dataset(variables, attrs=about | {"permutations": PERMUTATIONS})


@jax.enable_x64(False)
def _permuted_values(
    a_NPD: np.ndarray, b_MPD: np.ndarray, cluster_P: np.ndarray | None, seed: int
) -> dict[str, np.ndarray]:
    """Return the mean of each quantity (N, M) over permutations of the first model's clusters."""
    rng, points = np.random.default_rng(seed), a_NPD.shape[1]
    if cluster_P is None:
        orders = [np.roll(np.arange(points), rng.integers(1, points)) for _ in range(PERMUTATIONS)]
    else:
        ranks = [rng.permutation(cluster_P.max() + 1) for _ in range(PERMUTATIONS)]
        orders = [np.argsort(rank[cluster_P], kind="stable") for rank in ranks]
    null_KNPD = np.stack([a_NPD[:, order_P] for order_P in orders])
    values = _across(a_NPD, b_MPD, null_KNPD)
    return {name: np.asarray(value)[..., 0] for name, value in values.items()}


@jax.jit
@jax.default_matmul_precision("highest")
def _across(a_NPD: jax.Array, b_MPD: jax.Array, null_KNPD: jax.Array) -> dict[str, jax.Array]:
    return comparison_family.compare_models(a_NPD, b_MPD, 1, lambda number: null_KNPD[number])[
        PERMUTED
    ]
