"""Find the nearest neighbors of every point of a cloud, once for all metrics that read them.

Neighbors are searched among the *distinct* points (metrics/copies.py), each counted once. The Gram
matrix of the centered cloud proposes candidates, whose distances are computed again by subtraction.
Where a point that was not proposed could be nearer, by the rounding of its Gram distance, the point
is compared with all others. A are points compared with all together, G groupings of the points, X
groups, rows of all groupings, or blocks of a row. docs/explanation/neighbors.md has more.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int, UInt

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    centered,
    map_blocks,
    only,
    product,
)
from anisoscope.metrics.copies import COPIED_AT_ONCE, Copies, copies

EXTRA = 6  # candidates beyond the requested neighbors: their distances give the bound
COLUMNS_AT_ONCE = 64  # columns of the distance matrix computed at once on a CPU
ELEMENTS = 2**27  # elements of the distance matrix computed at once on an accelerator
ROW_BLOCK = 32  # numbers of a row that an accelerator represents by their maximum
# coordinates of candidates that exist at once: a core's cache holds them; an accelerator takes more
GATHERED, GATHERED_ON_ACCELERATORS = 2**17, 2**27
TOGETHER = 8  # points that are compared with all others at once
SPARE = 3  # neighbors from which the two nearest are read when some points are left out


class Neighbors(NamedTuple):
    """The neighbors of every point among the distinct points; copies have the same ones."""

    distance_PC: Float[Array, "*G P C"]  # ascending; inf where there is none
    # the neighbor, the first of its copies; meaningless where there is none
    index_PC: Int[Array, "*G P C"]
    original_P: Int[Array, "*G P"]  # the first of the copies of each
    first_P: Bool[Array, "*G P"]  # the first of its copies, which represents them all
    copies_P: Int[Array, "*G P"]  # number of copies of the point, itself included
    equals_P: Int[Array, "*G P"]  # number of exact equals, itself included
    norm_P: Float[Array, "*G P"]  # |x_i - mean(x)|
    member_P: Bool[Array, "*G P"]  # the point is in the cloud, or in the part of it that is read

    @property
    def mean_norm(self) -> Scalar:
        """Mean |x_i - mean(x)|, the unit of LLM-Microscope's threshold."""
        return jnp.where(self.member_P, self.norm_P, 0.0).sum() / self.member_P.sum()

    @property
    def r1_P(self) -> Float[Array, " P"]:
        """Distance to the nearest neighbor."""
        return self.distance_PC[:, 0]

    @property
    def r2_P(self) -> Float[Array, " P"]:
        """Distance to the second nearest neighbor."""
        return self.distance_PC[:, 1]

    def check_searched(self, count: int) -> None:
        """Raise ValueError where fewer neighbors were searched: JAX clamps an index past it."""
        searched = self.distance_PC.shape[-1]
        if searched < count:
            raise ValueError(
                f"{count} neighbors are needed, {searched} were searched; "
                "pass a larger count to nearest_neighbors"
            )

    def nearest(self, count: int) -> "Neighbors":
        """Keep the `count` nearest of each point."""
        return self._replace(
            distance_PC=self.distance_PC[..., :count], index_PC=self.index_PC[..., :count]
        )

    def usable(self) -> Bool[Array, " P"]:
        """Mark the distinct points with two neighbors at finite distances: they have a ratio."""
        return self.first_P & (self.r1_P > 0) & (self.r2_P < jnp.inf)

    def duplicates(self) -> Int[Array, ""]:
        """Count the points that are copies of an earlier point."""
        return (self.member_P & ~self.first_P).sum()

    def part(self, member_P: Bool[Array, " P"]) -> "Neighbors":
        """Take the part of the points whose neighbors are among these points alone."""
        member_P = jnp.broadcast_to(member_P, self.first_P.shape)
        return self._replace(first_P=self.first_P & member_P, member_P=self.member_P & member_P)

    def dropped(self) -> Int[Array, ""]:
        """Count the distinct points without a ratio: in clouds of one or two, or not finite."""
        return (self.first_P & ~self.usable()).sum()


class Nearest(NamedTuple):
    """A few nearest neighbors of each point: enough for an overlap, and small enough to store."""

    # the neighbors, each the first of its copies, in the smallest sufficient integer type
    index_PC: UInt[Array, "*N P C"]
    usable_P: Bool[Array, "*N P"]  # the first of its copies, with C neighbors
    first_P: Bool[Array, "*N P"]  # the first of its copies, with a neighbor

    def part(self, member_P: Bool[Array, " P"]) -> "Nearest":
        """Take the part of the points whose neighbors are among these points alone."""
        return self._replace(usable_P=self.usable_P & member_P, first_P=self.first_P & member_P)


def nearest_neighbors(
    cloud_PD: Points, count: int = 2, valid_P: Bool[AnyArray, " P"] | None = None
) -> Neighbors:
    """Find the `count` nearest of every point among the distinct points, by Euclidean distance.

    inf where fewer than `count` other distinct points exist, and for a point with a coordinate that
    is not finite or a square beyond float32. Which of equally far points comes first is arbitrary.
    A count below 2: ValueError. Points that are not valid (None: all are) come last, and count as
    none.
    """
    found = copies(jnp.asarray(cloud_PD, jnp.float32), valid_P)
    valid_P = jnp.ones(len(found.equal_P), bool) if valid_P is None else jnp.asarray(valid_P)
    group_1P = jnp.where(valid_P, 0, -1)[None]
    searched = neighbors_in_groups(cloud_PD, count, group_1P, found, 1)
    return jax.tree.map(lambda x_1P: x_1P[0], searched)


def neighbors_in_groups(
    cloud_PD: Points,
    count: int,
    group_GP: Int[AnyArray, "G P"],
    found: Copies,
    groups: int,
    points: Int[Array, ""] | None = None,
) -> Neighbors:
    """Find the nearest of every point among the points of its own group, for each of G groupings.

    One pass over the blocks of the Gram matrix serves all groupings.

    Args:
        cloud_PD: The points.
        count: The number of neighbors, 2 or more, or ValueError.
        group_GP: The group of each point, below 0 for none.
        found: The copies of all points.
        groups: The largest number of groups.
        points: Number of the points that are searched; None: all. The rest must be in no group.

    Returns:
        Neighbors with a first axis for the groupings.
    """
    if count < 2:
        raise ValueError(f"count is {count}; pass 2 or more")
    label_GP = jnp.asarray(group_GP)
    member_GP = label_GP >= 0
    cloud_PD = only(jnp.asarray(cloud_PD, jnp.float32), member_GP.any(axis=0))
    x_PD = centered(cloud_PD, member_GP.any(axis=0))
    square_P = _squares(x_PD)
    count_all = jax.vmap(jax.vmap(count_in_groups, (None, 0, None)), (0, None, None))
    first_2GP, count_2GP = count_all(jnp.stack(found), label_GP, groups)
    original_GP, (copies_GP, equals_GP) = first_2GP[0], count_2GP
    first_GP = member_GP & (original_GP == jnp.arange(len(x_PD))[None])
    # a point without finite distances has no neighbors, and is none
    group_GP = jnp.where(first_GP & (square_P < jnp.inf)[None], label_GP, -1)
    candidate_GPC, beyond_GP = _propose(x_PD, square_P, group_GP, count, points)
    distance_GPC, index_GPC = _measure(cloud_PD, candidate_GPC, count, points)
    last_GP = distance_GPC[:, :, -1]
    unsure_GP = first_GP & (
        beyond_GP - rounding(square_P[None], last_GP, cloud_PD.shape[1]) <= jnp.square(last_GP)
    )
    distance_GPC = jnp.where(member_GP[..., None], distance_GPC, jnp.inf)
    nearest = _compare_with_all(cloud_PD, group_GP, unsure_GP, distance_GPC, index_GPC)
    distance_GPC, index_GPC = (
        jax.vmap(lambda x_PC, original_P: x_PC[original_P])(x_GPC, original_GP) for x_GPC in nearest
    )
    norm_GP = jax.vmap(_norms_in_groups, (None, None, 0, None))(x_PD, square_P, label_GP, groups)
    return Neighbors(
        *(distance_GPC, index_GPC, original_GP, first_GP),
        *(copies_GP, equals_GP, norm_GP, member_GP),
    )


def count_in_groups(
    original_P: Int[Array, " P"], group_P: Int[Array, " P"], groups: int
) -> tuple[Int[Array, " P"], Int[Array, " P"]]:
    """Find the first of the points of a group that have one original, and count them."""
    points = len(original_P)
    place_P = jnp.maximum(group_P, 0) * points + original_P
    first_X = jnp.full(groups * points, points)
    first_X = first_X.at[place_P].min(jnp.where(group_P >= 0, jnp.arange(points), points))
    count_X = jnp.zeros(groups * points, jnp.int32).at[place_P].add(group_P >= 0)
    first_P = jnp.where(group_P >= 0, first_X[place_P], jnp.arange(points))
    return first_P.astype(jnp.int32), count_X[place_P]


def _norms_in_groups(
    x_PD: Float[Array, "P D"], square_P: Float[Array, " P"], group_P: Int[Array, " P"], groups: int
) -> Float[Array, " P"]:
    """Compute distances from the mean of the own group, of a centered cloud."""
    if groups == 1:
        return jnp.sqrt(square_P)
    member_XP = jnp.float32(group_P[None] == jnp.arange(groups)[:, None])
    mean_XD = product(member_XP, x_PD) / jnp.maximum(member_XP.sum(axis=1), 1.0)[:, None]
    along_P = (product(x_PD, mean_XD.T) * member_XP.T).sum(axis=1)
    mean_P = product(jnp.square(mean_XD).sum(axis=1), member_XP)
    return jnp.sqrt(jnp.maximum(square_P - 2 * along_P + mean_P, 0.0))


def neighbors_among(
    cloud_PD: Points,
    neighbors: Neighbors,
    left_P: Bool[AnyArray, " P"],
    group_P: Int[AnyArray, " P"] | int = 0,
) -> Neighbors:
    """Find the two nearest of every point among the remaining points, as if only they existed.

    `neighbors` are those of the cloud, SPARE or more; copies and the mean norm stay those of the
    whole. A point of whose SPARE nearest fewer than two are left is compared with all. Neighbors in
    groups need the group of each point.
    """
    neighbors.check_searched(SPARE)
    original_P = neighbors.original_P
    # a point remains if any of its copies does
    left_P = jnp.zeros_like(neighbors.first_P).at[original_P].max(jnp.asarray(left_P))
    distance_PC, index_PC = neighbors.distance_PC[:, :SPARE], neighbors.index_PC[:, :SPARE]
    distance_PC = jnp.where(left_P[index_PC], distance_PC, jnp.inf)
    unsure_P = (
        left_P
        & ((distance_PC < jnp.inf).sum(axis=1) < 2)
        & (neighbors.distance_PC[:, SPARE - 1] < jnp.inf)
    )
    distance_PC, index_PC = _sort_nearest(distance_PC, index_PC, 2)
    cloud_PD, group_P = jnp.asarray(cloud_PD, jnp.float32), jnp.where(left_P, group_P, -1)
    arrays = (x[None] for x in (group_P, unsure_P, distance_PC, index_PC))
    distance_PC, index_PC = (x[0][original_P] for x in _compare_with_all(cloud_PD, *arrays))
    return neighbors._replace(distance_PC=distance_PC, index_PC=index_PC, first_P=left_P)


def _propose(
    x_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    group_GP: Int[Array, "G P"],
    count: int,
    searched: Int[Array, ""] | None,
) -> tuple[Int[Array, "G P _"], Float[Array, "G P"]]:
    """Propose candidates for the neighbors of every point by the Gram matrix, with a bound.

    `x_PD` is centered; points of no group neither have nor are neighbors.

    Returns:
        Indices of C > count candidates, P where there is none; and for each point a number that no
        other point's squared Gram distance is below, inf where there is no other.
    """
    points = len(x_PD)
    kept = min(count + EXTRA, points)

    def propose_some(i_A: Array) -> tuple[Array, Array]:
        product_PA = jnp.matmul(x_PD, x_PD[i_A].T, precision=Precision.HIGHEST)
        near_PA = square_P[:, None] + (square_P[i_A][None] - 2.0 * product_PA)
        near_PA = jnp.where(jnp.arange(points)[:, None] == i_A[None], jnp.inf, near_PA)
        # rounding leaves squared distances below 0; NaN is not a distance
        near_PA = jnp.where(near_PA < jnp.inf, jnp.maximum(near_PA, 0.0), jnp.inf)
        found = [], []
        for group_P in group_GP:
            same_PA = (group_P[:, None] == group_P[i_A][None]) & (group_P >= 0)[:, None]
            negative_AC, place_AC = _largest(
                -jnp.where(same_PA, near_PA, jnp.inf).T, min(kept + 1, points)
            )
            place_AC = jnp.where(negative_AC > -jnp.inf, place_AC, points)[:, :kept]
            infinite_A = jnp.full(len(negative_AC), jnp.inf)
            found[0].append(place_AC)
            found[1].append(-negative_AC[:, kept] if kept < points else infinite_A)
        return tuple(jnp.stack(parts, axis=1) for parts in found)

    together = (
        COLUMNS_AT_ONCE
        if jax.default_backend() == "cpu"
        else max(COLUMNS_AT_ONCE, ELEMENTS // points)
    )
    proposed = map_blocks(propose_some, points, min(together, points), searched)
    return tuple(jnp.swapaxes(x, 0, 1) for x in proposed)


def _largest(x_AP: Float[Array, "A P"], count: int) -> tuple[Array, Array]:
    """Find the `count` largest of each row and their places, in descending order.

    On an H100 the time of `top_k` grows with all numbers. The largest lie in the `count` blocks with
    the largest maxima: it reads these maxima, and the numbers of these blocks.
    """
    rows, points = x_AP.shape
    blocks = -(-points // ROW_BLOCK)
    if jax.default_backend() == "cpu" or blocks <= 2 * count:
        return _top_k(x_AP, count)
    x_AP = jnp.pad(x_AP, ((0, 0), (0, blocks * ROW_BLOCK - points)), constant_values=-jnp.inf)
    x_AXB = x_AP.reshape(rows, blocks, ROW_BLOCK)
    block_AC = _top_k(x_AXB.max(axis=2), count)[1]
    chosen_ACB = jnp.take_along_axis(x_AXB, block_AC[:, :, None], 1, mode="promise_in_bounds")
    value_AC, place_AC = _top_k(chosen_ACB.reshape(rows, -1), count)
    block_AC = jnp.take_along_axis(block_AC, place_AC // ROW_BLOCK, 1, mode="promise_in_bounds")
    return value_AC, block_AC * ROW_BLOCK + place_AC % ROW_BLOCK


def _top_k(x_AP: Float[Array, "A P"], count: int) -> tuple[Array, Array]:
    # one barrier for each output: XLA sorts whole rows where only a slice is read
    return tuple(map(jax.lax.optimization_barrier, jax.lax.top_k(x_AP, count)))


def rounding(
    square: Float[Array, "..."], distance: Float[Array, "..."], width: int
) -> Float[Array, "..."]:
    """Bound how far a squared Gram distance can be from the true one, up to that distance.

    |x|^2 + |y|^2 - 2 x'y, |y| <= |x| + distance, is rounded by up to (|x| + |y|)^2 2^-23 times .05
    to .8 sqrt(D) on clouds of every kind, 2 for D = 1: the bound is twice that.
    """
    return np.float32(max(width, 16) ** 0.5 * 2.0**-22) * jnp.square(
        2.0 * jnp.sqrt(square) + distance
    )


def _sort_nearest(
    distance_PC: Float[Array, "P C"], index_PC: Int[Array, "P C"], count: int
) -> tuple[Float[Array, "P {count}"], Int[Array, "P {count}"]]:
    """Sort the `count` smallest distances; inf and index 0 fill missing places."""
    some = min(count, distance_PC.shape[1])
    negative_PC, place_PC = jax.lax.top_k(-distance_PC, some)
    index_PC = jnp.take_along_axis(index_PC, place_PC, axis=1, mode="promise_in_bounds")
    missing = ((0, 0), (0, count - some))
    return jnp.pad(-negative_PC, missing, constant_values=jnp.inf), jnp.pad(index_PC, missing)


def _compare_with_all(
    cloud_PD: Float[Array, "P D"],
    group_GP: Int[Array, "G P"],
    unsure_GP: Bool[Array, "G P"],
    distance_GPC: Float[Array, "G P C"],
    index_GPC: Int[Array, "G P C"],
) -> tuple[Float[Array, "G P C"], Int[Array, "G P C"]]:
    """Replace neighbors of unsure points by the nearest of their group; group < 0: none."""
    points, count = distance_GPC.shape[1:]
    together, kept = min(TOGETHER, points), min(count, points)

    def compare(place: Array) -> tuple[Array, Array]:
        group_P, i = group_GP[place // points], place % points
        candidate_P = (group_P == group_P[i]) & (group_P[i] >= 0)
        distance_P = jnp.sqrt(jnp.square(cloud_PD - cloud_PD[i][None]).sum(axis=1))
        distance_P = jnp.where(candidate_P, distance_P, jnp.inf).at[i].set(jnp.inf)
        negative_C, index_C = jax.lax.top_k(-distance_P, kept)
        return -negative_C, jnp.where(negative_C > -jnp.inf, index_C, 0)

    def compare_some(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        # after the last unsure points come sure ones, whose neighbors are found again unchanged
        unsure_X, *nearest = state
        place_A = jax.lax.top_k(unsure_X.astype(jnp.int32), together)[1]
        found = jax.vmap(compare)(place_A)
        distance_XC, index_XC = (
            x_XC.at[place_A, :kept].set(x_AC) for x_XC, x_AC in zip(nearest, found, strict=True)
        )
        return unsure_X.at[place_A].set(False), distance_XC, index_XC

    state = unsure_GP.ravel(), *(x.reshape(-1, count) for x in (distance_GPC, index_GPC))
    nearest = jax.lax.while_loop(lambda state: state[0].any(), compare_some, state)[1:]
    return tuple(x_XC.reshape(distance_GPC.shape) for x_XC in nearest)


def _measure(
    cloud_PD: Float[Array, "P D"],
    candidate_GPC: Int[Array, "G P C"],
    count: int,
    searched: Int[Array, ""] | None,
) -> tuple[Float[Array, "G P {count}"], Int[Array, "G P {count}"]]:
    """Find the `count` nearest candidates by subtraction, ascending; inf and 0 past their end."""
    points, width = cloud_PD.shape
    index_PX = jnp.swapaxes(candidate_GPC, 0, 1).reshape(points, -1)
    ones_D = jnp.ones(width)

    def distances(i_A: Array) -> Array:
        index_AX = index_PX[i_A]
        # a product with ones adds up what lies in the cache in half the time of a sum
        square_AX = product(jnp.square(cloud_PD[index_AX] - cloud_PD[i_A][:, None]), ones_D)
        return jnp.where(index_AX < points, jnp.sqrt(square_AX), jnp.inf)

    gathered = GATHERED if jax.default_backend() == "cpu" else GATHERED_ON_ACCELERATORS
    at_once = max(1, min(points, gathered // (index_PX.shape[1] * width)))
    distance_PX = map_blocks(distances, points, at_once, searched)
    distance_PX = jnp.where(index_PX < points, distance_PX, jnp.inf)  # also where none was searched
    distance_GPC = jnp.swapaxes(distance_PX.reshape(points, len(candidate_GPC), -1), 0, 1)
    candidate_GPC = jnp.where(candidate_GPC < points, candidate_GPC, 0)
    return jax.vmap(_sort_nearest, (0, 0, None))(distance_GPC, candidate_GPC, count)


def _squares(x_PD: Float[Array, "P D"]) -> Float[Array, " P"]:
    """Square the norm of every point."""
    if jax.default_backend() != "cpu":
        return jnp.square(x_PD).sum(axis=1)
    points = len(x_PD)  # by index: a map over the points themselves would copy them
    return jax.lax.map(
        lambda i: jnp.square(x_PD[i]).sum(),
        jnp.arange(points),
        batch_size=min(COPIED_AT_ONCE, points),
    )
