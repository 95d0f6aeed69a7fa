"""Propose candidates for the nearest neighbors of every point by the Gram matrix.

A bound on the distance of every other point comes with them. Quick, and rough where points are
close: metrics/neighbors.py measures the candidates again. A are the points whose candidates are
sought together, X words of bits, or turns of a loop.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int, UInt

EXTRA = 6  # candidates in addition to the requested neighbors: their distances make the bound
TOGETHER = 64  # columns of the distance matrix that exist at once on a CPU
ELEMENTS = 2**27  # of the distance matrix that exist at once on an accelerator
FEW = 16  # up to so many, a CPU multiplies half of the matrix, and `top_k` beats a threshold
SPARE = 8  # an eighth more than are kept, and this many at least: the threshold takes fewer passes
WORD = 32  # bits
INFINITY = np.uint32(0x7F800000)  # the bits of float32 inf: those of finite distances are smaller

# indices, P in place of a candidate that does not exist; and a bound of all other points
Proposed = tuple[Int[Array, "P _"], Float[Array, " P"]]


def propose(
    x_PD: Float[Array, "P D"],
    square_P: Float[Array, " P"],
    original_P: Int[Array, " P"],
    count: int,
) -> Proposed:
    """Propose C > count candidates of every point, and bound the squared Gram distance of the rest.

    Args:
        x_PD: the points, centered.
        square_P: their squared norms, inf for points that neither have nor are neighbors.
        original_P: the first copy of each point; only these are proposed.
        count: number of neighbors.

    Returns:
        Indices, P in place of a candidate that does not exist; and for each point a number that no
        other point's squared Gram distance is below, inf where there is no other.
    """
    points = len(x_PD)
    candidate_P = jnp.where(original_P == jnp.arange(points), square_P, jnp.inf)

    def propose_some(i_A: Array) -> tuple[Array, Array]:
        product_PA = jnp.matmul(x_PD, x_PD[i_A].T, precision=Precision.HIGHEST)
        near_PA = candidate_P[:, None] + (square_P[i_A][None] - 2.0 * product_PA)
        near_PA = jnp.where(jnp.arange(points)[:, None] == i_A[None], jnp.inf, near_PA)
        return least(near_PA, min(count + EXTRA, points))

    together = TOGETHER if jax.default_backend() == "cpu" else max(TOGETHER, ELEMENTS // points)
    together = min(together, points)
    # past the end, the last point again
    i_XA = jnp.minimum(jnp.arange(-(-points // together) * together), points - 1)
    proposed = jax.lax.map(propose_some, i_XA.reshape(-1, together))
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:points], proposed)


def least(near_PA: Float[Array, "P A"], kept: int) -> tuple[Int[Array, "A C"], Float[Array, " A"]]:
    """Find the `kept` or somewhat more least numbers of each column, in any order, and a bound.

    Negative numbers, which rounding leaves of squared distances, count as 0, NaN as inf. Places are
    P where there are fewer finite numbers. Nothing else in a column is below its bound, which is
    inf where all finite numbers are kept.

    On a CPU `top_k` of many takes 1.2 to 3 times as long as a threshold for all columns at once;
    accelerators have a fast one.
    """
    near_PA = jnp.where(near_PA < jnp.inf, jnp.maximum(near_PA, 0.0), jnp.inf)
    if jax.default_backend() == "cpu" and kept > FEW:
        return _below_threshold(near_PA, kept)
    points = len(near_PA)
    negative_AC, place_AC = jax.lax.top_k(-near_PA.T, min(kept + 1, points))
    # one for each output: XLA sorts whole rows where only a slice is read
    negative_AC, place_AC = map(jax.lax.optimization_barrier, (negative_AC, place_AC))
    place_AC = jnp.where(negative_AC > -jnp.inf, place_AC, points)[:, :kept]
    infinite_A = jnp.full(len(negative_AC), jnp.inf)
    return place_AC, -negative_AC[:, kept] if kept < points else infinite_A


def _below_threshold(near_PA: Float[Array, "P A"], kept: int) -> tuple[Array, Array]:
    """`least` by bisection: the bits of floats >= 0, read as integers, have their order."""
    room = min(kept + max(kept // 8, SPARE), len(near_PA))
    key_PA = jax.lax.bitcast_convert_type(near_PA, jnp.uint32) + np.uint32(1)
    threshold_A, all_A = _threshold(key_PA, kept, room)
    beyond_A = jnp.where(all_A, INFINITY, jnp.maximum(threshold_A, 1) - np.uint32(1))
    place_CA = _places(key_PA <= threshold_A[None], room)
    return place_CA.T, jax.lax.bitcast_convert_type(beyond_A, jnp.float32)


def _threshold(
    key_PA: UInt[Array, "P A"], fewest: int, most: int
) -> tuple[UInt[Array, " A"], Bool[Array, " A"]]:
    """Find a key that `fewest` to `most` keys are not above, and whether these are all finite ones.

    Where equal keys make that impossible, or too few are finite, fewer are not above it.
    """

    def unsettled(ends: tuple[Array, ...]) -> Bool[Array, " A"]:
        low_A, high_A, count_A = ends
        return (count_A > most) & (high_A - low_A > 1)

    def halve(ends: tuple[Array, ...]) -> tuple[Array, ...]:
        low_A, high_A, count_A = ends
        middle_A = low_A + (high_A - low_A) // 2
        middle_count_A = (key_PA <= middle_A[None]).sum(axis=0, dtype=jnp.int32)
        open_A, enough_A = unsettled(ends), middle_count_A >= fewest
        return (
            jnp.where(open_A & ~enough_A, middle_A, low_A),
            jnp.where(open_A & enough_A, middle_A, high_A),
            jnp.where(open_A & enough_A, middle_count_A, count_A),
        )

    finite_PA = key_PA <= INFINITY
    finite_A = finite_PA.sum(axis=0, dtype=jnp.int32)
    ends = key_PA.min(axis=0) - np.uint32(1), jnp.where(finite_PA, key_PA, 0).max(axis=0), finite_A
    low_A, high_A, count_A = jax.lax.while_loop(lambda ends: unsettled(ends).any(), halve, ends)
    fits_A = count_A <= most
    return jnp.where(fits_A, high_A, low_A), fits_A & (count_A == finite_A)


def _places(chosen_PA: Bool[Array, "P A"], most: int) -> Int[Array, "C A"]:
    """List where each column is true, at most `most` places, ascending and then P.

    The columns are packed into words of bits. The running count of set bits leads to the word of
    each place; halves of a word, halved again, lead to the bit.
    """
    points, columns = chosen_PA.shape
    bit_PA = jnp.pad(chosen_PA, ((0, -points % WORD), (0, 0))).astype(jnp.uint32)
    shift_1B1 = jnp.arange(WORD, dtype=jnp.uint32)[None, :, None]
    word_XA = (bit_PA.reshape(-1, WORD, columns) << shift_1B1).sum(axis=1, dtype=jnp.uint32)
    upto_XA = jnp.cumsum(jax.lax.population_count(word_XA).astype(jnp.int32), axis=0)
    rank_C, column_1A = jnp.arange(most), jnp.arange(columns)[None]
    which_CA = jax.vmap(lambda upto_X: jnp.searchsorted(upto_X, rank_C, side="right"), 1, 1)(
        upto_XA
    )
    safe_CA = jnp.minimum(which_CA, len(word_XA) - 1)
    before_CA = jnp.where(safe_CA > 0, upto_XA[safe_CA - 1, column_1A], 0)
    rank_CA, bits_CA, width = rank_C[:, None] - before_CA, word_XA[safe_CA, column_1A], WORD
    place_CA = WORD * which_CA
    while width := width // 2:
        lower_CA = jax.lax.population_count(bits_CA & np.uint32((1 << width) - 1)).astype(jnp.int32)
        upper_CA = rank_CA >= lower_CA
        bits_CA = jnp.where(upper_CA, bits_CA >> np.uint32(width), bits_CA)
        rank_CA = jnp.where(upper_CA, rank_CA - lower_CA, rank_CA)
        place_CA = jnp.where(upper_CA, place_CA + width, place_CA)
    return jnp.where(which_CA < len(word_XA), place_CA, points)
