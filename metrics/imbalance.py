"""Information imbalance: how well neighbors in one representation predict those in another."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from anisoscope.metrics.cloud import AnyArray, centered, product, scale_to_unit
from anisoscope.metrics.comparison import Nearest
from anisoscope.metrics.copies import copies

AT_ONCE = 32  # points whose distances to all others exist at once


def information_imbalance(
    nearest_NP: Int[AnyArray, "N P"] | UInt[AnyArray, "N P"],
    counts_NP: Bool[AnyArray, "N P"],
    cloud_PD: Float[AnyArray, "P D"],
) -> Float[Array, " N"]:
    """Delta(A -> B) = 2/n mean_i r_i, r_i the rank in B of the point nearest to i in A, of N clouds A.

    Shapes: of N clouds A the nearest of each point, and which points count; the cloud B of the same
    points -> N values. Range: 2/n to 2 (n - 1)/n; 1 on average for unrelated clouds, near 0 where
    nearness in A predicts nearness in B. Not symmetric: a cloud with only a part of the other's
    information is predicted by it, and does not predict it. Ranks are among the n distinct points
    of B; a point equal to i in B has rank 1. The mean is over the points that count in A and are
    the first of their copies in B; none: NaN. Distances are those of the Gram matrix, whose
    rounding moves ranks of points equally far to 1e-6 of the largest |x|^2. A coordinate that is
    not finite: NaN. Source: Glielmo et al. 2022, Ranking the information content of distance
    measures; between layers: Acevedo et al. 2024, arXiv 2405.15471. The duplicates rule is ours.
    """
    cloud_PD = scale_to_unit(centered(cloud_PD))
    points = len(cloud_PD)
    original_P = copies(cloud_PD).original_P
    first_P = original_P == jnp.arange(points)
    square_P = jnp.square(cloud_PD).sum(axis=1)
    nearest_PN = jnp.asarray(nearest_NP).T.astype(jnp.int32)

    def rank_of_point(i: Int[Array, ""]) -> Float[Array, " N"]:
        # |x_i|^2 is common to all distances of a point, and left out
        distance_P = square_P - 2.0 * product(cloud_PD, cloud_PD[i])
        near_N = original_P[nearest_PN[i]]
        other_P = first_P & (jnp.arange(points) != original_P[i])
        nearer_NP = other_P[None] & (distance_P[None] < distance_P[near_N][:, None])
        return 1.0 + jnp.where(near_N == original_P[i], 0, nearer_NP.sum(axis=1))

    rank_PN = jax.lax.map(rank_of_point, jnp.arange(points), batch_size=min(AT_ONCE, points))
    weight_NP = jnp.asarray(counts_NP) & first_P[None]
    mean_N = jnp.where(weight_NP, rank_PN.T, 0.0).sum(axis=1) / weight_NP.sum(axis=1)
    return 2.0 * mean_N / first_P.sum() + 0.0 * square_P.sum()


def layers_imbalance(
    nearest_N: Nearest, clouds_NPD: Float[AnyArray, "N P D"]
) -> Float[Array, "N N"]:
    """`information_imbalance` of every layer (row) to every layer (column)."""
    nearest_NP = nearest_N.index_PC[..., 0]
    return jax.lax.map(
        lambda cloud_PD: information_imbalance(nearest_NP, nearest_N.first_P, cloud_PD),
        jnp.asarray(clouds_NPD),
    ).T
