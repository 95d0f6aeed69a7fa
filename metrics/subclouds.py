"""The neighbours in parts of a cloud: in its subsamples, among the points that are left, in every
f-th point.

Here S are the parts: subsamples, or subsets.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.candidates import FEW, propose_few
from anisoscope.metrics.cloud import AnyArray, centred
from anisoscope.metrics.copies import Copies, copies
from anisoscope.metrics.fast_search import compared_with_all, measured, nearest_of
from anisoscope.metrics.neighbours import Neighbours, nearest_neighbours, neighbours_of, squares

SPARE = 3  # neighbours from which the two nearest are read when some points are left out


def neighbours_in_subsamples(
    cloud_PD: Float[AnyArray, "P D"], count: int, subsamples: int
) -> tuple[Neighbours, Neighbours]:
    """`nearest_neighbours` of the cloud, and of each of so many runs of consecutive points by
    itself: (S, …).

    Shapes, units and bad input as there; P a multiple of `subsamples`. Of few neighbours each
    product serves both.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    if 2 <= count <= FEW:
        return _of_one_search(cloud_PD, count, subsamples)
    parts_SPD = cloud_PD.reshape(subsamples, -1, cloud_PD.shape[1])
    return nearest_neighbours(cloud_PD, count), jax.lax.map(
        lambda part: nearest_neighbours(part, count), parts_SPD
    )


def _of_one_search(
    cloud_PD: Float[Array, "P D"], count: int, subsamples: int
) -> tuple[Neighbours, Neighbours]:
    x_PD, (original_P, copies_P, equal_P) = centred(cloud_PD), copies(cloud_PD)
    square_P, index_P = squares(x_PD), jnp.arange(len(x_PD))
    size = len(x_PD) // subsamples
    part_P, start_P = index_P // size, index_P // size * size
    own_P = _firsts_of_parts(original_P, index_P, part_P, subsamples)[original_P, part_P]
    own_equal_P = _firsts_of_parts(equal_P, index_P, part_P, subsamples)[equal_P, part_P]
    own_copies_P, own_equals_P = (
        jnp.zeros_like(of_P).at[of_P].add(1)[of_P] for of_P in (own_P, own_equal_P)
    )
    proposed, (place_PC, beyond_P) = propose_few(
        x_PD, square_P, jnp.stack([original_P, own_P]), count, subsamples
    )
    index_PC = jnp.where(place_PC < size, place_PC + start_P[:, None], len(x_PD))
    # than all points propose, where subsamples are small
    fewer = proposed[0].shape[1] - index_PC.shape[1]
    proposed_own = jnp.pad(index_PC, ((0, 0), (0, fewer)), constant_values=len(x_PD)), beyond_P
    of_all, of_own = (jnp.zeros_like(part_P), original_P, proposed), (part_P, own_P, proposed_own)
    # in a loop, which is compiled once
    both = jax.tree.map(lambda *x: jnp.stack(x), of_all, of_own)
    nearest_2PC = jax.lax.map(lambda task: measured(cloud_PD, square_P, *task, count), both)
    of_copies = Copies(original_P, copies_P, equal_P)
    whole = neighbours_of(square_P, of_copies, jax.tree.map(lambda x: x[0], nearest_2PC))

    def parts(x_P: Array) -> Array:
        return x_P.reshape(subsamples, -1, *x_P.shape[1:])

    distance_PC, index_PC = (x[1] for x in nearest_2PC)
    index_PC = jnp.where(distance_PC < jnp.inf, index_PC - start_P[:, None], 0)
    about_own_mean_PD = (parts(x_PD) - parts(x_PD).mean(axis=1, keepdims=True)).reshape(x_PD.shape)
    own = Neighbours(
        distance_PC, index_PC, own_P - start_P, own_P == index_P, own_copies_P, own_equals_P, None
    )
    mean_norm_S = jnp.sqrt(parts(squares(about_own_mean_PD))).mean(axis=1)
    return whole, jax.tree.map(parts, own)._replace(mean_norm=mean_norm_S)


def _firsts_of_parts(
    original_P: Int[Array, " P"], index_P: Int[Array, " P"], part_P: Int[Array, " P"], parts: int
) -> Int[Array, "P S"]:
    """Of the copies of each first of all, the least index in every part, the number of points where
    none is.
    """
    return jnp.full((len(original_P), parts), len(original_P)).at[original_P, part_P].min(index_P)


def neighbours_among(
    cloud_PD: Float[AnyArray, "P D"], neighbours: Neighbours, left_P: Bool[AnyArray, " P"]
) -> Neighbours:
    """The two nearest of every point among the points that are left, from SPARE or more that were
    searched among all.

    Shapes: P points of width D, their neighbours, who is left -> neighbours of those left, of which
    `first_P` stand for their duplicates; the counts of duplicates and the mean norm stay those of
    the whole cloud. Exact, and as if the others had never been there: a point of whose SPARE
    nearest fewer than two are left is compared with all. So it costs a small part of a search where
    few are left out, and many times a search where most are.
    """
    neighbours.check_searched(SPARE)
    original_P = neighbours.original_P
    # of duplicates, if one is
    left_P = jnp.zeros_like(neighbours.first_P).at[original_P].max(jnp.asarray(left_P))
    distance_PC, index_PC = neighbours.distance_PC[:, :SPARE], neighbours.index_PC[:, :SPARE]
    distance_PC = jnp.where(left_P[index_PC], distance_PC, jnp.inf)
    unsure_P = (
        left_P
        & ((distance_PC < jnp.inf).sum(axis=1) < 2)
        & (neighbours.distance_PC[:, SPARE - 1] < jnp.inf)
    )
    distance_PC, index_PC = nearest_of(distance_PC, index_PC, 2)
    among_P = jnp.where(left_P, 0, -1)
    distance_PC, index_PC = compared_with_all(
        jnp.asarray(cloud_PD, jnp.float32), among_P, unsure_P, distance_PC, index_PC
    )
    distance_PC, index_PC = distance_PC[original_P], index_PC[original_P]
    return neighbours._replace(distance_PC=distance_PC, index_PC=index_PC, first_P=left_P)


def neighbours_in_subsets(
    cloud_PD: Float[AnyArray, "P D"], neighbours: Neighbours, factor: int
) -> Neighbours:
    """The two nearest of every point in its own of the disjoint subsets cloud[i::factor], read off
    those among all.

    Shapes: P points of width D, and neighbours of theirs, 2 or more -> arrays (factor, P // factor,
    ...): the P mod factor last points are of no subset. A duplicate counts where no copy of it
    comes before it in the subset. Indices are those of the whole cloud, and so are the counts of
    duplicates and the mean norm. Exact: a point of which fewer than two neighbours are of its
    subset is compared with all of that. With 8 neighbours for each subset these are one point in
    400; with as many as there are subsets, most.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    points, kept = len(cloud_PD), len(cloud_PD) // factor * factor
    original_P, index_P = neighbours.original_P, jnp.arange(points)
    subset_P = index_P % factor
    inside_P = jnp.where(index_P < kept, index_P, points)
    first_PS = _firsts_of_parts(original_P, inside_P, subset_P, factor)
    stands_for_P = first_PS[original_P, subset_P]
    first_P = stands_for_P == index_P
    in_subset_PC = first_PS.ravel()[neighbours.index_PC * factor + subset_P[:, None]]
    there_PC = (in_subset_PC < points) & (neighbours.distance_PC < jnp.inf)
    distance_PC, index_PC = nearest_of(
        jnp.where(there_PC, neighbours.distance_PC, jnp.inf), in_subset_PC, 2
    )
    unsure_P = first_P & (distance_PC[:, 1] == jnp.inf) & (neighbours.distance_PC[:, -1] < jnp.inf)
    among_P = jnp.where(first_P, subset_P, -1)
    distance_PC, index_PC = compared_with_all(cloud_PD, among_P, unsure_P, distance_PC, index_PC)
    distance_PC, index_PC = distance_PC[stands_for_P], index_PC[stands_for_P]
    of_subsets = neighbours._replace(
        distance_PC=distance_PC, index_PC=index_PC, first_P=first_P, mean_norm=None
    )
    cut = jax.tree.map(
        lambda x: jnp.moveaxis(x[:kept].reshape(kept // factor, factor, *x.shape[1:]), 1, 0),
        of_subsets,
    )
    return cut._replace(mean_norm=jnp.full(factor, neighbours.mean_norm))
