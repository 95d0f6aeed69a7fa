"""The nearest neighbours of every point of a cloud, found once and shared by all that is read from
them.

`plain_neighbours` is the definition. `nearest_neighbours` finds the same in a small part of its
time, and is what everything else calls; docs/explanation/neighbours.md explains how.

The duplicates rule. Copies of a point say nothing about the dimension, but r1 = 0 breaks every
formula. Leaving out the points with r1 = 0 would keep only what occurs once: of a character model's
embeddings, the rarest characters. So neighbours are sought among the *distinct* points, each
counted once; duplicates are counted and reported. Points that a network would make equal but for
the rounding of float32 (the same first character of two causal windows; with rotary positions, a
run of one character at the start of a window) are copies too: metrics/copies.py says which.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import AnyArray, centred
from anisoscope.metrics.copies import AT_ONCE, Copies, copies
from anisoscope.metrics.fast_search import search

ROWS = 8  # of the matrix of distances that exist at once in the plain search


class Neighbours(NamedTuple):
    """The neighbours of every point among the distinct points of its cloud; duplicates have the
    same ones.
    """

    distance_PC: Float[Array, "P C"]  # ascending; inf where there is none
    # the neighbour, the first of its duplicates; without meaning where there is none
    index_PC: Int[Array, "P C"]
    original_P: Int[Array, " P"]  # the first of the copies of each
    first_P: Bool[Array, " P"]  # the first of its copies: stands for them all
    # how many points of the cloud are copies of this one, itself included
    copies_P: Int[Array, " P"]
    equals_P: Int[Array, " P"]  # how many of these have all its coordinates
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
        """How many points are copies of the nearest, itself included."""
        return self.copies_P[self.index_PC[:, 0]]

    def check_searched(self, count: int) -> None:
        """Raise ValueError where fewer than `count` neighbours were searched: an index past the end
        is clamped.
        """
        searched = self.distance_PC.shape[-1]
        if searched < count:
            raise ValueError(
                f"{count} neighbours are needed, {searched} were searched: ask nearest_neighbours for more"
            )

    def usable(self) -> Bool[Array, " P"]:
        """Distinct points with two neighbours at finite distances: those with a ratio r2/r1."""
        return self.first_P & self.measurable(2)

    def measurable(self, count: int) -> Bool[Array, " P"]:
        """Points with so many neighbours among the distinct points, at finite distances."""
        return (self.r1_P > 0) & (self.distance_PC[:, count - 1] < jnp.inf)

    def duplicates(self) -> Int[Array, ""]:
        """How many points are copies of an earlier one."""
        return (~self.first_P).sum()

    def dropped(self) -> Int[Array, ""]:
        """How many distinct points have no ratio: all, of one or two; those that are not finite."""
        return (self.first_P & ~self.usable()).sum()


def plain_neighbours(cloud_PD: Float[AnyArray, "P D"], count: int = 2) -> Neighbours:
    """The `count` (at least 2) nearest of every point among the distinct points, by Euclidean
    distance: the definition.

    Shapes: P points of width D -> P x count distances and indices, and the counts of duplicates; of
    the P x P distances ROWS rows exist at a time. Units: those of x. Every distance is that of the
    points as given, by subtraction. Which points are distinct: `copies`. Of equally far ones the
    first is nearer. Where fewer than `count` other distinct points exist: inf. A non-finite
    coordinate, or squares beyond float32: inf. `count` below 2: ValueError.
    """
    cloud_PD = _checked(cloud_PD, count)
    of_copies = copies(cloud_PD)
    original_P = of_copies.original_P
    square_P, index_P = squares(centred(cloud_PD)), jnp.arange(len(cloud_PD))
    # nobody's neighbours, and without any: the others
    candidate_P = (original_P == index_P) & (square_P < jnp.inf)

    def of_point(i: Array) -> tuple[Array, Array]:
        distance_P = jnp.sqrt(jnp.square(cloud_PD - cloud_PD[i][None]).sum(axis=1))
        among_P = candidate_P & (index_P != original_P[i]) & (square_P[i] < jnp.inf)
        negative_C, index_C = jax.lax.top_k(
            -jnp.where(among_P, distance_P, jnp.inf), min(count, len(cloud_PD))
        )
        return -negative_C, index_C

    neighbours = jax.lax.map(of_point, index_P, batch_size=min(ROWS, len(cloud_PD)))
    distance_PC, index_PC = (x_PC[original_P] for x_PC in neighbours)
    missing = ((0, 0), (0, max(count - len(cloud_PD), 0)))
    nearest = jnp.pad(distance_PC, missing, constant_values=jnp.inf), jnp.pad(index_PC, missing)
    return neighbours_of(square_P, of_copies, nearest)


def nearest_neighbours(cloud_PD: Float[AnyArray, "P D"], count: int = 2) -> Neighbours:
    """`plain_neighbours` in a small part of the time; which of equally far points is the last is
    arbitrary here.

    The Gram matrix of the centred cloud ranks the points. Its float32 differences are too rough to
    be distances: those of the best candidates are computed again by subtraction, on the points as
    given. Where the nearest of the others could be nearer than the last neighbour, by the rounding
    of its Gram distance, the point is compared with all others by subtraction: at worst P x P x D
    subtractions, as many as the definition takes.
    """
    cloud_PD = _checked(cloud_PD, count)
    of_copies = copies(cloud_PD)
    x_PD = centred(cloud_PD)
    square_P = squares(x_PD)
    return neighbours_of(
        square_P, of_copies, search(cloud_PD, x_PD, square_P, of_copies.original_P, count)
    )


def _checked(cloud_PD: Float[AnyArray, "P D"], count: int) -> Float[Array, "P D"]:
    if count < 2:
        raise ValueError(f"{count} neighbours are asked for; two or more have a ratio")
    return jnp.asarray(cloud_PD, jnp.float32)


def neighbours_of(
    square_P: Float[Array, " P"],
    of_copies: Copies,
    nearest: tuple[Float[Array, "P C"], Int[Array, "P C"]],
) -> Neighbours:
    """What a search leaves: distances and indices, with what else is known of each point."""
    original_P, copies_P, equal_P = of_copies
    first_P = original_P == jnp.arange(len(original_P))
    equals_P = jnp.zeros_like(equal_P).at[equal_P].add(1)[equal_P]
    return Neighbours(*nearest, original_P, first_P, copies_P, equals_P, jnp.sqrt(square_P).mean())


def squares(x_PD: Float[Array, "P D"]) -> Float[Array, " P"]:
    """|x_i|^2 of every point."""
    points = len(x_PD)  # by index: a map over the points themselves would copy them
    return jax.lax.map(
        lambda i: jnp.square(x_PD[i]).sum(), jnp.arange(points), batch_size=min(AT_ONCE, points)
    )
