"""Similarity of two representations of the same points: two layers, or a layer at two checkpoints.

Here X is two axes joined into one; A are rows of a block.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, UInt

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    centered,
    fold_members,
    fold_weights,
    only,
)
from anisoscope.metrics.neighbors import Neighbors

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


class Nearest(NamedTuple):
    """A few nearest neighbors of each point: enough for an overlap, and small enough to store."""

    # the neighbors, each the first of its copies, in the smallest sufficient integer type
    index_PC: UInt[Array, "*N P C"]
    usable_P: Bool[Array, "*N P"]  # the first of its copies, with C neighbors
    first_P: Bool[Array, "*N P"]  # the first of its copies, with a neighbor

    def part(self, member_P: Bool[Array, " P"]) -> "Nearest":
        """Take the part of the points whose neighbors are among these points alone."""
        return self._replace(usable_P=self.usable_P & member_P, first_P=self.first_P & member_P)


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

    def compare_pair(pair: tuple[Array, Array]) -> Any:
        n, m = pair
        return compare(jax.tree.map(lambda z_N: z_N[n], x_N), jax.tree.map(lambda z_N: z_N[m], y_N))

    values_X = jax.lax.map(compare_pair, (jnp.asarray(row), jnp.asarray(column)))
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


def neighbor_overlap(a: Nearest, b: Nearest) -> Scalar:
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
