"""Propose candidates for few nearest neighbors by half of the Gram matrix, on a CPU.

The matrix is symmetric: blocks on and above its diagonal are multiplied, and each is read along
both axes, for the points of its columns and for those of its rows. Sections of a cloud read their
own candidates off the same blocks. Points come in chunks. A key is the bits of a squared distance,
with the place in the chunk written over the last of them: keys have the order of distances, none of
a chunk are equal, and minima bring their places along.

S are sections, X points of a section, I chunks, A points of a chunk with padding, Q all points with
padding, Y keys of all chunks, Z keys or minima that are chosen from.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, UInt

from anisoscope.metrics.candidates import EXTRA, FEW, Proposed, least
from anisoscope.metrics.cloud import product

CHUNK = 512  # points along a side of a block; a power of 2
LANE = 4  # points of a chunk of which first the nearest is found
PLACE = np.uint32(CHUNK - 1)  # the bits of a key that are a place in a chunk
LAST = np.uint32(0xFFFFFFFF)  # after the keys of all points


def serves(count: int) -> bool:
    """Return whether `propose_by_half` is faster than whole columns for so many neighbors."""
    return jax.default_backend() == "cpu" and 2 <= count <= FEW


def propose_by_half(
    x_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    original_P: Int[Array, " P"],
    local_P: Int[Array, " P"],
    count: int,
    sections: int,
) -> tuple[Proposed, Proposed]:
    """Propose candidates among all points, and among those of each point's own section.

    Args:
        x_PD: The points, centered.
        square_P: Their squared norms, as for `candidates.propose`.
        original_P: The first copy of each point, as for `candidates.propose`.
        local_P: The first copy of each point in its section.
        count: Number of neighbors.
        sections: Number of runs of P / sections consecutive points.

    Returns:
        What `candidates.propose` returns, for all points and for sections; indices of the cloud.
    """
    size = len(x_PD) // sections
    chunks = -(-size // CHUNK)  # of a section
    chunk = -(-size // chunks)
    key_ICSX = _chunk_keys(x_PD, square_P, original_P, local_P, count + 1, (sections, chunks))
    start_SI = size * np.arange(sections)[:, None] + chunk * np.arange(chunks)
    start_I111 = jnp.asarray(start_SI.reshape(-1, 1, 1, 1), jnp.int32)
    index_ICSX = start_I111 + (key_ICSX & PLACE).astype(jnp.int32)

    # A chunk has kept firsts of its section. They stand for count + 1 different points, so that
    # what it left out is no neighbor, whichever of them are firsts of the cloud.
    first_ICSX = original_P.at[index_ICSX].get(mode="clip")
    valid_ICSX = (first_ICSX == index_ICSX) & (
        first_ICSX != original_P.reshape(1, 1, sections, size)
    )
    cloud_ICSX = jnp.where(valid_ICSX, key_ICSX, LAST)

    def select_sections(x_ICSX: Array) -> Array:
        """Select each section's chunks at its own points."""
        x_SICSX = x_ICSX.reshape(sections, chunks, -1, sections, size)
        return jnp.moveaxis(x_SICSX[np.arange(sections), :, :, np.arange(sections)], 0, 2)

    return (
        _merge(cloud_ICSX, index_ICSX, key_ICSX[:, -1], count),
        _merge(
            select_sections(key_ICSX),
            select_sections(index_ICSX),
            select_sections(key_ICSX)[:, -1],
            count,
        ),
    )


def _chunk_keys(
    x_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    original_P: Int[Array, " P"],
    local_P: Int[Array, " P"],
    kept: int,
    counts: tuple[int, int],
) -> UInt[Array, "I {kept} S X"]:
    """Find the keys of the nearest to every point in every chunk, ascending; none of its copies.

    `counts` are the sections, and the chunks of each.
    """
    sections, chunks = counts
    size = len(x_PD) // sections
    chunk = -(-size // chunks)

    def pad(value_P: Array, value: float = 0.0) -> Array:
        widths = ((0, 0), (0, chunks * chunk - size), *[(0, 0)] * (value_P.ndim - 1))
        value_SX = value_P.reshape(sections, size, *value_P.shape[1:])
        return jnp.pad(value_SX, widths, constant_values=value).reshape(-1, *value_P.shape[1:])

    local_square_P = jnp.where(local_P == jnp.arange(len(local_P)), square_P, jnp.inf)
    square_Q, x_QD = pad(local_square_P, jnp.inf), pad(x_PD)
    original_Q, local_Q = pad(original_P), pad(local_P)
    row_X, column_X = (jnp.asarray(i_X, jnp.int32) for i_X in np.triu_indices(sections * chunks))

    def add_block(number: Array, key_ICQ: Array) -> Array:
        i, j = row_X[number], column_X[number]

        def cut(value_Q: Array) -> list[Array]:
            return [jax.lax.dynamic_slice_in_dim(value_Q, n * chunk, chunk) for n in (i, j)]

        (x_AD, y_AD), (x_A, y_A) = cut(x_QD), cut(square_Q)
        # in a section two points may be no copies that a third, of another section, joins
        x_first_A, y_first_A = cut(jnp.where(i // chunks == j // chunks, local_Q, original_Q))
        near_AA = x_A[:, None] + (y_A[None] - 2.0 * product(x_AD, y_AD.T))
        near_AA = jnp.where(x_first_A[:, None] == y_first_A[None], jnp.inf, near_AA)
        near_AA = jnp.where(near_AA < jnp.inf, jnp.maximum(near_AA, 0.0), jnp.inf)
        bits_AA = jax.lax.bitcast_convert_type(near_AA, jnp.uint32) & ~PLACE
        transposed_AA = jax.lax.optimization_barrier(bits_AA.T)
        column_keys_1CA, row_keys_1CA = (
            _smallest_keys(keys_AA, kept)[None] for keys_AA in (bits_AA, transposed_AA)
        )
        key_ICQ = jax.lax.dynamic_update_slice(key_ICQ, column_keys_1CA, (i, 0, j * chunk))
        return jax.lax.dynamic_update_slice(key_ICQ, row_keys_1CA, (j, 0, i * chunk))

    key_ICQ = jnp.full((sections * chunks, kept, len(x_QD)), LAST)
    key_ICQ = jax.lax.fori_loop(0, len(row_X), add_block, key_ICQ)
    return key_ICQ.reshape(*key_ICQ.shape[:2], sections, -1)[..., :size]


def _merge(
    key_ICSX: UInt[Array, "I C S X"],
    index_ICSX: Int[Array, "I C S X"],
    last_ISX: UInt[Array, "I S X"],
    count: int,
) -> Proposed:
    """Keep the nearest of all chunks, with a bound of what the merge or a chunk did not keep."""
    key_YP, index_YP = (array.reshape(-1, last_ISX[0].size) for array in (key_ICSX, index_ICSX))
    place_PC, beyond_P = least(
        jax.lax.bitcast_convert_type(key_YP, jnp.float32), min(count + EXTRA, len(key_YP))
    )
    index_PC = jnp.take_along_axis(index_YP.T, place_PC, axis=1, mode="clip")
    index_PC = jnp.where(place_PC < len(key_YP), index_PC, index_YP.shape[1])
    beyond_P = jax.lax.bitcast_convert_type(beyond_P, jnp.uint32)
    beyond_P = jnp.minimum(beyond_P, last_ISX.min(axis=0).reshape(-1)) & ~PLACE
    return index_PC, jax.lax.bitcast_convert_type(beyond_P, jnp.float32)


def _smallest_keys(bits_AA: UInt[Array, "A _"], count: int) -> UInt[Array, "{count} _"]:
    """Find the keys of the `count` nearest of a chunk, for each column, ascending.

    First the least key of each lane is found, which has every so many-th point. The `count`
    smallest lie in the lanes with the `count` smallest minima: all keys of others are larger.
    """
    bits_AA = jnp.pad(bits_AA, ((0, -len(bits_AA) % LANE), (0, 0)), constant_values=LAST)
    lanes, columns = len(bits_AA) // LANE, bits_AA.shape[1]
    place_A1 = jnp.arange(len(bits_AA), dtype=jnp.uint32)[:, None]
    least_ZA = (bits_AA | place_A1).reshape(LANE, lanes, columns).min(axis=0)
    lane_CA = (_smallest(least_ZA, count) & PLACE) % lanes
    place_CA = (lane_CA[None] + place_A1[::lanes, None]).reshape(-1, columns)
    key_CA = jnp.take_along_axis(bits_AA, place_CA, axis=0, mode="clip") | place_CA
    return _smallest(key_CA, count)


def _smallest(key_ZA: UInt[Array, "Z A"], count: int) -> UInt[Array, "{count} A"]:
    """Find the `count` smallest of different keys, ascending, by a pass for each."""
    key_ZA = jax.lax.optimization_barrier(key_ZA)  # or each pass computes them again
    smallest = [key_ZA.min(axis=0)]
    for _ in range(count - 1):
        smallest.append(jnp.where(key_ZA > smallest[-1][None], key_ZA, LAST).min(axis=0))
    return jnp.stack(smallest)
