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

Letters here: C candidates or neighbours of a point, A points that are worked on at once.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.ascending import by_subtraction, nearest_of
from anisoscope.metrics.candidates import propose, rounding
from anisoscope.metrics.cloud import AnyArray, centred

AT_ONCE = 128  # points: a sum over the whole cloud first writes the squares of it all
TOGETHER = 8  # points compared with all others at once
SPARE = 3  # neighbours from which the two nearest are read when some points are left out
ROUNDING = 2e-6  # of |x|: nearer is rounding. A dozen layers leave up to 1e-6; true neighbours are 1e-3 apart


class Neighbours(NamedTuple):
    """The neighbours of every point among the distinct points of its cloud; copies of a point have the same ones."""

    distance_PC: Float[Array, "P C"]  # ascending; inf where there is none
    index_PC: Int[Array, "P C"]  # the neighbour, the first of its copies; without meaning where there is none
    original_P: Int[Array, " P"]  # the first point equal to each
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
        return self.first_P & self.measurable(2)

    def measurable(self, count: int) -> Bool[Array, " P"]:
        """Points with so many neighbours among the distinct points, at finite distances above rounding."""
        farthest_P = self.distance_PC[:, count - 1]
        return (self.r1_P > 0) & (self.r1_P >= self.rounding_P) & (farthest_P < jnp.inf)

    def duplicates(self) -> Int[Array, ""]:
        """How many points are copies of an earlier one."""
        return (~self.first_P).sum()

    def dropped(self) -> Int[Array, ""]:
        """How many distinct points have no ratio: next to another but for rounding; all, of one or two; not finite."""
        return (self.first_P & ~self.usable()).sum()


def nearest_neighbours(cloud_PD: Float[AnyArray, "P D"], count: int = 2) -> Neighbours:
    """The `count` (at least 2) nearest of every point among the distinct points, by Euclidean distance.

    Shapes: P points of width D -> P x count distances and indices, and the counts of copies; of the P x P distances a
    block exists at a time. Units: those of x. The Gram matrix of the centred cloud ranks the points, but its float32
    differences are too rough to use as distances: those of the best candidates are computed again by subtraction, on
    the points as given. Where the nearest of the others could be nearer than the last neighbour, by the rounding of its
    Gram distance, the point is compared with all others by subtraction: at worst P x P x D subtractions, some 20 times
    the whole search. Points are equal when all their float32 coordinates are. Where fewer than `count` other distinct
    points exist: inf. A non-finite coordinate, or squares beyond float32: inf. `count` below 2: ValueError.
    """
    _check_count(count)
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    x_PD, originals_2P = centred(cloud_PD), originals(cloud_PD)
    square_P = _squares(x_PD)
    proposed, _ = propose(x_PD, square_P, jnp.stack([originals_2P[0]] * 2), count, 1)
    found = _measured(cloud_PD, square_P, jnp.zeros(len(x_PD), jnp.int32), originals_2P, proposed, count)
    return _neighbours(cloud_PD, square_P, originals_2P, found)


def neighbours_in_sections(
    cloud_PD: Float[AnyArray, "P D"], count: int, sections: int
) -> tuple[Neighbours, Neighbours]:
    """`nearest_neighbours` of the cloud, and of each of so many runs of P/sections points by themselves: (section, …).

    Shapes, units and bad input as there. Each product serves both.
    """
    _check_count(count)
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)

    x_PD, originals_2P = centred(cloud_PD), originals(cloud_PD)
    square_P, index_P = _squares(x_PD), jnp.arange(len(x_PD))
    size = len(x_PD) // sections
    section_P, start_P = index_P // size, index_P // size * size
    own_P = _firsts_of_parts(originals_2P[0], index_P, section_P, sections)[originals_2P[0], section_P]
    own_2P = own_P, jnp.zeros_like(own_P).at[own_P].add(1)[own_P]
    proposed, (place_PC, beyond_P) = propose(x_PD, square_P, jnp.stack([originals_2P[0], own_P]), count, sections)
    index_PC = jnp.where(place_PC < size, place_PC + start_P[:, None], len(x_PD))
    fewer = proposed[0].shape[1] - index_PC.shape[1]  # than all points propose, where sections are small
    proposed_own = jnp.pad(index_PC, ((0, 0), (0, fewer)), constant_values=len(x_PD)), beyond_P
    of_all, of_own = (jnp.zeros_like(section_P), originals_2P, proposed), (section_P, own_2P, proposed_own)
    both = jax.tree.map(lambda *x: jnp.stack(x), of_all, of_own)  # in a loop, which is compiled once
    found_2PC = jax.lax.map(lambda given: _measured(cloud_PD, square_P, *given, count), both)
    whole = _neighbours(cloud_PD, square_P, originals_2P, jax.tree.map(lambda x: x[0], found_2PC))

    def parts(x_P: Array) -> Array:
        return x_P.reshape(sections, -1, *x_P.shape[1:])

    distance_PC, index_PC = (x[1] for x in found_2PC)
    index_PC = jnp.where(distance_PC < jnp.inf, index_PC - start_P[:, None], 0)
    about_own_mean_PD = (parts(x_PD) - parts(x_PD).mean(axis=1, keepdims=True)).reshape(x_PD.shape)
    own = Neighbours(distance_PC, index_PC, own_P - start_P, own_P == index_P, own_2P[1], whole.rounding_P, None)
    mean_norm_S = jnp.sqrt(parts(_squares(about_own_mean_PD))).mean(axis=1)
    return whole, jax.tree.map(parts, own)._replace(mean_norm=mean_norm_S)


def _check_count(count: int) -> None:
    if count < 2:
        raise ValueError(f"{count} neighbours are asked for; two or more have a ratio")


def _firsts_of_parts(
    original_P: Int[Array, " P"], index_P: Int[Array, " P"], part_P: Int[Array, " P"], parts: int
) -> Int[Array, "P F"]:
    """Of the points equal to each first of all, the least index in every part, the number of points where none is."""
    return jnp.full((len(original_P), parts), len(original_P)).at[original_P, part_P].min(index_P)


def _squares(x_PD: Float[Array, "P D"]) -> Float[Array, " P"]:
    points = len(x_PD)  # by index: a map over the points themselves would copy them
    return jax.lax.map(lambda i: jnp.square(x_PD[i]).sum(), jnp.arange(points), batch_size=min(AT_ONCE, points))


def _measured(
    cloud_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    section_P: Int[Array, " P"],
    originals_2P: tuple[Int[Array, " P"], Int[Array, " P"]],
    proposed: tuple[Int[Array, "P C"], Float[Array, " P"]],
    count: int,
) -> tuple[Float[Array, "P K"], Int[Array, "P K"]]:
    """The neighbours among the proposed ones, or among all of the same section where these may not do.

    `square_P` as the proposals had.
    """
    (original_P, _), (candidate_PC, beyond_P) = originals_2P, proposed
    first_P = original_P == jnp.arange(len(original_P))
    distance_PC, index_PC = by_subtraction(cloud_PD, candidate_PC, count)
    last_P = distance_PC[:, -1]
    unsure_P = first_P & (beyond_P - rounding(square_P, last_P, cloud_PD.shape[1]) <= jnp.square(last_P))
    among_P = jnp.where(first_P & (square_P < jnp.inf), section_P, -1)
    distance_PC, index_PC = _compared_with_all(cloud_PD, among_P, unsure_P, distance_PC, index_PC)
    return distance_PC[original_P], index_PC[original_P]


def _neighbours(
    cloud_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    originals_2P: tuple[Int[Array, " P"], Int[Array, " P"]],
    found: tuple[Float[Array, "P C"], Int[Array, "P C"]],
) -> Neighbours:
    (original_P, copies_P), (distance_PC, index_PC) = originals_2P, found
    first_P = original_P == jnp.arange(len(original_P))
    rounding_P, mean_norm = ROUNDING * jnp.sqrt(_squares(cloud_PD)), jnp.sqrt(square_P).mean()
    return Neighbours(distance_PC, index_PC, original_P, first_P, copies_P, rounding_P, mean_norm)


def neighbours_among(
    cloud_PD: Float[AnyArray, "P D"], neighbours: Neighbours, left_P: Bool[AnyArray, " P"]
) -> Neighbours:
    """The two nearest of every point among the points that are left, from SPARE or more that were searched among all.

    Shapes: P points of width D, their neighbours, who is left -> neighbours of those left, of which `first_P` stand for
    their copies; the counts of copies and the mean norm stay those of the whole cloud. Exact, and as if the others had
    never been there: a point of whose SPARE nearest fewer than two are left is compared with all. So it costs a small
    part of a search where few are left out, and many times a search where most are.
    """
    neighbours.check_searched(SPARE)
    original_P = neighbours.original_P
    left_P = jnp.zeros_like(neighbours.first_P).at[original_P].max(jnp.asarray(left_P))  # of copies, if one is
    distance_PC, index_PC = neighbours.distance_PC[:, :SPARE], neighbours.index_PC[:, :SPARE]
    distance_PC = jnp.where(left_P[index_PC], distance_PC, jnp.inf)
    unsure_P = left_P & ((distance_PC < jnp.inf).sum(axis=1) < 2) & (neighbours.distance_PC[:, SPARE - 1] < jnp.inf)
    distance_PC, index_PC = nearest_of(distance_PC, index_PC, 2)
    among_P = jnp.where(left_P, 0, -1)
    distance_PC, index_PC = _compared_with_all(
        jnp.asarray(cloud_PD, jnp.float32), among_P, unsure_P, distance_PC, index_PC
    )
    distance_PC, index_PC = distance_PC[original_P], index_PC[original_P]
    return neighbours._replace(distance_PC=distance_PC, index_PC=index_PC, first_P=left_P)


def neighbours_in_subsets(cloud_PD: Float[AnyArray, "P D"], neighbours: Neighbours, factor: int) -> Neighbours:
    """The two nearest of every point in its own of the disjoint subsets cloud[i::factor], read off those among all.

    Shapes: P points of width D, and neighbours of theirs, 2 or more -> arrays (factor, P // factor, ...): the P mod
    factor last points are of no subset. A copy counts where no point equal to it comes before it in the subset.
    Indices are those of the whole cloud, and so are the counts of copies and the mean norm. Exact: a point of which
    fewer than two neighbours are of its subset is compared with all of that. With 8 neighbours for each subset these
    are one point in 400; with as many as there are subsets, most.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    points, kept = len(cloud_PD), len(cloud_PD) // factor * factor
    original_P, index_P = neighbours.original_P, jnp.arange(points)
    subset_P = index_P % factor
    inside_P = jnp.where(index_P < kept, index_P, points)
    first_PF = _firsts_of_parts(original_P, inside_P, subset_P, factor)
    stands_for_P = first_PF[original_P, subset_P]
    first_P = stands_for_P == index_P
    in_subset_PC = first_PF.ravel()[neighbours.index_PC * factor + subset_P[:, None]]
    place_PC = jnp.arange(in_subset_PC.shape[1])[None]
    there_PC = (in_subset_PC < points) & (neighbours.distance_PC < jnp.inf)
    found = []
    for _ in range(2):
        place_P1 = jnp.argmax(there_PC, axis=1, keepdims=True)
        taken_P1 = [
            jnp.take_along_axis(x_PC, place_P1, axis=1) for x_PC in (there_PC, neighbours.distance_PC, in_subset_PC)
        ]
        found.append((jnp.where(taken_P1[0], taken_P1[1], jnp.inf), taken_P1[2]))
        there_PC &= place_PC != place_P1
    distance_PC, index_PC = (jnp.concatenate(pair, axis=1) for pair in zip(*found, strict=True))
    unsure_P = first_P & (distance_PC[:, 1] == jnp.inf) & (neighbours.distance_PC[:, -1] < jnp.inf)
    among_P = jnp.where(first_P, subset_P, -1)
    distance_PC, index_PC = _compared_with_all(cloud_PD, among_P, unsure_P, distance_PC, index_PC)
    distance_PC, index_PC = distance_PC[stands_for_P], index_PC[stands_for_P]
    of_subsets = neighbours._replace(distance_PC=distance_PC, index_PC=index_PC, first_P=first_P, mean_norm=None)
    cut = jax.tree.map(lambda x: jnp.moveaxis(x[:kept].reshape(kept // factor, factor, *x.shape[1:]), 1, 0), of_subsets)
    return cut._replace(mean_norm=jnp.full(factor, neighbours.mean_norm))


def _compared_with_all(
    cloud_PD: Float[Array, "P D"],
    among_P: Int[Array, " P"],
    unsure_P: Bool[Array, " P"],
    distance_PC: Float[Array, "P C"],
    index_PC: Int[Array, "P C"],
) -> tuple[Float[Array, "P C"], Int[Array, "P C"]]:
    """The same neighbours, those of the unsure points from all with the same number in `among_P`; below 0: nobody's."""
    points, count = distance_PC.shape
    together, kept = min(TOGETHER, points), min(count, points)
    order_P = jnp.argsort(~unsure_P)

    def of_point(i: Array) -> tuple[Array, Array]:
        candidate_P = (among_P == among_P[i]) & (among_P[i] >= 0)
        distance_P = jnp.where(candidate_P, _distances(cloud_PD[i], cloud_PD), jnp.inf).at[i].set(jnp.inf)
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
