"""The nearest neighbours of every point of a cloud, found once and shared by all that is read from them.

`plain_neighbours` is the definition. `nearest_neighbours` finds the same in a small part of its time, and is what
everything else calls; docs/explanation/neighbours.md explains how.

The duplicates rule. Duplicates of a point say nothing about the dimension, but r1 = 0 breaks every formula. Leaving out
the points with r1 = 0 would keep only what occurs once: of a character model's embeddings, the rarest characters.
So neighbours are sought among the *distinct* points, each counted once; duplicates are counted and reported. Points
that a network would make equal but for the rounding of float32 (the same first character of two causal windows; with
rotary positions, a run of one character at the start of a window) are not duplicates, but the distance between them is
rounding, and they have no ratio.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import AnyArray, centred
from anisoscope.metrics.fast_search import search

AT_ONCE = 128  # points: a sum over the whole cloud first writes the squares of it all
ROWS = 8  # of the matrix of distances that exist at once in the plain search
ROUNDING = 2e-6  # of |x|: nearer is rounding. A dozen layers leave up to 1e-6; true neighbours are 1e-3 apart


class Neighbours(NamedTuple):
    """The neighbours of every point among the distinct points of its cloud; duplicates have the same ones."""

    distance_PC: Float[Array, "P C"]  # ascending; inf where there is none
    index_PC: Int[Array, "P C"]  # the neighbour, the first of its duplicates; without meaning where there is none
    original_P: Int[Array, " P"]  # the first point equal to each
    first_P: Bool[Array, " P"]  # the first of its duplicates: stands for them all
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
        return self.first_P & self.measurable(2)

    def measurable(self, count: int) -> Bool[Array, " P"]:
        """Points with so many neighbours among the distinct points, at finite distances above rounding."""
        farthest_P = self.distance_PC[:, count - 1]
        return (self.r1_P > 0) & (self.r1_P >= self.rounding_P) & (farthest_P < jnp.inf)

    def duplicates(self) -> Int[Array, ""]:
        """How many points are equal to an earlier one."""
        return (~self.first_P).sum()

    def dropped(self) -> Int[Array, ""]:
        """How many distinct points have no ratio: next to another but for rounding; all, of one or two; not finite."""
        return (self.first_P & ~self.usable()).sum()


def plain_neighbours(cloud_PD: Float[AnyArray, "P D"], count: int = 2) -> Neighbours:
    """The `count` (at least 2) nearest of every point among the distinct points, by Euclidean distance: the definition.

    Shapes: P points of width D -> P x count distances and indices, and the counts of duplicates; of the P x P distances
    ROWS rows exist at a time. Units: those of x. Every distance is that of the points as given, by subtraction. Points
    are equal when all their float32 coordinates are; of equally far ones the first is nearer. Where fewer than `count`
    other distinct points exist: inf. A non-finite coordinate, or squares beyond float32: inf. `count` below 2:
    ValueError.
    """
    cloud_PD = _checked(cloud_PD, count)
    original_P, copies_P = originals(cloud_PD)
    square_P, index_P = squares(centred(cloud_PD)), jnp.arange(len(cloud_PD))
    candidate_P = (original_P == index_P) & (square_P < jnp.inf)  # nobody's neighbours, and without any: the others

    def of_point(i: Array) -> tuple[Array, Array]:
        distance_P = jnp.sqrt(jnp.square(cloud_PD - cloud_PD[i][None]).sum(axis=1))
        among_P = candidate_P & (index_P != original_P[i]) & (square_P[i] < jnp.inf)
        negative_C, index_C = jax.lax.top_k(-jnp.where(among_P, distance_P, jnp.inf), min(count, len(cloud_PD)))
        return -negative_C, index_C

    distance_PC, index_PC = jax.lax.map(of_point, index_P, batch_size=min(ROWS, len(cloud_PD)))
    missing = ((0, 0), (0, max(count - len(cloud_PD), 0)))
    nearest = jnp.pad(distance_PC, missing, constant_values=jnp.inf), jnp.pad(index_PC, missing)
    return neighbours_of(cloud_PD, square_P, (original_P, copies_P), nearest)


def nearest_neighbours(cloud_PD: Float[AnyArray, "P D"], count: int = 2) -> Neighbours:
    """`plain_neighbours` in a small part of the time; which of equally far points is the last is arbitrary here.

    The Gram matrix of the centred cloud ranks the points. Its float32 differences are too rough to be distances: those
    of the best candidates are computed again by subtraction, on the points as given. Where the nearest of the others
    could be nearer than the last neighbour, by the rounding of its Gram distance, the point is compared with all others
    by subtraction: at worst P x P x D subtractions, as many as the definition takes.
    """
    cloud_PD = _checked(cloud_PD, count)
    originals_2P = originals(cloud_PD)
    x_PD = centred(cloud_PD)
    square_P = squares(x_PD)
    return neighbours_of(cloud_PD, square_P, originals_2P, search(cloud_PD, x_PD, square_P, originals_2P[0], count))


def _checked(cloud_PD: Float[AnyArray, "P D"], count: int) -> Float[Array, "P D"]:
    if count < 2:
        raise ValueError(f"{count} neighbours are asked for; two or more have a ratio")
    return jnp.asarray(cloud_PD, jnp.float32)


def neighbours_of(
    cloud_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    originals_2P: tuple[Int[Array, " P"], Int[Array, " P"]],
    nearest: tuple[Float[Array, "P C"], Int[Array, "P C"]],
) -> Neighbours:
    """What a search leaves: distances and indices, with what else is known of each point."""
    (original_P, copies_P), (distance_PC, index_PC) = originals_2P, nearest
    first_P = original_P == jnp.arange(len(original_P))
    rounding_P, mean_norm = ROUNDING * jnp.sqrt(squares(cloud_PD)), jnp.sqrt(square_P).mean()
    return Neighbours(distance_PC, index_PC, original_P, first_P, copies_P, rounding_P, mean_norm)


def squares(x_PD: Float[Array, "P D"]) -> Float[Array, " P"]:
    """|x_i|^2 of every point."""
    points = len(x_PD)  # by index: a map over the points themselves would copy them
    return jax.lax.map(lambda i: jnp.square(x_PD[i]).sum(), jnp.arange(points), batch_size=min(AT_ONCE, points))


def originals(cloud_PD: Float[AnyArray, "P D"]) -> tuple[Int[Array, " P"], Int[Array, " P"]]:
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

    hash_2P = jax.lax.map(hash_of, cloud_PD, batch_size=min(AT_ONCE, points)).T
    order_P = jnp.lexsort(hash_2P)  # stable, so the first of equals has the smallest index
    sorted_2P = hash_2P[:, order_P]
    starts_P = jnp.concatenate([jnp.ones(1, bool), (sorted_2P[:, 1:] != sorted_2P[:, :-1]).any(axis=0)])
    start_P = jax.lax.cummax(jnp.where(starts_P, jnp.arange(points), 0))
    original_P = jnp.zeros(points, jnp.int32).at[order_P].set(order_P[start_P].astype(jnp.int32))
    copies_P = jnp.zeros(points, jnp.int32).at[original_P].add(1)
    return original_P, copies_P[original_P]
