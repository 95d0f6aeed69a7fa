"""Family comparison: layers compared by CKA and their neighbors, with each other and in time.

Here X is two axes joined into one; A are rows of a block.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    centered,
    fold_members,
    fold_weights,
    only,
)
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.neighbors import Nearest, Neighbors, nearest_neighbors
from anisoscope.metrics.public_metric import public_metric
from anisoscope.metrics.quantity import (
    LAYER,
    LAYERS,
    MEASURED,
    PERMUTED,
    Family,
    Quantity,
    Values,
    correlation,
    share,
)
from anisoscope.metrics.resampling import (
    Labels,
    LayerClouds,
    Searched,
    map_samples,
    over_sections,
    search,
)

POINTS_AT_ONCE = 256  # points that are multiplied at once
LEAST_HSIC = 1e-4  # share of |X^T X|_F^2: float32 rounds n (n - 3) HSIC_1(K, K) by up to 1e-6 of it


class Cka(NamedTuple):
    """Both estimators of CKA, from the same products."""

    biased: Float[Array, "..."]
    unbiased: Float[Array, "..."]


class PreparedCloud(NamedTuple):
    """A cloud, or N of them, prepared for CKA: results that depend on one cloud alone."""

    x_PD: Float[Array, "*N P D"]  # centered and scaled
    # |X^T X|_F^2 and n (n - 3) HSIC_1(K, K); the second NaN below LEAST_HSIC of the first
    energy_2R: Float[Array, "*N 2 R"]


def ckas(
    x_PD: Points, y_PE: Float[AnyArray, "P E"], keep_RP: Float[AnyArray, "R P"] | None = None
) -> Cka:
    """Linear CKA of two clouds: |X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F), X and Y centered, by two estimators.

    biased: as written, [0, 1]; about sqrt(D E / ((P + D) (P + E))) for independent normal clouds.
    unbiased: HSIC_1(K, L) / sqrt(HSIC_1(K, K) HSIC_1(L, L)), K = X X^T, L = Y Y^T, [-1, 1],

        HSIC_1(K, L) = (tr K~ L~ + (1'K~1)(1'L~1) / ((P - 1)(P - 2)) - 2/(P - 2) 1'K~L~1) / (P (P - 3)),

    K~ and L~ without their diagonals, read off X^T Y, norms and sums. R values each, by weights 1 or
    0 of the points (None: all): of all points that count, then without each fold of a partition,
    centered without it. NaN if all points of a cloud are equal, or not finite. The unbiased one is
    NaN too for fewer than 4 points, and where one point holds nearly all of the scatter.
    """
    keep_RP = jnp.ones((1, len(x_PD))) if keep_RP is None else jnp.asarray(keep_RP)
    return compare_prepared(prepare_cloud(x_PD, keep_RP), prepare_cloud(y_PE, keep_RP), keep_RP)


@public_metric()
def cka(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Linear CKA: the similarity of two representations of the same points.

    |X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F), X and Y centered. A number in [0, 1], 1 up to rotation,
    scale and shift. Independent clouds lie above 0: see `cka_unbiased`. NaN where all points of x
    or of y are equal. Source: Kornblith et al. 2019.
    """
    return ckas(x, y).biased[0]


@public_metric()
def cka_unbiased(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Linear CKA with the unbiased HSIC: about 0 for independent clouds of independent points.

    A number in [-1, 1]; NaN for fewer than 4 points, or where `cka` is NaN. Source: Song et al.
    2012 (HSIC), Nguyen et al. 2021 (its use in CKA).
    """
    return ckas(x, y).unbiased[0]


def prepare_clouds(
    x_NPD: Float[AnyArray, "N P D"], keep_RP: Float[AnyArray, "R P"]
) -> PreparedCloud:
    """Prepare N clouds of P points for `compare_prepared`: a copy and one product of each."""
    return jax.lax.map(lambda x_PD: prepare_cloud(x_PD, keep_RP), jnp.asarray(x_NPD))


def compare_prepared(x: PreparedCloud, y: PreparedCloud, keep_RP: Float[AnyArray, "R P"]) -> Cka:
    """Compute `ckas` of two clouds that are prepared with the same weights."""
    shared_2R, energy_2R = cross_energy(x.x_PD, y.x_PD, keep_RP), x.energy_2R * y.energy_2R
    known_2R = energy_2R > 0  # also inside the root, where a NaN would make all derivatives NaN
    # rounding can leave 1 + 1e-7
    cka_2R = jnp.clip(shared_2R / jnp.sqrt(jnp.where(known_2R, energy_2R, 1.0)), -1.0, 1.0)
    return Cka(*jnp.where(known_2R, cka_2R, jnp.nan))


def map_pairs(compare: Callable[..., Any], x_N: Any, y_N: Any) -> Any:
    """Compare entry n of `x_N` with every entry m >= n of `y_N`, pair after pair.

    Args:
        compare: A symmetric function of two entries.
        x_N: N prepared clouds, or their nearest neighbors, with the layer as the first axis.
        y_N: The same number; `x_N` itself for the pairs of its own layers.

    Returns:
        What `compare` returns, (N, N, …); n > m has the value of (m, n).
    """
    row, column = np.triu_indices(len(jax.tree.leaves(x_N)[0]))

    def compare_numbered(pair: tuple[Array, Array]) -> Any:
        n, m = pair
        return compare(jax.tree.map(lambda z_N: z_N[n], x_N), jax.tree.map(lambda z_N: z_N[m], y_N))

    values_X = jax.lax.map(compare_numbered, (jnp.asarray(row), jnp.asarray(column)))
    place_NN = np.zeros((row[-1] + 1, row[-1] + 1), np.int32)
    place_NN[row, column] = place_NN[column, row] = np.arange(len(row))
    return jax.tree.map(lambda value_X: value_X[place_NN], values_X)


def select_nearest(neighbors: Neighbors, count: int = 10) -> Nearest:
    """Select the `count` nearest neighbors of every point of one or several clouds.

    Fewer were searched: ValueError.
    """
    neighbors.check_searched(count)
    smallest = np.min_scalar_type(neighbors.first_P.shape[-1] - 1)
    first_PC = neighbors.first_P[..., None] & (neighbors.distance_PC < jnp.inf)
    return Nearest(
        neighbors.index_PC[..., :count].astype(smallest), first_PC[..., count - 1], first_PC[..., 0]
    )


def nearest_overlap(a: Nearest, b: Nearest) -> Scalar:
    """Share of a point's C nearest in one cloud that are among its C nearest in the other, on average.

    Range: [0, 1]; about C/(P - 1) for independent clouds. The mean is over the points that are the
    first of their copies in both clouds and have C neighbors in both. NaN without such a
    point; ValueError with another C in each.
    """
    if a.index_PC.shape != b.index_PC.shape:
        raise ValueError(
            f"nearest have shapes {a.index_PC.shape} and {b.index_PC.shape}; pass the same number of both"
        )
    usable_P = a.usable_P & b.usable_P
    same_PCC = a.index_PC[:, :, None] == b.index_PC[:, None, :]
    shared_P = same_PCC.sum(axis=(1, 2)) / a.index_PC.shape[1]
    return jnp.where(usable_P, shared_P, 0.0).sum() / usable_P.sum()


@public_metric()
def neighbor_overlap(x: ArrayLike, y: ArrayLike, k: int = 10) -> Scalar:
    """Share of a point's k nearest in x that are among its k nearest in y, on average.

    A share in [0, 1]; about k / points for independent clouds. NaN where no point has k neighbors
    in both. Source: Doimo et al. 2020; copies of a point count once, a rule of this project.
    Ties are broken arbitrarily.
    """
    nearest = (select_nearest(nearest_neighbors(z, max(k, 2)), k) for z in (x, y))
    return nearest_overlap(*nearest)


def prepare_cloud(x_PD: Points, keep_RP: Float[AnyArray, "R P"]) -> PreparedCloud:
    x_PD = centered(x_PD, keep_RP[0] > 0)
    x_PD = x_PD / jnp.abs(x_PD).max()  # float32 holds its fourth power; all points equal: NaN
    x_PD = only(x_PD, keep_RP[0] > 0)
    biased_R, unbiased_R = cross_energy(x_PD, x_PD, keep_RP)
    known_R = unbiased_R > LEAST_HSIC * biased_R
    return PreparedCloud(x_PD, jnp.stack([biased_R, jnp.where(known_R, unbiased_R, jnp.nan)]))


def cross_energy(
    x_PD: Float[Array, "P D"], y_PE: Float[Array, "P E"], keep_RP: Float[AnyArray, "R P"]
) -> Float[Array, "2 R"]:
    """Compute |X^T Y|_F^2 of the kept folds about their own mean, and their n (n - 3) HSIC_1.

    x and y are centered as a whole before. X^T Y = sum_j M_j - n a b^T, M_j the product of one
    fold, a and b the means of the n points that are kept. All that depends on the choice is read
    off the J x J scalar products <M_j, M_k>: a pass over M for each choice costs more.
    """
    keep_RP = jnp.asarray(keep_RP, jnp.float32)
    member_JP, count_R = fold_members(keep_RP), keep_RP.sum(axis=1)
    keep_RJ = fold_weights(len(member_JP))
    # the diagonals
    square_x_P, square_y_P = (jnp.square(z_PD).sum(axis=1) for z_PD in (x_PD, y_PE))
    with jax.default_matmul_precision("highest"):
        m_JDE = _fold_products(x_PD, y_PE, member_JP)
        m_JX = m_JDE.reshape(len(member_JP), -1)
        sum_RD, sum_RE = keep_RP @ x_PD, keep_RP @ y_PE  # 0 when all are kept
        products_R = jnp.einsum("rj,jk,rk->r", keep_RJ, m_JX @ m_JX.T, keep_RJ)
        crossed_R = jnp.einsum(
            "rj,rd,jdr->r", keep_RJ, sum_RD, jnp.einsum("jde,re->jdr", m_JDE, sum_RE)
        )
        diagonal_x_R, diagonal_y_R, diagonals_R = (
            keep_RP @ z_P for z_P in (square_x_P, square_y_P, square_x_P * square_y_P)
        )
        weighed_RD = keep_RP @ (square_y_P[:, None] * x_PD)
        weighed_RE = keep_RP @ (square_x_P[:, None] * y_PE)
    square_RD, square_RE = jnp.square(sum_RD).sum(axis=1), jnp.square(sum_RE).sum(axis=1)
    biased_R = products_R - 2.0 * crossed_R / count_R + square_RD * square_RE / jnp.square(count_R)
    total_R = (square_RD - diagonal_x_R) * (square_RE - diagonal_y_R)  # 1'K~1 1'L~1
    # 1'K~L~1
    row_R = (
        crossed_R
        - (sum_RD * weighed_RD).sum(axis=1)
        - (sum_RE * weighed_RE).sum(axis=1)
        + diagonals_R
    )
    unbiased_R = (
        products_R
        - diagonals_R
        + total_R / ((count_R - 1) * (count_R - 2))
        - 2.0 * row_R / (count_R - 2)
    )
    return jnp.stack([biased_R, jnp.where(count_R > 3, unbiased_R, jnp.nan)])


def _fold_products(
    x_PD: Float[Array, "P D"], y_PE: Float[Array, "P E"], member_JP: Float[Array, "J P"]
) -> Float[Array, "J D E"]:
    """Compute X_j^T Y_j of the points of each fold.

    The points are put in the order of their folds, so that most blocks belong to one fold.
    """
    folds, points = member_JP.shape
    if folds == 1:
        return (x_PD.T @ y_PE)[None]
    fold_P = jnp.where(member_JP.any(axis=0), member_JP.argmax(axis=0), folds)
    block = min(POINTS_AT_ONCE, points)
    blocks = -(-points // block)
    padding = (0, blocks * block - points)
    order_P = jnp.pad(jnp.argsort(fold_P), padding)
    fold_P = jnp.pad(jnp.sort(fold_P), padding, constant_values=folds)

    def add_block(number: Array, m_JDE: Array) -> Array:
        place_A = order_P[number * block + jnp.arange(block)]
        fold_A = jax.lax.dynamic_slice_in_dim(fold_P, number * block, block)
        x_AD, y_AE = x_PD[place_A], y_PE[place_A]

        def add_fold(fold: Array, m_JDE: Array) -> Array:
            kept_AD = jnp.where((fold_A == fold)[:, None], x_AD, 0.0)
            return m_JDE.at[fold].add(kept_AD.T @ y_AE)

        return jax.lax.fori_loop(fold_A[0], jnp.minimum(fold_A[-1] + 1, folds), add_fold, m_JDE)

    empty_JDE = jnp.zeros((folds, x_PD.shape[1], y_PE.shape[1]))
    return jax.lax.fori_loop(0, blocks, add_block, empty_JDE)


def name_pair(quantity: Quantity, dims: tuple[str, ...], words: str) -> Quantity:
    """Return the entry of a similarity of certain pairs of layers."""
    return dataclasses.replace(quantity, dims=dims, long_name=f"{quantity.long_name} {words}")


NEIGHBORS = 10
WITH = {  # what a layer is compared with: (dimensions, words for the long name)
    "layers": (LAYERS, "of two layers"),
    "previous": (LAYER, "with the checkpoint before"),
    "last": (LAYER, "with the last checkpoint"),
}
SIMILARITIES = {
    "cka": share(
        "linear CKA", "|X^T Y|_F^2 / (|X^T X|_F |Y^T Y|_F), centered", "Kornblith et al. 2019"
    ),
    "cka_unbiased": correlation(
        "linear CKA without bias",
        "HSIC_1(K, L) / sqrt(HSIC_1(K, K) HSIC_1(L, L)), K = X X^T, L = Y Y^T; HSIC_1 is unbiased "
        "for independent points; 0 on average for independent clouds of them",
        "Nguyen et al. 2021; HSIC_1: Song et al. 2012",
    ),
    "neighbor_overlap": share(
        "neighborhood overlap",
        f"share of common points among the {NEIGHBORS} nearest distinct points of each point that "
        "is the first of its copies in both clouds",
        "Doimo et al. 2020, where copies are neighbors too, and theirs is then higher",
        resampling="share_sections",
    ),
}
COMPARISON_QUANTITIES = {
    f"{kind}_{name}": name_pair(quantity, *attributes)
    for kind, quantity in SIMILARITIES.items()
    for name, attributes in WITH.items()
}
NEEDS_PREVIOUS_CHECKPOINT = {f"{kind}_previous" for kind in SIMILARITIES}


def keep_nearest(searched: Searched) -> Searched:
    """Keep the NEIGHBORS nearest, which the overlap needs, of a search for several quantities."""
    return select_nearest(searched, NEIGHBORS)


def search_nearest(cloud_PD: Points, labels: Labels) -> Searched:
    """Search the NEIGHBORS nearest of every point, in the cloud and in its sections."""
    return keep_nearest(search(cloud_PD, NEIGHBORS, labels))


class Prepared(NamedTuple):
    """A cloud prepared for comparison: what CKA reads, and the nearest neighbors."""

    ready: PreparedCloud
    nearest: Searched


def prepare_comparison(cloud_PD: Points, labels: Labels) -> Prepared:
    """Prepare a cloud for `compare_pair`."""
    return Prepared(prepare_cloud(cloud_PD, labels.keep_RP), search_nearest(cloud_PD, labels))


def compare_pair(a: Prepared, b: Prepared, labels: Labels) -> Values:
    """Compare two clouds of the same points, {kind: (R,)}."""
    cka = compare_prepared(a.ready, b.ready, labels.keep_RP)
    overlap = over_sections(
        lambda *nearest: {"neighbor_overlap": nearest_overlap(*nearest)},
        labels,
        a.nearest,
        b.nearest,
    )
    return {"cka": cka.biased, "cka_unbiased": cka.unbiased} | overlap


def measure_comparison(clouds: LayerClouds) -> dict[str, Values]:
    """Compare every layer with every other, and with the same layer of each of the `references`.

    Returns:
        {"measured": values of the clouds}; and where the windows can be permuted, "permuted": the
        permuted clouds compared with the clouds themselves.
    """
    labels = clouds.labels
    measured_N = Prepared(prepare_clouds(clouds.points_NPD, labels.keep_RP), clouds.nearest_N)
    prepared = map_samples(
        lambda z_NPD: jax.lax.map(lambda cloud_PD: prepare_comparison(cloud_PD, labels), z_NPD),
        clouds.nulls | clouds.references,
    )
    references = {name: prepared.pop(name) for name in clouds.references}

    compare = functools.partial(compare_pair, labels=labels)

    def compare_layers(layers_N: Prepared) -> Values:
        found = map_samples(
            lambda other_N: jax.lax.map(lambda pair: compare(*pair), (layers_N, other_N)),
            references,
        )
        found["layers"] = map_pairs(compare, layers_N, measured_N)
        return {
            f"{kind}_{name}": value
            for name, values in found.items()
            for kind, value in values.items()
        }

    return map_samples(compare_layers, {MEASURED: measured_N} | prepared)


COMPARISON = Family(
    "layers", measure_comparison, COMPARISON_QUANTITIES, (PERMUTED,), neighbors=NEIGHBORS
)
