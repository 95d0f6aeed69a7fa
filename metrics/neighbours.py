"""The nearest neighbours of every point of a cloud, found once and shared by all that is read from them.

The duplicates rule. Copies of a point say nothing about the dimension, but r1 = 0 breaks every formula. Leaving out
the points with r1 = 0 would keep only what occurs once: of a character model's embeddings, the rarest characters.
So neighbours are sought among the *distinct* points, each counted once; copies are counted and reported. Points that a
network would make equal but for the rounding of float32 (the same first character of two causal windows; with rotary
positions, a run of one character at the start of a window) are not copies, but the distance between them is rounding,
and they have no ratio.

Exact. The Gram matrix proposes candidates, with a bound on the distance of all others; where its rounding could hide a
neighbour among those, the point is compared with every other by subtraction. So neighbours do not depend on how many
are asked for, and near-copies (equal characters at equal places, early in training) cannot crowd each other out.

Letters here: Q points and padding, C candidates of a point, S chunks of A points, B points of a block, which is one
chunk or two, L pairs of blocks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int, UInt

from metrics.cloud import centred

FEW = 4  # up to so many neighbours, the search multiplies each pair of blocks once and selects by passes
CHUNK = 512  # points told apart by the low bits of a key, a power of 2
LANES = 128  # minima that a chunk is first reduced to, each of every LANES-th of its points; divides CHUNK
ROWS = 128  # of the distance matrix that exist at once, where many neighbours are searched
GATHERED = 2**20  # coordinates of candidates that exist at once
TOGETHER = 8  # points compared with all others at once
ROUNDING = 2e-6  # of |x|: nearer is rounding. A dozen layers leave up to 1e-6; true neighbours are 1e-3 apart
INFINITY = np.uint32(0x7F800000)  # the bits of float32 inf: finite distances lie below, NaN above
LAST = np.uint32(0xFFFFFFFF)


class Neighbours(NamedTuple):
    """The neighbours of every point among the distinct points of its cloud; copies of a point have the same ones."""

    distance_PC: Float[Array, "P C"]  # ascending; inf where there is none
    index_PC: Int[Array, "P C"]  # the neighbour, the first of its copies; without meaning where there is none
    first_P: Bool[Array, " P"]  # the first of its copies: stands for them all
    copies_P: Int[Array, " P"]  # how many points of the cloud are equal to this one, itself included
    rounding_P: Float[Array, " P"]  # below it a distance is rounding: ROUNDING of |x_i|
    mean_norm: Float[Array, ""]  # mean |x_i - mean(x)|, the unit of LLM-Microscope's threshold

    @property
    def r1_P(self) -> Float[Array, " P"]:
        """Distance to the nearest."""
        return self.distance_PC[:, 0]

    @property
    def r2_P(self) -> Float[Array, " P"]:
        """Distance to the second nearest."""
        return self.distance_PC[:, 1]

    @property
    def nearest_copies_P(self) -> Int[Array, " P"]:
        """How many points are equal to the nearest, itself included."""
        return self.copies_P[self.index_PC[:, 0]]

    def check_searched(self, count: int) -> None:
        """Raise ValueError where fewer than `count` neighbours were searched: an index past the end is clamped."""
        searched = self.distance_PC.shape[-1]
        if searched < count:
            raise ValueError(
                f"{count} neighbours are needed, {searched} were searched: ask nearest_neighbours for more"
            )

    def usable(self) -> Bool[Array, " P"]:
        """Distinct points with two neighbours at finite distances above rounding: those with a ratio r2/r1."""
        return self.first_P & (self.r1_P > 0) & (self.r1_P >= self.rounding_P) & (self.r2_P < jnp.inf)

    def duplicates(self) -> Int[Array, ""]:
        """How many points are copies of an earlier one."""
        return (~self.first_P).sum()

    def dropped(self) -> Int[Array, ""]:
        """How many distinct points have no ratio: next to another but for rounding; all, of one or two; not finite."""
        return (self.first_P & ~self.usable()).sum()


def nearest_neighbours(cloud_PD: Float[Array, "P D"], count: int = 2) -> Neighbours:
    """The `count` (at least 2) nearest of every point among the distinct points, by Euclidean distance.

    Shapes: P points of width D -> P x count distances and indices, and the counts of copies; of the P x P distances a
    block exists at a time. Units: those of x. The Gram matrix of the centred cloud ranks the points, but its float32
    differences are too rough to use as distances: those of the best candidates (up to FEW neighbours, 4 more in all and
    1 more in each run of 512 points; beyond, 6 more in all) are computed again by subtraction, on the points as given.
    Where the nearest of the others could be nearer than the last neighbour, by the rounding of its Gram distance, the
    point is compared with all others by subtraction: at worst P x P x D subtractions, a dozen times the whole search.
    Points are equal when all their float32 coordinates are. Where fewer than `count` other distinct points exist: inf.
    A non-finite coordinate, or squares beyond float32: inf.
    """
    points, width = cloud_PD.shape
    cloud_PD = cloud_PD.astype(jnp.float32)
    # larger blocks of products are fewer steps, but leave the caches of a CPU
    block = min(CHUNK if points <= 16 * CHUNK else 2 * CHUNK, -(-points // LANES) * LANES)
    padding = -points % block
    x_QD = jnp.pad(centred(cloud_PD), ((0, padding), (0, 0)))
    # some points at a time, here and in the hashes: a sum over a whole cloud first writes the squares of it all
    square_P, norm_P = jax.lax.map(
        lambda i: (jnp.square(x_QD[i]).sum(), jnp.linalg.norm(cloud_PD[i])),
        jnp.arange(points),
        batch_size=min(ROWS, points),
    )
    original_P, copies_P = originals(cloud_PD)
    first_P = original_P == jnp.arange(points)
    ranked_Q = jnp.pad(jnp.where(first_P, square_P, jnp.inf), (0, padding), constant_values=jnp.inf)
    search = _in_pairs(x_QD, ranked_Q, count, block) if count <= FEW else _in_rows(x_QD, ranked_Q, count)
    candidate_PC, beyond_P = (found_Q[:points] for found_Q in search)
    distance_PC, index_PC = _by_subtraction(cloud_PD, candidate_PC)
    narrow = ((0, 0), (0, max(count - index_PC.shape[1], 0)))
    distance_PC = jnp.pad(distance_PC[:, :count], narrow, constant_values=jnp.inf)
    index_PC = jnp.pad(index_PC[:, :count], narrow)
    unsure_P = first_P & (beyond_P - _rounding(square_P, distance_PC[:, -1], width) <= jnp.square(distance_PC[:, -1]))
    distance_PC, index_PC = _compared_with_all(cloud_PD, ranked_Q[:points], unsure_P, distance_PC, index_PC)
    distance_PC, index_PC = distance_PC[original_P], index_PC[original_P]
    return Neighbours(distance_PC, index_PC, first_P, copies_P, ROUNDING * norm_P, jnp.sqrt(square_P).mean())


def _rounding(square_P: Float[Array, " P"], distance_P: Float[Array, " P"], width: int) -> Float[Array, " P"]:
    """How far the Gram distance, squared, of a point at most so far away can be from its true one.

    |x|^2 + |y|^2 - 2 x'y, where |y| <= |x| + distance, is rounded by up to (|x| + |y|)^2 2^-23 times .05 to .8 sqrt(D)
    on clouds of every kind, 2 for D = 1: the bound is twice that. In theory D could stand for sqrt(D).
    """
    return np.float32(max(width, 16) ** 0.5 * 2.0**-22) * jnp.square(2.0 * jnp.sqrt(square_P) + distance_P)


def _in_pairs(
    x_QD: Float[Array, "Q D"], square_Q: Float[Array, " Q"], count: int, block: int
) -> tuple[Int[Array, "Q C"], Float[Array, " Q"]]:
    """Candidates of every point, nearest first, and a bound that the squared Gram distance of no other point is below.

    Q where there is no candidate, inf where there is no other. A point of infinite square has and is none.

    The matrix of distances is symmetric: the upper triangle of its blocks is multiplied, and each block read twice,
    for the points of its columns and for those of its rows. What is kept of every chunk of 512 points are the keys of
    the nearest: the bits of a squared distance, which are ordered as the distances are, with the place in the chunk
    written over the lowest 9. So minima bring their indices along, and no two keys of a chunk are equal.
    """
    padded = x_QD.shape[0]
    candidates, chunk = count + 1, min(CHUNK, block)  # of each chunk; a pass for each is what a search costs
    first_L, second_L = (jnp.asarray(block * number_L, jnp.int32) for number_L in np.triu_indices(padded // block))

    def add_pair(pair: Array, key_SKQ: Array) -> Array:
        i, j = first_L[pair], second_L[pair]
        x_BD, y_BD = (jax.lax.dynamic_slice_in_dim(x_QD, start, block) for start in (i, j))
        x_B, y_B = (jax.lax.dynamic_slice_in_dim(square_Q, start, block) for start in (i, j))
        gram_BB = jnp.matmul(x_BD, y_BD.T, precision=Precision.HIGHEST)
        near_BB = x_B[:, None] + y_B[None] - 2.0 * gram_BB
        near_BB = jnp.where((i == j) & jnp.eye(block, dtype=bool), jnp.inf, near_BB)
        bits_BB = jax.lax.bitcast_convert_type(jnp.maximum(near_BB, 0.0), jnp.uint32) & ~np.uint32(CHUNK - 1)
        of_rows_SKB, of_columns_SKB = (_nearest_of_chunks(bits_BB, chunk, candidates, axis) for axis in (1, 0))
        key_SKQ = jax.lax.dynamic_update_slice(key_SKQ, of_rows_SKB, (j // chunk, 0, i))
        return jax.lax.dynamic_update_slice(key_SKQ, of_columns_SKB, (i // chunk, 0, j))

    key_SKQ = jnp.full((padded // chunk, candidates, padded), LAST)
    return _unpacked(jax.lax.fori_loop(0, len(first_L), add_pair, key_SKQ), chunk, count + 4)


def _nearest_of_chunks(bits_BB: UInt[Array, "B B"], chunk: int, count: int, axis: int) -> UInt[Array, "S K B"]:
    """Keys of the `count` nearest of every chunk along one axis, for each place on the other axis.

    One pass over the block finds the least key of each lane, which is every LANES-th point of a chunk. The `count`
    least of a chunk lie in the `count` lanes of least minima: of a key in any other lane, those minima are all smaller.
    """
    block, items = bits_BB.shape[0], chunk // LANES
    place_B = jnp.arange(block, dtype=jnp.uint32) % chunk
    if axis == 0:
        lane_SLB = (bits_BB | place_B[:, None]).reshape(-1, items, LANES, block).min(axis=1)
    else:
        lane_SLB = jnp.moveaxis((bits_BB | place_B[None]).reshape(block, -1, items, LANES).min(axis=2), 0, 2)
    lane_SLB = jax.lax.optimization_barrier(lane_SLB)  # or XLA computes the least of the lanes from the block again
    lane_SKB = _smallest(lane_SLB, count, axis=1) % LANES
    item_M = LANES * jnp.arange(items, dtype=jnp.uint32)
    place_SCB = (lane_SKB[:, :, None] + item_M[None, None, :, None]).reshape(-1, count * items, block)
    index_SCB = place_SCB + chunk * jnp.arange(len(place_SCB), dtype=jnp.uint32)[:, None, None]
    other_SCB = jnp.broadcast_to(jnp.arange(block, dtype=jnp.uint32)[None, None], index_SCB.shape)
    where = (index_SCB, other_SCB) if axis == 0 else (other_SCB, index_SCB)
    key_SCB = bits_BB.at[where].get(mode="promise_in_bounds") | place_SCB
    return _smallest(jax.lax.optimization_barrier(key_SCB), count, axis=1)


def _smallest(key: Array, count: int, axis: int) -> Array:
    """The `count` smallest of different keys along an axis, ascending: a pass for each, which vectorises."""
    found = [key.min(axis=axis, keepdims=True)]
    for _ in range(count - 1):
        found.append(jnp.where(key > found[-1], key, LAST).min(axis=axis, keepdims=True))
    return jnp.concatenate(found, axis)


def _unpacked(key_SKQ: UInt[Array, "S K Q"], chunk: int, most: int) -> tuple[Int[Array, "Q C"], Float[Array, " Q"]]:
    """Of the nearest of every chunk, the `most` nearest of all, as indices, and what bounds the rest of all chunks.

    Keys of two chunks can be equal. What a chunk did not keep is farther than the last that it kept.
    """
    chunks, candidates, padded = key_SKQ.shape
    key_NQ = key_SKQ.reshape(chunks * candidates, padded)
    number_N1 = jnp.arange(len(key_NQ), dtype=jnp.int32)[:, None]
    index_CQ = []
    for _ in range(min(most, len(key_NQ))):
        least_Q = key_NQ.min(axis=0)
        number_Q = jnp.where(key_NQ == least_Q[None], number_N1, len(key_NQ)).min(axis=0)
        key_NQ = jnp.where(number_N1 == number_Q[None], LAST, key_NQ)
        index_Q = number_Q // candidates * chunk + (least_Q & (CHUNK - 1)).astype(jnp.int32)
        index_CQ.append(jnp.where(least_Q < INFINITY, index_Q, padded))
    beyond_Q = jnp.minimum(key_NQ.min(axis=0), key_SKQ[:, -1].min(axis=0)) & ~np.uint32(CHUNK - 1)
    beyond_Q = jax.lax.bitcast_convert_type(jnp.minimum(beyond_Q, INFINITY), jnp.float32)
    return jnp.stack(index_CQ, axis=1), beyond_Q


def _in_rows(
    x_QD: Float[Array, "Q D"], square_Q: Float[Array, " Q"], count: int
) -> tuple[Int[Array, "Q C"], Float[Array, " Q"]]:
    """The same from whole rows of the distance matrix, some at a time: for more neighbours than passes are worth."""
    padded = x_QD.shape[0]

    def of_point(i: Array) -> tuple[Array, Array]:
        gram_Q = jnp.matmul(x_QD[i], x_QD.T, precision=Precision.HIGHEST)
        near_Q = (square_Q - 2.0 * gram_Q).at[i].set(jnp.inf)
        negative_C, index_C = jax.lax.top_k(-near_Q, min(count + 6, padded))
        there_C = negative_C > -jnp.inf  # NaN fails the comparison
        # not negative_C[-1]: of which XLA makes a sort of the whole row on a CPU, 8 times as slow
        beyond = jnp.where(there_C.all(), square_Q[i] - negative_C.min(), jnp.inf)
        return jnp.where(there_C, index_C, padded), beyond

    return jax.lax.map(of_point, jnp.arange(padded), batch_size=min(ROWS, padded))


def _by_subtraction(
    cloud_PD: Float[Array, "P D"], candidate_PC: Int[Array, "P C"]
) -> tuple[Float[Array, "P C"], Int[Array, "P C"]]:
    """Distances to the candidates, ascending, and their indices: inf and 0 where there is none."""
    points, width = cloud_PD.shape

    def of_point(of: tuple[Array, Array]) -> Array:
        i, index_C = of
        return jnp.where(index_C < points, _distances(cloud_PD[i], cloud_PD[index_C]), jnp.inf)

    at_once = max(1, min(points, GATHERED // (candidate_PC.shape[1] * width)))
    distance_PC = jax.lax.map(of_point, (jnp.arange(points), candidate_PC), batch_size=at_once)
    index_PC = jnp.where(candidate_PC < points, candidate_PC, 0)
    return jax.lax.sort((distance_PC, index_PC), num_keys=1)


def _compared_with_all(
    cloud_PD: Float[Array, "P D"],
    ranked_P: Float[Array, " P"],
    unsure_P: Bool[Array, " P"],
    distance_PC: Float[Array, "P C"],
    index_PC: Int[Array, "P C"],
) -> tuple[Float[Array, "P C"], Int[Array, "P C"]]:
    """The same neighbours, those of the unsure points from their distances to all points of finite `ranked_P`."""
    points, count = distance_PC.shape
    together, kept = min(TOGETHER, points), min(count, points)
    order_P = jnp.argsort(~unsure_P)

    def of_point(i: Array) -> tuple[Array, Array]:
        finite_P = (ranked_P < jnp.inf) & (ranked_P[i] < jnp.inf)
        distance_P = jnp.where(finite_P, _distances(cloud_PD[i], cloud_PD), jnp.inf).at[i].set(jnp.inf)
        negative_C, index_C = jax.lax.top_k(-distance_P, kept)
        return -negative_C, jnp.where(negative_C > -jnp.inf, index_C, 0)

    def of_some(number: Array, found: tuple[Array, Array]) -> tuple[Array, Array]:
        # past the last of them come points that were sure, for which the same is found again
        i_A = jax.lax.dynamic_slice_in_dim(order_P, together * number, together)
        return tuple(x_PC.at[i_A, :kept].set(x_AC) for x_PC, x_AC in zip(found, jax.vmap(of_point)(i_A), strict=True))

    return jax.lax.fori_loop(0, -(-unsure_P.sum() // together), of_some, (distance_PC, index_PC))


def _distances(x_D: Float[Array, " D"], others_CD: Float[Array, "C D"]) -> Float[Array, " C"]:
    """By subtraction."""
    return jnp.sqrt(jnp.square(others_CD - x_D[None]).sum(axis=1))


def originals(cloud_PD: Float[Array, "P D"]) -> tuple[Int[Array, " P"], Int[Array, " P"]]:
    """For each point the index of the first point equal to it, and how many are equal to it.

    Equal rows are brought together by sorting 64-bit hashes of their bits: exact where distances are rounded, and
    without a sort over D columns. Two different rows of a million share a hash with a chance below 1e-7.
    """
    points, width = cloud_PD.shape
    factor_2D = jax.random.bits(jax.random.key(0), (2, width), jnp.uint32)

    def hash_of(x_D: Array) -> Array:
        bits_D = jax.lax.bitcast_convert_type(jnp.where(x_D == 0, 0.0, x_D), jnp.uint32)  # -0.0 and 0.0 are equal
        bits_D = (bits_D ^ (bits_D >> 16)) * jnp.uint32(0x7FEB352D)  # carries high bits down: bfloat16 has only those
        bits_D = bits_D ^ (bits_D >> 15)
        return (bits_D[None] * factor_2D).sum(axis=1, dtype=jnp.uint32)

    hash_2P = jax.lax.map(hash_of, cloud_PD, batch_size=min(ROWS, points)).T
    order_P = jnp.lexsort(hash_2P)  # stable, so the first of equals has the smallest index
    sorted_2P = hash_2P[:, order_P]
    starts_P = jnp.concatenate([jnp.ones(1, bool), (sorted_2P[:, 1:] != sorted_2P[:, :-1]).any(axis=0)])
    start_P = jax.lax.cummax(jnp.where(starts_P, jnp.arange(points), 0))
    original_P = jnp.zeros(points, jnp.int32).at[order_P].set(order_P[start_P].astype(jnp.int32))
    copies_P = jnp.zeros(points, jnp.int32).at[original_P].add(1)
    return original_P, copies_P[original_P]
