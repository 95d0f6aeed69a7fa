"""Family imbalance: how well nearness in a layer predicts nearness in another.

S are parts of the points: the whole, or sections; G are groupings of the points.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    centered,
    nan_unless,
    only,
    product,
    scale_to_unit,
)
from anisoscope.metrics.comparison import NEIGHBORS, search_nearest, select_nearest
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.copies import copies
from anisoscope.metrics.neighbors import Nearest, count_in_groups, nearest_neighbors, rounding
from anisoscope.metrics.public_metric import public_metric
from anisoscope.metrics.quantity import LAYERS, MEASURED, PERMUTED, Family, Quantity, Values
from anisoscope.metrics.resampling import LayerClouds, Searched, map_samples

RANKED_AT_ONCE = 32  # points whose distances to all others exist at once
# share of the squared distance of a nearest point: with more rounding, distances are subtracted
VAGUE = 1e-3


def part_imbalance(
    nearest_NP: Int[AnyArray, "N P"] | UInt[AnyArray, "N P"],
    counts_NP: Bool[AnyArray, "N P"],
    cloud_PD: Points,
    part_SP: Bool[Array, "S P"],
) -> Float[Array, "N S"]:
    """Delta(A -> B) = 2/n mean_i r_i, r_i the rank in B of the point nearest to i in A, of N clouds A.

    The arguments are the nearest neighbor of each point in N clouds A, which of these points count,
    the cloud B, and S parts of the points, which share none; neighbors are in the part. Range: 2/n
    to 2 (n - 1)/n; 1 on average for unrelated clouds. Ranks are among the n distinct points of B; a
    point equal to i in B has rank 1. The mean is over the points that count in A and are the first
    of their copies in B. NaN without such a point, or if a coordinate is not finite.
    """
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


@public_metric()
def information_imbalance(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Mean rank in y of the point nearest in x, times 2 / points: does x predict nearness in y?

    A number in [2/points, 2), 1 on average for unrelated clouds, near 0 where x predicts y. Not
    symmetric. Source: Glielmo et al. 2022; copies of a point count once, a rule of this project.
    Ties are broken arbitrarily.
    """
    nearest = select_nearest(nearest_neighbors(x, 2), 1)
    part_1P = jnp.ones((1, len(y)), bool)
    nearest_1P = nearest.index_PC[None, :, 0]
    return part_imbalance(nearest_1P, nearest.first_P[None], y, part_1P)[0, 0]


IMBALANCE_QUANTITIES = {
    "information_imbalance_layers": Quantity(
        "information imbalance from a layer to another",
        "2/n times the mean rank in `other_layer` of the nearest in `layer`, among the n distinct "
        "points; 1 for unrelated layers, near 0 where nearness in `layer` predicts nearness in "
        "`other_layer`",
        "Glielmo et al. 2022, where copies are neighbors too: for layers with copies theirs is "
        "lower; between layers: arXiv 2405.15471",
        range=(0.0, 2.0),
        dims=LAYERS,
        resampling="sections",
    )
}


def measure_imbalance(clouds: LayerClouds) -> dict[str, Values]:
    """Measure pairs of layers, (layer, other layer, R).

    The null model has the neighbors of other windows.
    """
    labels = clouds.labels
    part_SP = jnp.asarray(labels.part_SP)

    def measure(nearest_N: Searched) -> Values:
        def rank(number: int, parts: Array) -> Array:
            nearest = jax.tree.map(lambda x_NG: x_NG[:, number], nearest_N)
            return layers_imbalance(nearest, clouds.points_NPD, parts)

        values = [rank(0, part_SP[:1])]
        if len(part_SP) > 1:
            values.append(rank(1, part_SP[1:]))
        return dict.fromkeys(IMBALANCE_QUANTITIES, jnp.concatenate(values, axis=-1))

    def find_neighbors(x_NPD: Array) -> Searched:
        return jax.lax.map(lambda cloud_PD: search_nearest(cloud_PD, labels), x_NPD)

    return map_samples(
        measure, {MEASURED: clouds.nearest_N} | map_samples(find_neighbors, clouds.nulls)
    )


IMBALANCE = Family(
    "layers", measure_imbalance, IMBALANCE_QUANTITIES, (PERMUTED,), neighbors=NEIGHBORS
)
