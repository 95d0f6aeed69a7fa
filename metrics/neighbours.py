"""The nearest neighbours of every point of a cloud, found once and shared by all that is read from them.

The duplicates rule. Copies of a point say nothing about the dimension, but r1 = 0 breaks every formula. Leaving out
the points with r1 = 0 would keep only what occurs once: of a character model's embeddings, the rarest characters.
So neighbours are sought among the *distinct* points, each counted once; copies are counted and reported.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int

from metrics.cloud import centred

BLOCK = 512  # rows of the distance matrix that exist at once
SPARE = 6  # candidates beyond those asked for, since the Gram matrix ranks near-copies roughly


class Neighbours(NamedTuple):
    """The neighbours of every point among the distinct points of its cloud; copies of a point have the same ones."""

    distance_PC: Float[Array, "P C"]  # ascending; inf where there is none
    index_PC: Int[Array, "P C"]  # the neighbour, the first of its copies; without meaning where there is none
    first_P: Bool[Array, " P"]  # the first of its copies: stands for them all
    copies_P: Int[Array, " P"]  # how many points of the cloud are equal to this one, itself included
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

    def usable(self) -> Bool[Array, " P"]:
        """Distinct points with two neighbours at positive, finite distances: those with a ratio r2/r1."""
        return self.first_P & (self.r1_P > 0) & (self.r2_P < jnp.inf)

    def duplicates(self) -> Int[Array, ""]:
        """How many points are copies of an earlier one."""
        return (~self.first_P).sum()

    def dropped(self) -> Int[Array, ""]:
        """How many distinct points have no ratio: all of one or two, or of a cloud that is not finite; else none."""
        return (self.first_P & ~self.usable()).sum()


def nearest_neighbours(cloud_PD: Float[Array, "P D"], count: int = 2) -> Neighbours:
    """The `count` (at least 2) nearest of every point among the distinct points, by Euclidean distance.

    Shapes: P points of width D -> P x count distances and indices, and the counts of copies; BLOCK rows of the P x P
    distances exist at a time. Units: those of x. The Gram matrix of the centred cloud ranks the points, but its
    float32 differences are too rough to use as distances: those of the best candidates are computed again by
    subtraction, on the points as given. Points are equal when all their float32 coordinates are. Where fewer than
    `count` other distinct points exist: inf. A non-finite coordinate: inf.
    """
    points = cloud_PD.shape[0]
    cloud_PD = cloud_PD.astype(jnp.float32)
    centred_PD = centred(cloud_PD)
    square_P = jnp.square(centred_PD).sum(axis=1)
    original_P, copies_P = _originals(cloud_PD)
    first_P = original_P == jnp.arange(points)
    rank_P = jnp.where(first_P, square_P, jnp.inf)
    candidates = min(count + SPARE, points)
    missing = max(count - candidates, 0)

    def of_point(i: Array) -> tuple[Array, Array]:
        gram_P = jnp.matmul(centred_PD[i], centred_PD.T, precision=Precision.HIGHEST)
        near_P = (rank_P - 2.0 * gram_P).at[original_P[i]].set(jnp.inf)
        negative_C, index_C = jax.lax.top_k(-near_P, candidates)
        direct_C = jnp.sqrt(jnp.square(cloud_PD[index_C] - cloud_PD[i][None]).sum(axis=1))
        # NaN fails the comparison, so that what is not finite finds no neighbour
        distance_C = jnp.where(negative_C > -jnp.inf, direct_C, jnp.inf)
        distance_C, index_C = jax.lax.sort((distance_C, index_C), num_keys=1)
        distance_C = jnp.pad(distance_C[:count], (0, missing), constant_values=jnp.inf)
        return distance_C, jnp.pad(index_C[:count], (0, missing))

    distance_PC, index_PC = jax.lax.map(of_point, jnp.arange(points), batch_size=min(BLOCK, points))
    return Neighbours(distance_PC, index_PC, first_P, copies_P, jnp.sqrt(square_P).mean())


def _originals(cloud_PD: Float[Array, "P D"]) -> tuple[Int[Array, " P"], Int[Array, " P"]]:
    """For each point the index of the first point equal to it, and how many are equal to it.

    Equal rows are brought together by sorting 64-bit hashes of their bits: exact where distances are rounded, and
    without a sort over D columns. Two different rows of a million share a hash with a chance below 1e-7.
    """
    points, width = cloud_PD.shape
    unsigned_PD = jnp.where(cloud_PD == 0, 0.0, cloud_PD)  # -0.0 and 0.0 are equal and differ in a bit
    bits_PD = jax.lax.bitcast_convert_type(unsigned_PD, jnp.uint32)
    bits_PD = (bits_PD ^ (bits_PD >> 16)) * jnp.uint32(0x7FEB352D)  # carries high bits down: bfloat16 has only those
    bits_PD = bits_PD ^ (bits_PD >> 15)
    factor_2D = jax.random.bits(jax.random.key(0), (2, width), jnp.uint32)
    hash_2P = (bits_PD[None] * factor_2D[:, None]).sum(axis=2, dtype=jnp.uint32)

    order_P = jnp.lexsort(hash_2P)  # stable, so the first of equals has the smallest index
    sorted_2P = hash_2P[:, order_P]
    starts_P = jnp.concatenate([jnp.ones(1, bool), (sorted_2P[:, 1:] != sorted_2P[:, :-1]).any(axis=0)])
    start_P = jax.lax.cummax(jnp.where(starts_P, jnp.arange(points), 0))
    original_P = jnp.zeros(points, jnp.int32).at[order_P].set(order_P[start_P].astype(jnp.int32))
    copies_P = jnp.zeros(points, jnp.int32).at[original_P].add(1)
    return original_P, copies_P[original_P]
