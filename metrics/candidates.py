"""Candidates for the nearest neighbours of every point, by the Gram matrix, and a bound on all that
are none.

Quick, and rough where points are close: metrics/fast_search.py measures the candidates again. Here
Q are the points of a cloud cut into I chunks, with padding behind each of S subsamples; A are the
points of a chunk or of some columns, X lanes, blocks or turns of a loop.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Float, Int, UInt

from anisoscope.metrics.selection import INFINITY, LAST, least, ordered

# up to so many neighbours, the search multiplies each pair of chunks once and selects by passes
FEW = 4
CHUNK = 512  # points told apart by the low bits of a key, a power of 2
# minima that a chunk is first reduced to, each of every LANES-th of its points; divides CHUNK
LANES = 128
SIDE = 64  # columns of the distance matrix that exist at once, where many neighbours are searched

# Indices, the number of points or above where there is none, and a bound, inf where there is no
# other point.
Proposed = tuple[Int[Array, "P _"], Float[Array, " P"]]


def propose(
    x_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    original_P: Int[Array, " P"],
    count: int,
) -> Proposed:
    """Candidates of every point, nearest first, and a bound that the squared Gram distance of no
    other point is below.

    Shapes: P points of width D, centred; their squares, inf for those that are to be and have no
    candidates; the first point equal to each. Candidates are firsts. Up to FEW neighbours there are
    4 candidates more in all and 1 more in each chunk; beyond, 6 more in all.
    """
    if count > FEW:
        return _from_columns(x_PD, square_P, original_P, count)
    return propose_few(x_PD, square_P, jnp.stack([original_P] * 2), count, 1)[0]


class _Chunks(NamedTuple):
    """Points in chunks of equal length, each of one subsample, with padding at the end of every
    subsample.
    """

    subsamples: int
    size: int  # points of a subsample
    chunks: int  # of a subsample
    chunk: int  # places of each, a multiple of LANES, CHUNK at most

    @property
    def places(self) -> int:
        """Of a subsample."""
        return self.chunks * self.chunk

    def padded(self, x_P: Array, padding: float = 0.0) -> Array:
        widths = ((0, 0), (0, self.places - self.size), *[(0, 0)] * (x_P.ndim - 1))
        x_P = x_P.reshape(self.subsamples, self.size, *x_P.shape[1:])
        return jnp.pad(x_P, widths, constant_values=padding).reshape(-1, *x_P.shape[2:])

    def unpadded(self, x_Q: Array) -> Array:
        x_Q = x_Q.reshape(self.subsamples, self.places, *x_Q.shape[1:])
        return x_Q[:, : self.size].reshape(-1, *x_Q.shape[2:])

    def index(self, place: Array) -> Array:
        """Of the point at a place; past the last place, past the last point."""
        return place // self.places * self.size + place % self.places


def propose_few(
    x_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    original_2P: Int[Array, "2 P"],
    count: int,
    subsamples: int,
) -> tuple[Proposed, Proposed]:
    """Proposals from all points, and from each one's subsample alone, whose indices count from its
    beginning.

    Shapes: as of `propose`; P a multiple of `subsamples`, which are runs of consecutive points; the
    first point equal to each, among all and in its subsample. Each pair of chunks is multiplied
    once. Every chunk keeps the nearest firsts of its subsample, and of a point's own duplicates
    none: so one more than are wanted are enough, whichever of them are firsts of all, and a
    subsample's are read off its own chunks.
    """
    size = len(x_PD) // subsamples
    chunks = -(-size // CHUNK)
    of = _Chunks(subsamples, size, chunks, LANES * -(-size // (chunks * LANES)))
    first_2P = original_2P == jnp.arange(len(x_PD))[None]
    square_Q = of.padded(jnp.where(first_2P[1], square_P, jnp.inf), jnp.inf)
    original_Q = of.padded(original_2P[0])
    key_ICQ = _keys(of.padded(x_PD), square_Q, original_Q, count + 1, of.chunk)
    kept_ICQ = key_ICQ
    if subsamples > 1:
        place_ICQ = of.chunk * jnp.arange(len(key_ICQ))[:, None, None] + _place(key_ICQ)
        first_ICQ = of.padded(first_2P[0]).at[place_ICQ].get(mode="clip")
        kept_ICQ = jnp.where(first_ICQ, key_ICQ, LAST)
    place_QC, beyond_Q = _unpacked(kept_ICQ, key_ICQ[:, -1], of.chunk, count + 4)
    of_all = of.unpadded(of.index(place_QC)), of.unpadded(beyond_Q)
    if subsamples == 1:
        return of_all, of_all
    key_SICSQ = key_ICQ.reshape(subsamples, chunks, count + 1, subsamples, -1)
    own_SICQ = key_SICSQ[jnp.arange(subsamples), :, :, jnp.arange(subsamples)]
    own = jax.vmap(lambda key_ICQ: _unpacked(key_ICQ, key_ICQ[:, -1], of.chunk, count + 4))(
        own_SICQ
    )
    place_QC, beyond_Q = (x.reshape(-1, *x.shape[2:]) for x in own)
    return of_all, (
        of.unpadded(jnp.where(place_QC < of.places, place_QC, size)),
        of.unpadded(beyond_Q),
    )


def _keys(
    x_QD: Float[Array, "Q D"],
    square_Q: Float[Array, " Q"],
    original_Q: Int[Array, " Q"],
    kept: int,
    chunk: int,
) -> UInt[Array, "I {kept} Q"]:
    """Of every chunk the keys of the nearest to each point, ascending; none of its own duplicates,
    nor of squares inf.

    The matrix of distances is symmetric: the upper triangle of its blocks is multiplied, and each
    block read twice, for the points of its columns and for those of its rows. Keys are the bits of
    a squared distance, which are ordered as the distances are, with the place in the chunk written
    over the lowest 9. So minima bring their indices along, and no two keys of a chunk are equal.
    """
    padded = len(x_QD)
    row_X, column_X = (
        jnp.asarray(chunk * number_X, jnp.int32) for number_X in np.triu_indices(padded // chunk)
    )

    def add_pair(pair: Array, key_ICQ: Array) -> Array:
        i, j = row_X[pair], column_X[pair]
        x_AD, y_AD = (jax.lax.dynamic_slice_in_dim(x_QD, start, chunk) for start in (i, j))
        x_A, y_A = (jax.lax.dynamic_slice_in_dim(square_Q, start, chunk) for start in (i, j))
        of_x_A, of_y_A = (
            jax.lax.dynamic_slice_in_dim(original_Q, start, chunk) for start in (i, j)
        )
        gram_AA = jnp.matmul(x_AD, y_AD.T, precision=Precision.HIGHEST)
        near_AA = x_A[:, None] + y_A[None] - 2.0 * gram_AA
        near_AA = jnp.where(of_x_A[:, None] == of_y_A[None], jnp.inf, near_AA)
        bits_AA = jax.lax.bitcast_convert_type(jnp.maximum(near_AA, 0.0), jnp.uint32) & ~np.uint32(
            CHUNK - 1
        )
        of_rows_CA, of_columns_CA = (_nearest_of_chunk(bits_AA, kept, axis) for axis in (1, 0))
        key_ICQ = jax.lax.dynamic_update_slice(key_ICQ, of_rows_CA[None], (j // chunk, 0, i))
        return jax.lax.dynamic_update_slice(key_ICQ, of_columns_CA[None], (i // chunk, 0, j))

    return jax.lax.fori_loop(
        0, len(row_X), add_pair, jnp.full((padded // chunk, kept, padded), LAST)
    )


def _nearest_of_chunk(
    bits_AA: UInt[Array, "A A"], count: int, axis: int
) -> UInt[Array, "{count} A"]:
    """Keys of the `count` nearest along one axis, for each place on the other axis.

    One pass over the block finds the least key of each lane, which is every LANES-th point of the
    chunk. The `count` least of the chunk lie in the `count` lanes of least minima: of a key in any
    other lane, those minima are all smaller.
    """
    chunk = len(bits_AA)
    place_A = jnp.arange(chunk, dtype=jnp.uint32)
    if axis == 0:
        lane_XA = (bits_AA | place_A[:, None]).reshape(-1, LANES, chunk).min(axis=0)
    else:
        lane_XA = (bits_AA | place_A[None]).reshape(chunk, -1, LANES).min(axis=1).T
    # or XLA computes the least of the lanes from the block again
    lane_XA = jax.lax.optimization_barrier(lane_XA)
    lane_CA = _smallest(lane_XA, count) % LANES
    start_X = LANES * jnp.arange(chunk // LANES, dtype=jnp.uint32)
    place_CA = (lane_CA[:, None] + start_X[None, :, None]).reshape(-1, chunk)
    other_CA = jnp.broadcast_to(place_A[None], place_CA.shape)
    where = (place_CA, other_CA) if axis == 0 else (other_CA, place_CA)
    key_CA = bits_AA.at[where].get(mode="promise_in_bounds") | place_CA
    return _smallest(jax.lax.optimization_barrier(key_CA), count)


def _smallest(key_CA: UInt[Array, "C A"], count: int) -> UInt[Array, "{count} A"]:
    """The `count` smallest of different keys, ascending: a pass for each, which vectorises."""
    smallest = [key_CA.min(axis=0)]
    for _ in range(count - 1):
        smallest.append(jnp.where(key_CA > smallest[-1][None], key_CA, LAST).min(axis=0))
    return jnp.stack(smallest)


def _place(key: Array) -> Array:
    """In its chunk."""
    return (key & np.uint32(CHUNK - 1)).astype(jnp.int32)


def _unpacked(
    key_ICQ: UInt[Array, "I C Q"], last_IQ: UInt[Array, "I Q"], chunk: int, most: int
) -> tuple[Int[Array, "Q _"], Float[Array, " Q"]]:
    """Of the nearest of every chunk, the `most` nearest of all, as places, and what bounds the rest
    of all chunks.

    Keys of two chunks can be equal. What a chunk did not keep is farther than the last that it
    kept.
    """
    chunks, candidates, padded = key_ICQ.shape
    key_QC = key_ICQ.reshape(chunks * candidates, padded).T
    near_QC = jnp.where(
        key_QC < INFINITY, jax.lax.bitcast_convert_type(key_QC, jnp.float32), jnp.inf
    )
    negative_QC, number_QC = jax.lax.top_k(-near_QC, min(most + 1, key_QC.shape[1]))
    key_QC = jnp.take_along_axis(key_QC, number_QC, axis=1, mode="promise_in_bounds")
    place_QC = jnp.where(
        negative_QC > -jnp.inf, number_QC // candidates * chunk + _place(key_QC), padded
    )
    beyond_Q = last_IQ.min(axis=0)
    if key_QC.shape[1] > most:
        beyond_Q = jnp.minimum(beyond_Q, key_QC[:, most])
    beyond_Q = jnp.minimum(beyond_Q & ~np.uint32(CHUNK - 1), INFINITY)
    return place_QC[:, :most], jax.lax.bitcast_convert_type(beyond_Q, jnp.float32)


def _from_columns(
    x_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    original_P: Int[Array, " P"],
    count: int,
) -> Proposed:
    """`propose` from whole columns of the matrix of distances, SIDE at once."""
    points = len(x_PD)
    ranked_P = jnp.where(original_P == jnp.arange(points), square_P, jnp.inf)

    def of_some(i_A: Array) -> Proposed:
        product_PA = jnp.matmul(x_PD, x_PD[i_A].T, precision=Precision.HIGHEST)
        key_PA = ordered(ranked_P[:, None] + (square_P[i_A][None] - 2.0 * product_PA))
        return least(jnp.where(jnp.arange(points)[:, None] == i_A[None], LAST, key_PA), count + 6)

    side = min(SIDE, points)
    # past the end, the last
    i_XA = jnp.minimum(jnp.arange(-(-points // side) * side), points - 1).reshape(-1, side)
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:points], jax.lax.map(of_some, i_XA))
