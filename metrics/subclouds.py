"""Find neighbors among some points of a cloud, or in every f-th point; S are the parts."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from anisoscope.metrics.cloud import AnyArray
from anisoscope.metrics.neighbors import Neighbors, compare_with_all, sort_nearest

SPARE = 3  # neighbors from which the two nearest are read when some points are left out


def neighbors_among(
    cloud_PD: Float[AnyArray, "P D"], neighbors: Neighbors, left_P: Bool[AnyArray, " P"]
) -> Neighbors:
    """Find the two nearest of every point among the remaining points, as if only they existed.

    `neighbors` are those of the cloud, SPARE or more. Numbers of copies and the mean norm stay
    those of the whole cloud. A point of whose SPARE nearest fewer than two are left is compared
    with all.
    """
    neighbors.check_searched(SPARE)
    original_P = neighbors.original_P
    # of copies, if one is
    left_P = jnp.zeros_like(neighbors.first_P).at[original_P].max(jnp.asarray(left_P))
    distance_PC, index_PC = neighbors.distance_PC[:, :SPARE], neighbors.index_PC[:, :SPARE]
    distance_PC = jnp.where(left_P[index_PC], distance_PC, jnp.inf)
    unsure_P = (
        left_P
        & ((distance_PC < jnp.inf).sum(axis=1) < 2)
        & (neighbors.distance_PC[:, SPARE - 1] < jnp.inf)
    )
    distance_PC, index_PC = sort_nearest(distance_PC, index_PC, 2)
    cloud_PD, group_P = jnp.asarray(cloud_PD, jnp.float32), jnp.where(left_P, 0, -1)
    distance_PC, index_PC = compare_with_all(cloud_PD, group_P, unsure_P, distance_PC, index_PC)
    distance_PC, index_PC = distance_PC[original_P], index_PC[original_P]
    return neighbors._replace(distance_PC=distance_PC, index_PC=index_PC, first_P=left_P)


def neighbors_in_subsets(
    cloud_PD: Float[AnyArray, "P D"], neighbors: Neighbors, factor: int
) -> Neighbors:
    """Find the two nearest of every point within its own subset of the disjoint cloud[i::factor].

    With 8 neighbors for each subset one point in 400 has fewer than two in its own, and is compared
    with all of that. Returns arrays (factor, P // factor, ...): the P mod factor last points are of
    no subset. A copy counts where no other comes before it in the subset. Indices, numbers of
    copies and the mean norm are those of the whole cloud.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    points, kept = len(cloud_PD), len(cloud_PD) // factor * factor
    original_P, index_P = neighbors.original_P, jnp.arange(points)
    subset_P = index_P % factor
    # of the copies of each point, the first in every subset; P where there is none
    inside_P = jnp.where(index_P < kept, index_P, points)
    first_PS = jnp.full((points, factor), points).at[original_P, subset_P].min(inside_P)
    own_first_P = first_PS[original_P, subset_P]
    first_P = own_first_P == index_P
    index_PC = first_PS[neighbors.index_PC, subset_P[:, None]]
    inside_PC = (index_PC < points) & (neighbors.distance_PC < jnp.inf)
    distance_PC, index_PC = sort_nearest(
        jnp.where(inside_PC, neighbors.distance_PC, jnp.inf), index_PC, 2
    )
    unsure_P = first_P & (distance_PC[:, 1] == jnp.inf) & (neighbors.distance_PC[:, -1] < jnp.inf)
    group_P = jnp.where(first_P, subset_P, -1)
    distance_PC, index_PC = compare_with_all(cloud_PD, group_P, unsure_P, distance_PC, index_PC)

    def cut(x_P: Array) -> Array:
        return jnp.moveaxis(x_P[:kept].reshape(kept // factor, factor, *x_P.shape[1:]), 1, 0)

    local = neighbors._replace(
        distance_PC=distance_PC[own_first_P],
        index_PC=index_PC[own_first_P],
        first_P=first_P,
        mean_norm=None,
    )
    return jax.tree.map(cut, local)._replace(mean_norm=jnp.full(factor, neighbors.mean_norm))
