"""Candidates for the nearest neighbours of every point, by the Gram matrix, and a bound on all that are none.

Quick, and rough where points are close: metrics/neighbours.py measures the candidates again. The letters are its own,
with S chunks, B points of a block, which is one chunk or two, L pairs of blocks, Q points and padding.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Float, Int, UInt

from anisoscope.metrics.ascending import nearest_of
from anisoscope.metrics.selection import INFINITY, LAST, least, ordered

FEW = 4  # up to so many neighbours, the search multiplies each pair of blocks once and selects by passes
CHUNK = 512  # points told apart by the low bits of a key, a power of 2
LANES = 128  # minima that a chunk is first reduced to, each of every LANES-th of its points; divides CHUNK
SIDE = 64  # columns of the distance matrix that exist at once, where many neighbours are searched

# Indices, the number of points or above where there is none, and a bound, inf where there is no other point:
# of those proposed from all points, and of those from each point's own section.
Proposals = tuple[tuple[Int[Array, "P C"], Float[Array, " P"]], tuple[Int[Array, "P K"], Float[Array, " P"]]]


def propose(
    x_PD: Float[Array, "P D"], square_P: Float[Array, " P"], original_2P: Int[Array, "2 P"], count: int, sections: int
) -> Proposals:
    """Candidates of every point, nearest first, and a bound that the squared Gram distance of no other point is below.

    Shapes: P points of width D, centred, a multiple of `sections`; their squares, inf for those that are to be and have
    no candidates; the first point equal to each, among all and in its section -> proposals from all points, and from
    each one's section, whose indices count from its beginning; with one section both are the same. Candidates are
    firsts. Up to FEW neighbours there are 4 candidates more in all and 1 more in each run of up to 512 points; beyond,
    6 more in all. Each product is made once.
    """
    search = _from_columns if count > FEW else _from_pairs
    return search(x_PD, square_P, original_2P, count, sections)


def rounding(square_P: Float[Array, " P"], distance_P: Float[Array, " P"], width: int) -> Float[Array, " P"]:
    """How far the Gram distance, squared, of a point at most so far away can be from its true one.

    |x|^2 + |y|^2 - 2 x'y, where |y| <= |x| + distance, is rounded by up to (|x| + |y|)^2 2^-23 times .05 to .8 sqrt(D)
    on clouds of every kind, 2 for D = 1: the bound is twice that. In theory D could stand for sqrt(D).
    """
    return np.float32(max(width, 16) ** 0.5 * 2.0**-22) * jnp.square(2.0 * jnp.sqrt(square_P) + distance_P)


class _Chunks(NamedTuple):
    """Points in chunks of equal length, each of one section, with padding at the end of every section."""

    sections: int
    size: int  # points of a section
    chunks: int  # of a section
    chunk: int  # places of each, a multiple of LANES, CHUNK at most

    @property
    def section(self) -> int:
        """Places of a section."""
        return self.chunks * self.chunk

    def padded(self, x_P: Array, padding: float = 0.0) -> Array:
        widths = ((0, 0), (0, self.section - self.size), *[(0, 0)] * (x_P.ndim - 1))
        x_P = x_P.reshape(self.sections, self.size, *x_P.shape[1:])
        return jnp.pad(x_P, widths, constant_values=padding).reshape(-1, *x_P.shape[2:])

    def unpadded(self, x_Q: Array) -> Array:
        x_Q = x_Q.reshape(self.sections, self.section, *x_Q.shape[1:])
        return x_Q[:, : self.size].reshape(-1, *x_Q.shape[2:])

    def index(self, place: Array) -> Array:
        """Of the point at a place; past the last place, past the last point."""
        return place // self.section * self.size + place % self.section


def _from_pairs(
    x_PD: Float[Array, "P D"], square_P: Float[Array, " P"], original_2P: Int[Array, "2 P"], count: int, sections: int
) -> Proposals:
    """`propose` from pairs of blocks.

    Every chunk keeps the nearest firsts of its section, and of a point's own copies none: so one more than are wanted
    are enough, whichever of them are firsts of all, and a section's are read off its own chunks.
    """
    size = len(x_PD) // sections
    # larger blocks of products are fewer steps, but leave the caches of a CPU
    of_block = 1 if len(x_PD) <= 16 * CHUNK else 2
    chunks = of_block * -(-size // (of_block * CHUNK))
    of = _Chunks(sections, size, chunks, LANES * -(-size // (chunks * LANES)))
    first_2P = original_2P == jnp.arange(len(x_PD))[None]
    square_Q = of.padded(jnp.where(first_2P[1], square_P, jnp.inf), jnp.inf)
    original_Q = of.padded(original_2P[0])
    key_SKQ = _keys(of.padded(x_PD), square_Q, original_Q, count + 1, of.chunk, of_block * of.chunk)
    kept_SKQ = key_SKQ
    if sections > 1:
        place_SKQ = of.chunk * jnp.arange(len(key_SKQ))[:, None, None] + _place(key_SKQ)
        first_SKQ = of.padded(first_2P[0]).at[place_SKQ].get(mode="clip")
        kept_SKQ = jnp.where(first_SKQ, key_SKQ, LAST)
    place_QC, beyond_Q = _unpacked(kept_SKQ, key_SKQ[:, -1], of.chunk, count + 4)
    of_all = of.unpadded(of.index(place_QC)), of.unpadded(beyond_Q)
    if sections == 1:
        return of_all, of_all
    own_SSKQ = key_SKQ.reshape(sections, chunks, count + 1, sections, -1)
    own_SSKQ = own_SSKQ[jnp.arange(sections), :, :, jnp.arange(sections)]
    own = jax.vmap(lambda key_SKQ: _unpacked(key_SKQ, key_SKQ[:, -1], of.chunk, count + 4))(own_SSKQ)
    place_QC, beyond_Q = (x.reshape(-1, *x.shape[2:]) for x in own)
    return of_all, (of.unpadded(jnp.where(place_QC < of.section, place_QC, size)), of.unpadded(beyond_Q))


def _keys(
    x_QD: Float[Array, "Q D"],
    square_Q: Float[Array, " Q"],
    original_Q: Int[Array, " Q"],
    kept: int,
    chunk: int,
    block: int,
) -> UInt[Array, "S K Q"]:
    """Of every chunk the keys of the nearest to each point, ascending; none of its own copies, nor of squares of inf.

    The matrix of distances is symmetric: the upper triangle of its blocks is multiplied, and each block read twice,
    for the points of its columns and for those of its rows. Keys are the bits of a squared distance, which are ordered
    as the distances are, with the place in the chunk written over the lowest 9. So minima bring their indices along,
    and no two keys of a chunk are equal.
    """
    padded = len(x_QD)
    first_L, second_L = (jnp.asarray(block * number_L, jnp.int32) for number_L in np.triu_indices(padded // block))

    def add_pair(pair: Array, key_SKQ: Array) -> Array:
        i, j = first_L[pair], second_L[pair]
        x_BD, y_BD = (jax.lax.dynamic_slice_in_dim(x_QD, start, block) for start in (i, j))
        x_B, y_B = (jax.lax.dynamic_slice_in_dim(square_Q, start, block) for start in (i, j))
        of_x_B, of_y_B = (jax.lax.dynamic_slice_in_dim(original_Q, start, block) for start in (i, j))
        gram_BB = jnp.matmul(x_BD, y_BD.T, precision=Precision.HIGHEST)
        near_BB = x_B[:, None] + y_B[None] - 2.0 * gram_BB
        near_BB = jnp.where(of_x_B[:, None] == of_y_B[None], jnp.inf, near_BB)
        bits_BB = jax.lax.bitcast_convert_type(jnp.maximum(near_BB, 0.0), jnp.uint32) & ~np.uint32(CHUNK - 1)
        of_rows_SKB, of_columns_SKB = (_nearest_of_chunks(bits_BB, chunk, kept, axis) for axis in (1, 0))
        key_SKQ = jax.lax.dynamic_update_slice(key_SKQ, of_rows_SKB, (j // chunk, 0, i))
        return jax.lax.dynamic_update_slice(key_SKQ, of_columns_SKB, (i // chunk, 0, j))

    return jax.lax.fori_loop(0, len(first_L), add_pair, jnp.full((padded // chunk, kept, padded), LAST))


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


def _place(key: Array) -> Array:
    """In its chunk."""
    return (key & np.uint32(CHUNK - 1)).astype(jnp.int32)


def _unpacked(
    key_SKQ: UInt[Array, "S K Q"], last_SQ: UInt[Array, "S Q"], chunk: int, most: int
) -> tuple[Int[Array, "Q C"], Float[Array, " Q"]]:
    """Of the nearest of every chunk, the `most` nearest of all, as places, and what bounds the rest of all chunks.

    Keys of two chunks can be equal. What a chunk did not keep is farther than the last that it kept.
    """
    chunks, candidates, padded = key_SKQ.shape
    key_QN = key_SKQ.reshape(chunks * candidates, padded).T
    near_QN = jnp.where(key_QN < INFINITY, jax.lax.bitcast_convert_type(key_QN, jnp.float32), jnp.inf)
    kept = min(most + 1, key_QN.shape[1])
    near_QC, number_QC = nearest_of(near_QN, jnp.broadcast_to(jnp.arange(key_QN.shape[1]), key_QN.shape), kept)
    key_QC = jnp.take_along_axis(key_QN, number_QC, axis=1, mode="promise_in_bounds")
    place_QC = jnp.where(near_QC < jnp.inf, number_QC // candidates * chunk + _place(key_QC), padded)
    beyond_Q = last_SQ.min(axis=0)
    if kept > most:
        beyond_Q = jnp.minimum(beyond_Q, key_QC[:, most])
    beyond_Q = jnp.minimum(beyond_Q & ~np.uint32(CHUNK - 1), INFINITY)
    return place_QC[:, :most], jax.lax.bitcast_convert_type(beyond_Q, jnp.float32)


def _from_columns(
    x_PD: Float[Array, "P D"], square_P: Float[Array, " P"], original_2P: Int[Array, "2 P"], count: int, sections: int
) -> Proposals:
    """`propose` from whole columns of the matrix of distances, some of one section at once."""
    points, size = len(x_PD), len(x_PD) // sections
    side = min(SIDE, size)
    turns = -(-size // side)  # of each section
    ranked_2P = jnp.where(original_2P == jnp.arange(points)[None], square_P[None], jnp.inf)

    def of_some(number: Array) -> tuple:
        start, within = number // turns * size, number % turns * side
        i_A = start + jnp.minimum(within + jnp.arange(side), size - 1)  # past the section's end, its last point again
        product_PA = jnp.matmul(x_PD, x_PD[i_A].T, precision=Precision.HIGHEST)
        rest_PA = square_P[i_A][None] - 2.0 * product_PA

        def among(ranked_P: Array, rest_PA: Array, i_A: Array) -> tuple:
            key_PA = ordered(ranked_P[:, None] + rest_PA)
            key_PA = jnp.where(jnp.arange(len(key_PA))[:, None] == i_A[None], LAST, key_PA)
            return least(jax.lax.optimization_barrier(key_PA), count + 6)

        of_all = among(ranked_2P[0], rest_PA, i_A)
        if sections == 1:
            return of_all, of_all
        own_P, own_PA = (jax.lax.dynamic_slice_in_dim(x, start, size) for x in (ranked_2P[1], rest_PA))
        return of_all, among(own_P, own_PA, i_A - start)

    found = jax.lax.map(of_some, jnp.arange(sections * turns))
    return jax.tree.map(lambda x: x.reshape(sections, -1, *x.shape[2:])[:, :size].reshape(points, *x.shape[2:]), found)
