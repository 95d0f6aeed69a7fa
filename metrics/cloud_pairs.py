"""Alignment, linearity and information imbalance of two representations of the same points.

S are parts of the points.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    centered,
    largest,
    nan_unless,
    only,
    product,
    scale_to_unit,
)
from anisoscope.metrics.comparison import (
    Nearest,
    PreparedCloud,
    cross_energy,
    prepare_cloud,
)
from anisoscope.metrics.copies import copies
from anisoscope.metrics.eigen import eigh
from anisoscope.metrics.neighbors import count_in_groups, rounding

LEAST_VARIANCE = (
    2e-6  # share of the squared mean of squared distances: less variance counts as none
)


class Alignment(NamedTuple):
    rsa: Float[Array, "..."]
    procrustes: Float[Array, "..."]


def alignments(
    x_PD: Points, y_PE: Float[AnyArray, "P E"], keep_RP: Float[AnyArray, "R P"] | None = None
) -> Alignment:
    """Representational similarity (rsa) and orthogonal Procrustes similarity of two clouds.

    rsa: Pearson's correlation over all pairs of |x_i - x_j|^2 and |y_i - y_j|^2, in [-1, 1]. With
    n_i = |x_i|^2 and m_i = |y_i|^2 about the means, S and T their sums, the products of both
    distances add up to 2 P sum n_i m_i + 2 S T + 4 |X'Y|_F^2 over ordered pairs. procrustes:
    |X'Y|_* / (|X|_F |Y|_F), in [0, 1]. R values, by weights 1 or 0 of the points (None: all): for
    all that count, then without each fold; procrustes keeps the rotation of the whole. NaN if all
    points of a cloud are equal, or not finite; of rsa also if all distances are equal.
    """
    keep_RP = jnp.ones((1, len(x_PD))) if keep_RP is None else jnp.asarray(keep_RP)
    return align_prepared(prepare_cloud(x_PD, keep_RP), prepare_cloud(y_PE, keep_RP), keep_RP)


def align_prepared(
    x: PreparedCloud, y: PreparedCloud, keep_RP: Float[AnyArray, "R P"]
) -> Alignment:
    """Compute `alignments` of two clouds that are prepared with the same weights."""
    count_R = keep_RP.sum(axis=1)
    (mean_x_RD, square_x_RP), (mean_y_RE, square_y_RP) = (
        _about_mean(z.x_PD, keep_RP) for z in (x, y)
    )
    sum_x_R, sum_y_R = square_x_RP.sum(axis=1), square_y_RP.sum(axis=1)

    def covariance(n_RP: Array, m_RP: Array, product_R: Array) -> Array:
        """Compute the covariance of two distances, times the number of ordered pairs."""
        sum_n_R, sum_m_R = n_RP.sum(axis=1), m_RP.sum(axis=1)
        mean_R = 4 * count_R * sum_n_R * sum_m_R / (count_R - 1)  # the product of both means
        return (
            2 * count_R * (n_RP * m_RP).sum(axis=1) + 2 * sum_n_R * sum_m_R + 4 * product_R - mean_R
        )

    shared_R = covariance(square_x_RP, square_y_RP, cross_energy(x.x_PD, y.x_PD, keep_RP)[0])
    self_x_R, self_y_R = (
        covariance(n, n, z.energy_2R[0]) for n, z in ((square_x_RP, x), (square_y_RP, y))
    )
    # where distances are equal, only rounding varies
    least_x_R, least_y_R = (
        LEAST_VARIANCE * 4 * count_R * jnp.square(sum_R) / (count_R - 1)
        for sum_R in (sum_x_R, sum_y_R)
    )
    known_R = (self_x_R > least_x_R) & (self_y_R > least_y_R) & (count_R > 2)
    rsa_R = jnp.clip(shared_R / jnp.sqrt(self_x_R * self_y_R), -1.0, 1.0)
    rsa_R = jnp.where(known_R, rsa_R, jnp.nan)

    product_DE = product(x.x_PD.T, y.x_PD)
    finite = jnp.isfinite(product_DE).all()
    left_DE, _, right_EE = jnp.linalg.svd(jnp.where(finite, product_DE, 0.0), full_matrices=False)
    rotation_DE = jnp.where(finite, product(left_DE, right_EE), jnp.nan)
    rotated_P = (product(x.x_PD, rotation_DE) * y.x_PD).sum(axis=1)
    mean_product_R = (product(mean_x_RD, rotation_DE) * mean_y_RE).sum(axis=1)
    nuclear_R = product(keep_RP, rotated_P) - count_R * mean_product_R
    procrustes_R = jnp.clip(nuclear_R / jnp.sqrt(sum_x_R * sum_y_R), -1.0, 1.0)
    return Alignment(rsa_R, procrustes_R)


def _about_mean(x_PD: Float[Array, "P D"], keep_RP: Float[Array, "R P"]) -> tuple[Array, Array]:
    """Compute the mean of the kept points and their squared distances from it; 0 for the others."""
    mean_RD = product(keep_RP, x_PD) / keep_RP.sum(axis=1)[:, None]
    square_P, square_R = jnp.square(x_PD).sum(axis=1), jnp.square(mean_RD).sum(axis=1)
    return mean_RD, keep_RP * (square_P[None] - 2 * product(mean_RD, x_PD.T) + square_R[:, None])


# singular values below this share of the largest, with coordinates scaled alike, are rounding
LEAST_DIRECTION = 1e-5


class Linear(NamedTuple):
    score: Float[Array, " R"]
    adjusted: Float[Array, " R"]


class Basis(NamedTuple):
    basis_PD: Float[Array, "P D"]  # zeros in place of directions that the cloud does not have
    rank: Scalar


def linearity(
    x_PD: Points, y_PE: Float[AnyArray, "P E"], keep_RP: Float[AnyArray, "R P"] | None = None
) -> Linear:
    """Share of the variance of y that the best linear map of x explains: 1 - min_A |X~ A - Y~|_F^2.

    X~ and Y~ are centered and of norm 1: the score is R^2 = |U'Y|^2 / |Y|^2, U an orthonormal basis
    of the columns of X. Unrelated points score r / (P - 1) on average, r the rank of x: `adjusted`
    is 1 - (1 - R^2) (P - 1) / (P - 1 - r). Both have R values, by weights 1 or 0 of points (None:
    all), with the map of all points. Range: score [0, 1]; adjusted up to 1, NaN for r + 1 points or
    fewer. NaN if all points are equal, or not finite.
    """
    valid_P = None if keep_RP is None else keep_RP[0] > 0
    return explain_variance(column_basis(x_PD, valid_P), y_PE, keep_RP)


def column_basis(x_PD: Points, valid_P: Bool[AnyArray, " P"] | None = None) -> Basis:
    """Orthonormal basis of the columns of the centered cloud."""
    x_PD = scale_to_unit(centered(x_PD, valid_P))
    size_D = jnp.linalg.norm(x_PD, axis=0)
    x_PD = x_PD / jnp.where(size_D == 0, 1.0, size_D)[None]
    # small directions of the first pass are not orthogonal: X'X has lost their digits
    for _ in range(2):
        x_PD = product(x_PD, eigh(product(x_PD.T, x_PD))[1])
        size_D = jnp.linalg.norm(x_PD, axis=0)
        kept_D = size_D > LEAST_DIRECTION * largest(size_D)
        x_PD = jnp.where(
            kept_D[None], x_PD / jnp.where(kept_D, size_D, 1.0)[None], nan_unless(x_PD, 0.0)
        )
    return Basis(x_PD, nan_unless(x_PD[0, 0], kept_D.sum()))


def explain_variance(
    basis: Basis, y_PE: Float[AnyArray, "P E"], keep_RP: Float[AnyArray, "R P"] | None = None
) -> Linear:
    """`linearity` of y in the cloud x that has this basis, which several y can share."""
    keep_RP = jnp.ones((1, len(y_PE))) if keep_RP is None else jnp.asarray(keep_RP)
    y_PE = scale_to_unit(centered(y_PE, keep_RP[0] > 0))
    fit_PE = product(basis.basis_PD, product(basis.basis_PD.T, y_PE))
    count_R = keep_RP.sum(axis=1)
    error_R = product(keep_RP, jnp.square(y_PE - fit_PE).sum(axis=1))
    shift_RE = product(keep_RP, y_PE)
    total_R = (
        product(keep_RP, jnp.square(y_PE).sum(axis=1)) - jnp.square(shift_RE).sum(axis=1) / count_R
    )
    score_R = jnp.where(basis.rank > 0, jnp.maximum(1.0 - error_R / total_R, 0.0), jnp.nan)
    free_R = count_R - 1 - basis.rank
    adjusted_R = 1.0 - (1.0 - score_R) * (count_R - 1) / jnp.where(free_R > 0, free_R, jnp.nan)
    return Linear(score_R, adjusted_R)


RANKED_AT_ONCE = 32  # points whose distances to all others exist at once
# share of the squared distance of a nearest point: with more rounding, distances are subtracted
VAGUE = 1e-3


def information_imbalance(
    nearest_NP: Int[AnyArray, "N P"] | UInt[AnyArray, "N P"],
    counts_NP: Bool[AnyArray, "N P"],
    cloud_PD: Points,
) -> Float[Array, " N"]:
    """Delta(A -> B) = 2/n mean_i r_i, r_i the rank in B of the point nearest to i in A, of N clouds A.

    The arguments are the nearest neighbor of each point in N clouds A, which of these points count,
    and the cloud B. Range: 2/n to 2 (n - 1)/n; 1 on average for unrelated clouds. Ranks are among
    the n distinct points of B; a point equal to i in B has rank 1. The mean is over the points that
    count in A and are the first of their copies in B. NaN without such a point, or if a coordinate is not finite.
    """
    part_1P = jnp.ones((1, len(cloud_PD)), bool)
    return part_imbalance(nearest_NP, counts_NP, cloud_PD, part_1P)[:, 0]


def part_imbalance(
    nearest_NP: Int[AnyArray, "N P"] | UInt[AnyArray, "N P"],
    counts_NP: Bool[AnyArray, "N P"],
    cloud_PD: Points,
    part_SP: Bool[Array, "S P"],
) -> Float[Array, "N S"]:
    """`information_imbalance` of parts of the points, which share none; neighbors are in the part."""
    valid_P, part_P = part_SP.any(axis=0), part_SP.argmax(axis=0)
    cloud_PD = scale_to_unit(only(jnp.asarray(cloud_PD, jnp.float32), valid_P))
    points, width = cloud_PD.shape
    original_P = copies(cloud_PD, valid_P).original_P
    part_or_none_P = jnp.where(valid_P, part_P, -1)
    original_P = count_in_groups(original_P, part_or_none_P, len(part_SP))[0]
    first_P = (original_P == jnp.arange(points)) & valid_P
    x_PD = centered(cloud_PD, valid_P)
    square_P = jnp.square(x_PD).sum(axis=1)
    near_PN = original_P[jnp.asarray(nearest_NP).T.astype(jnp.int32)]

    def rank(i: Array, distance_P: Array) -> Float[Array, " N"]:
        other_P = first_P & (jnp.arange(points) != original_P[i]) & (part_P == part_P[i])
        nearer_NP = other_P[None] & (distance_P[None] < distance_P[near_PN[i]][:, None])
        return 1.0 + jnp.where(near_PN[i] == original_P[i], 0, nearer_NP.sum(axis=1))

    def by_products(i: Array) -> tuple[Float[Array, " N"], Bool[Array, ""]]:
        distance_P = square_P + square_P[i] - 2.0 * product(x_PD, x_PD[i])
        near_N = distance_P[near_PN[i]]
        reach_N = jnp.sqrt(jnp.maximum(near_N, 0.0))
        rounded_N = rounding(jnp.broadcast_to(square_P[i], near_N.shape), reach_N, width)
        vague_N = (rounded_N > VAGUE * near_N) & (near_PN[i] != original_P[i])
        return rank(i, distance_P), vague_N.any()

    def by_subtraction(state: tuple[Array, Array]) -> tuple[Array, Array]:
        vague_P, rank_PN = state
        i_C = jax.lax.top_k(vague_P.astype(jnp.int32), together)[1]
        found_CN = jax.lax.map(
            lambda i: rank(i, jnp.square(cloud_PD - cloud_PD[i][None]).sum(axis=1)), i_C
        )
        return vague_P.at[i_C].set(False), rank_PN.at[i_C].set(found_CN)

    together = min(RANKED_AT_ONCE, points)
    rank_PN, vague_P = jax.lax.map(by_products, jnp.arange(points), batch_size=together)
    state = vague_P & first_P, rank_PN
    rank_PN = jax.lax.while_loop(lambda state: state[0].any(), by_subtraction, state)[1]
    weight_NP = jnp.asarray(counts_NP) & first_P[None]
    part_PS = jnp.float32(part_SP.T)
    sum_NS, count_NS = (
        product(jnp.float32(x_NP), part_PS)
        for x_NP in (jnp.where(weight_NP, rank_PN.T, 0.0), weight_NP)
    )
    distinct_1S = product(jnp.float32(first_P), part_PS)[None]
    return nan_unless(square_P.sum(), 2.0 * sum_NS / count_NS / distinct_1S)


def layers_imbalance(
    nearest_N: Nearest, clouds_NPD: Float[AnyArray, "N P D"], part_SP: Bool[Array, "S P"]
) -> Float[Array, "N N S"]:
    """`part_imbalance` of every layer (row) to every layer (column)."""
    nearest_NP = nearest_N.index_PC[..., 0]
    return jax.lax.map(
        lambda cloud_PD: part_imbalance(nearest_NP, nearest_N.first_P, cloud_PD, part_SP),
        jnp.asarray(clouds_NPD),
    ).swapaxes(0, 1)
