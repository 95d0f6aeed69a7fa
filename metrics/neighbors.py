"""Find the nearest neighbors of every point of a cloud, once for all metrics that read them.

Neighbors are searched among the *distinct* points (metrics/copies.py), each counted once. The Gram
matrix of the centered cloud proposes candidates, whose distances are computed again by subtraction.
Where a point that was not proposed could be nearer, by the rounding of its Gram distance, the point
is compared with all others. A are points compared with all together, X turns of a loop or blocks of
a row. docs/explanation/neighbors.md has more.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import AnyArray, Points, Scalar, centered, product
from anisoscope.metrics.copies import AT_ONCE, copies

EXTRA = 6  # candidates beyond the requested neighbors: their distances give the bound
COLUMNS = 64  # columns of the distance matrix computed at once on a CPU
ELEMENTS = 2**27  # elements of the distance matrix computed at once on an accelerator
BLOCK = 32  # numbers of a row that an accelerator represents by their maximum
# coordinates of candidates that exist at once: a core's cache holds them; an accelerator takes more
GATHERED, GATHERED_ON_ACCELERATORS = 2**17, 2**27
TOGETHER = 8  # points that are compared with all others at once
SPARE = 3  # neighbors from which the two nearest are read when some points are left out


class Neighbors(NamedTuple):
    """The neighbors of every point among the distinct points; copies have the same ones."""

    distance_PC: Float[Array, "P C"]  # ascending; inf where there is none
    # the neighbor, the first of its copies; meaningless where there is none
    index_PC: Int[Array, "P C"]
    original_P: Int[Array, " P"]  # the first of the copies of each
    first_P: Bool[Array, " P"]  # the first of its copies, which represents them all
    copies_P: Int[Array, " P"]  # number of copies of the point, itself included
    equals_P: Int[Array, " P"]  # number of exact equals, itself included
    mean_norm: Scalar  # mean |x_i - mean(x)|, the unit of LLM-Microscope's threshold

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

    def usable(self) -> Bool[Array, " P"]:
        """Mark the distinct points with two neighbors at finite distances: they have a ratio."""
        return self.first_P & (self.r1_P > 0) & (self.r2_P < jnp.inf)

    def duplicates(self) -> Int[Array, ""]:
        """Count the points that are copies of an earlier point."""
        return (~self.first_P).sum()

    def dropped(self) -> Int[Array, ""]:
        """Count the distinct points without a ratio: in clouds of one or two, or not finite."""
        return (self.first_P & ~self.usable()).sum()


def nearest_neighbors(cloud_PD: Points, count: int = 2) -> Neighbors:
    """Find the `count` nearest of every point among the distinct points, by Euclidean distance.

    inf where fewer than `count` other distinct points exist, and for a point with a coordinate that
    is not finite or a square beyond float32. Which of equally far points comes first is arbitrary.
    A count below 2: ValueError.
    """
    if count < 2:
        raise ValueError(f"count is {count}; pass 2 or more")
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    (original_P, copies_P, equal_P), x_PD = copies(cloud_PD), centered(cloud_PD)
    square_P = _squares(x_PD)
    candidate_PC, beyond_P = _propose(x_PD, square_P, original_P, count)
    first_P = original_P == jnp.arange(len(original_P))
    distance_PC, index_PC = _measure(cloud_PD, candidate_PC, count)
    last_P = distance_PC[:, -1]
    unsure_P = first_P & (
        beyond_P - rounding(square_P, last_P, cloud_PD.shape[1]) <= jnp.square(last_P)
    )
    group_P = jnp.where(first_P & (square_P < jnp.inf), 0, -1)
    nearest = _compare_with_all(cloud_PD, group_P, unsure_P, distance_PC, index_PC)
    distance_PC, index_PC = (x_PC[original_P] for x_PC in nearest)
    equals_P = jnp.zeros_like(equal_P).at[equal_P].add(1)[equal_P]
    mean_norm = jnp.sqrt(square_P).mean()
    return Neighbors(distance_PC, index_PC, original_P, first_P, copies_P, equals_P, mean_norm)


def neighbors_among(
    cloud_PD: Points, neighbors: Neighbors, left_P: Bool[AnyArray, " P"]
) -> Neighbors:
    """Find the two nearest of every point among the remaining points, as if only they existed.

    `neighbors` are those of the cloud, SPARE or more; copies and the mean norm stay those of the
    whole. A point of whose SPARE nearest fewer than two are left is compared with all.
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
    cloud_PD, group_P = jnp.asarray(cloud_PD, jnp.float32), jnp.where(left_P, 0, -1)
    distance_PC, index_PC = _compare_with_all(cloud_PD, group_P, unsure_P, distance_PC, index_PC)
    distance_PC, index_PC = distance_PC[original_P], index_PC[original_P]
    return neighbors._replace(distance_PC=distance_PC, index_PC=index_PC, first_P=left_P)


def _propose(
    x_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    original_P: Int[Array, " P"],
    count: int,
) -> tuple[Int[Array, "P _"], Float[Array, " P"]]:
    """Propose candidates for the neighbors of every point by the Gram matrix, with a bound.

    `x_PD` is centered, `square_P` inf for points that neither have nor are neighbors.

    Returns:
        Indices of C > count candidates, P where there is none; and for each point a number that no
        other point's squared Gram distance is below, inf where there is no other.
    """
    points = len(x_PD)
    kept = min(count + EXTRA, points)
    candidate_P = jnp.where(original_P == jnp.arange(points), square_P, jnp.inf)

    def propose_some(i_A: Array) -> tuple[Array, Array]:
        product_PA = jnp.matmul(x_PD, x_PD[i_A].T, precision=Precision.HIGHEST)
        near_PA = candidate_P[:, None] + (square_P[i_A][None] - 2.0 * product_PA)
        near_PA = jnp.where(jnp.arange(points)[:, None] == i_A[None], jnp.inf, near_PA)
        # rounding leaves squared distances below 0; NaN is not a distance
        near_PA = jnp.where(near_PA < jnp.inf, jnp.maximum(near_PA, 0.0), jnp.inf)
        negative_AC, place_AC = _largest(-near_PA.T, min(kept + 1, points))
        place_AC = jnp.where(negative_AC > -jnp.inf, place_AC, points)[:, :kept]
        infinite_A = jnp.full(len(negative_AC), jnp.inf)
        return place_AC, -negative_AC[:, kept] if kept < points else infinite_A

    together = COLUMNS if jax.default_backend() == "cpu" else max(COLUMNS, ELEMENTS // points)
    together = min(together, points)
    # past the end, the last point again
    i_XA = jnp.minimum(jnp.arange(-(-points // together) * together), points - 1)
    proposed = jax.lax.map(propose_some, i_XA.reshape(-1, together))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:points], proposed)


def _largest(x_AP: Float[Array, "A P"], count: int) -> tuple[Array, Array]:
    """Find the `count` largest of each row and their places, in descending order.

    On an H100 the time of `top_k` grows with all numbers. The largest lie in the `count` blocks with
    the largest maxima: it reads these maxima, and the numbers of these blocks.
    """
    rows, points = x_AP.shape
    blocks = -(-points // BLOCK)
    if jax.default_backend() == "cpu" or blocks <= 2 * count:
        return _top_k(x_AP, count)
    x_AP = jnp.pad(x_AP, ((0, 0), (0, blocks * BLOCK - points)), constant_values=-jnp.inf)
    x_AXB = x_AP.reshape(rows, blocks, BLOCK)
    block_AC = _top_k(x_AXB.max(axis=2), count)[1]
    chosen_ACB = jnp.take_along_axis(x_AXB, block_AC[:, :, None], 1, mode="promise_in_bounds")
    value_AC, place_AC = _top_k(chosen_ACB.reshape(rows, -1), count)
    block_AC = jnp.take_along_axis(block_AC, place_AC // BLOCK, 1, mode="promise_in_bounds")
    return value_AC, block_AC * BLOCK + place_AC % BLOCK


def _top_k(x_AP: Float[Array, "A P"], count: int) -> tuple[Array, Array]:
    # one barrier for each output: XLA sorts whole rows where only a slice is read
    return tuple(map(jax.lax.optimization_barrier, jax.lax.top_k(x_AP, count)))


def rounding(
    square_P: Float[Array, " P"], distance_P: Float[Array, " P"], width: int
) -> Float[Array, " P"]:
    """Bound how far a squared Gram distance can be from the true one, up to that distance.

    |x|^2 + |y|^2 - 2 x'y, |y| <= |x| + distance, is rounded by up to (|x| + |y|)^2 2^-23 times .05
    to .8 sqrt(D) on clouds of every kind, 2 for D = 1: the bound is twice that.
    """
    return np.float32(max(width, 16) ** 0.5 * 2.0**-22) * jnp.square(
        2.0 * jnp.sqrt(square_P) + distance_P
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
    group_P: Int[Array, " P"],
    unsure_P: Bool[Array, " P"],
    distance_PC: Float[Array, "P C"],
    index_PC: Int[Array, "P C"],
) -> tuple[Float[Array, "P C"], Int[Array, "P C"]]:
    """Replace neighbors of unsure points by the nearest of their group; group < 0: none."""
    points, count = distance_PC.shape
    together, kept = min(TOGETHER, points), min(count, points)

    def compare(i: Array) -> tuple[Array, Array]:
        candidate_P = (group_P == group_P[i]) & (group_P[i] >= 0)
        distance_P = jnp.sqrt(jnp.square(cloud_PD - cloud_PD[i][None]).sum(axis=1))
        distance_P = jnp.where(candidate_P, distance_P, jnp.inf).at[i].set(jnp.inf)
        negative_C, index_C = jax.lax.top_k(-distance_P, kept)
        return -negative_C, jnp.where(negative_C > -jnp.inf, index_C, 0)

    def compare_some(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        # after the last unsure points come sure ones, whose neighbors are found again unchanged
        unsure_P, *nearest = state
        i_A = jax.lax.top_k(unsure_P.astype(jnp.int32), together)[1]
        found = jax.vmap(compare)(i_A)
        distance_PC, index_PC = (
            x_PC.at[i_A, :kept].set(x_AC) for x_PC, x_AC in zip(nearest, found, strict=True)
        )
        return unsure_P.at[i_A].set(False), distance_PC, index_PC

    state = unsure_P, distance_PC, index_PC
    return jax.lax.while_loop(lambda state: state[0].any(), compare_some, state)[1:]


def _measure(
    cloud_PD: Float[Array, "P D"], candidate_PC: Int[Array, "P C"], count: int
) -> tuple[Float[Array, "P {count}"], Int[Array, "P {count}"]]:
    """Find the `count` nearest candidates by subtraction, ascending; inf and 0 past their end."""
    points, width = cloud_PD.shape
    ones_D = jnp.ones(width)

    def distances(point: tuple[Array, Array]) -> Array:
        i, index_C = point
        # a product with ones adds up what lies in the cache in half the time of a sum
        square_C = product(jnp.square(cloud_PD[index_C] - cloud_PD[i][None]), ones_D)
        return jnp.where(index_C < points, jnp.sqrt(square_C), jnp.inf)

    gathered = GATHERED if jax.default_backend() == "cpu" else GATHERED_ON_ACCELERATORS
    at_once = max(1, min(points, gathered // (candidate_PC.shape[1] * width)))
    distance_PC = jax.lax.map(distances, (jnp.arange(points), candidate_PC), batch_size=at_once)
    return _sort_nearest(distance_PC, jnp.where(candidate_PC < points, candidate_PC, 0), count)


def _squares(x_PD: Float[Array, "P D"]) -> Float[Array, " P"]:
    """Square the norm of every point."""
    if jax.default_backend() != "cpu":
        return jnp.square(x_PD).sum(axis=1)
    points = len(x_PD)  # by index: a map over the points themselves would copy them
    return jax.lax.map(
        lambda i: jnp.square(x_PD[i]).sum(), jnp.arange(points), batch_size=min(AT_ONCE, points)
    )
