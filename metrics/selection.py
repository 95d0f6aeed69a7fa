"""The least of many keys, for many columns at once: a threshold for each column, and then the
places below it.

XLA selects the nearest 128 of 4,096 points row by row, in three times the time of the products that
rank them. Here the keys of a point lie along the first axis, so that a pass is over many points
side by side, which vectorises. Each pass counts the keys up to a guess, and the guesses close in on
as many as are wanted.

Here A are the points that are worked on, P those whose keys they choose from, C those that are
kept, X words of bits or parts of a count.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

INFINITY = np.uint32(0x7F800000)  # the bits of float32 inf: finite distances lie below, NaN above
LAST = np.uint32(0xFFFFFFFF)
# an eighth more than are kept, and 8 at least, may be below the threshold: it is found in fewer
# passes
ROOM = 8
WORD, BYTE = 32, 8  # bits
IN_A_BYTE = 64  # so many are counted in one


def ordered(square: Float[Array, "..."]) -> UInt[Array, "..."]:
    """Keys in the order of squared distances, of which rounding may have made some negative: from 1
    on; NaN is inf.
    """
    bits = jax.lax.bitcast_convert_type(jnp.maximum(square, 0.0), jnp.uint32)
    return jnp.minimum(bits, INFINITY) + np.uint32(1)


def least(key_PA: UInt[Array, "P A"], kept: int) -> tuple[Int[Array, "A C"], Float[Array, " A"]]:
    """Where the `kept` least keys of each column are, and a bound: nothing else has a smaller
    squared distance.

    Shapes: keys of `ordered` -> places, nearly ascending, P where there are fewer with a finite
    distance; and a bound, a little low, inf where all of these are kept. Equal keys are dropped
    together where there is no room for all.
    """
    count = len(key_PA)
    kept = min(kept, count)
    room = min(kept + max(kept // ROOM, ROOM), count)
    threshold_A, all_A = _threshold(key_PA, kept, room)
    place_CA = _places(key_PA <= threshold_A[None], room)
    column_1A, lowest = jnp.arange(key_PA.shape[1])[None], np.uint32((1 << room.bit_length()) - 1)
    of_place_CA = key_PA.at[jnp.minimum(place_CA, count - 1), column_1A].get(
        mode="promise_in_bounds"
    ) - np.uint32(1)
    # these bits say which one it is
    rough_CA = jnp.where(place_CA < count, of_place_CA, INFINITY) & ~lowest
    rough_CA = jax.lax.sort(rough_CA | jnp.arange(room, dtype=jnp.uint32)[:, None], dimension=0)
    order_CA = (rough_CA[:kept] & lowest).astype(jnp.int32)
    beyond_A = jnp.where(all_A, INFINITY, jnp.maximum(threshold_A, 1) - np.uint32(1))
    if kept < room:
        beyond_A = jnp.minimum(beyond_A, rough_CA[kept] & ~lowest)
    place_AC = place_CA.at[order_CA, column_1A].get(mode="promise_in_bounds").T
    return place_AC, jax.lax.bitcast_convert_type(beyond_A, jnp.float32)


class _Ends(NamedTuple):
    """Of what is left of each column's keys to find a threshold in, and how many keys are up to
    each.
    """

    low_A: UInt[Array, " A"]
    high_A: UInt[Array, " A"]
    of_low_A: Int[Array, " A"]  # fewer than are wanted
    of_high_A: Int[Array, " A"]


def _threshold(
    key_PA: UInt[Array, "P A"], fewest: int, most: int
) -> tuple[UInt[Array, " A"], Bool[Array, " A"]]:
    """A key that `fewest` to `most` are not above, and whether these are all of finite distance.

    Where equal keys make that impossible, or too few are finite, fewer are not above it. Every
    other guess is interpolated: the log odds of being nearer are nearly linear in the logarithm of
    a distance, and so in its bits. The others halve what is left, so that no end stays for long.
    """

    def log_odds(below: Array | float) -> Array:
        return jnp.log((below + np.float32(0.5)) / (len(key_PA) - below + np.float32(0.5)))

    def open_A(ends: _Ends) -> Array:
        return (ends.of_high_A > most) & (ends.high_A - ends.low_A > 1)

    def guess(state: tuple[Array, _Ends]) -> tuple[Array, _Ends]:
        number, ends = state
        of_low_A, of_high_A, wanted = (
            log_odds(ends.of_low_A),
            log_odds(ends.of_high_A),
            log_odds((fewest + most) / 2),
        )
        share_A = jnp.where(number % 2 == 1, 0.5, (wanted - of_low_A) / (of_high_A - of_low_A))
        left_A = jnp.maximum(ends.high_A - ends.low_A, 2)
        key_A = ends.low_A + jnp.clip((share_A * left_A).astype(jnp.uint32), 1, left_A - 1)
        count_A = _counted(key_PA <= key_A[None])
        low, high = (
            ends._replace(low_A=key_A, of_low_A=count_A),
            ends._replace(high_A=key_A, of_high_A=count_A),
        )
        moved = jax.tree.map(lambda low, high: jnp.where(count_A < fewest, low, high), low, high)
        return number + 1, jax.tree.map(
            lambda new, old: jnp.where(open_A(ends), new, old), moved, ends
        )

    finite_PA = key_PA <= INFINITY
    finite_A = _counted(finite_PA)
    low_A, high_A = key_PA.min(axis=0) - np.uint32(1), jnp.where(finite_PA, key_PA, 0).max(axis=0)
    start = jnp.int32(0), _Ends(low_A, high_A, jnp.zeros_like(finite_A), finite_A)
    _, ends = jax.lax.while_loop(lambda state: open_A(state[1]).any(), guess, start)
    fits_A = ends.of_high_A <= most
    return jnp.where(fits_A, ends.high_A, ends.low_A), fits_A & (ends.of_high_A == finite_A)


def _counted(true_PA: Bool[Array, "P A"]) -> Int[Array, " A"]:
    """How many are true, first in bytes, of which four times as many are added at once."""
    true_PA = jnp.pad(true_PA, ((0, -len(true_PA) % IN_A_BYTE), (0, 0)))
    of_some_XA = (
        true_PA.reshape(-1, IN_A_BYTE, true_PA.shape[1])
        .astype(jnp.int8)
        .sum(axis=1, dtype=jnp.int8)
    )
    return of_some_XA.sum(axis=0, dtype=jnp.int32)


def _places(chosen_PA: Bool[Array, "P A"], most: int) -> Int[Array, "C A"]:
    """Where the chosen ones of each column are, of which there are at most so many: ascending, then
    P.

    They are packed into words of bits. The running count of the set bits leads to the word of each,
    and halves of the word to its byte.
    """
    count, columns = chosen_PA.shape
    chosen_PA = jnp.pad(chosen_PA, ((0, -count % WORD), (0, 0)))
    bit_X1 = jnp.arange(WORD, dtype=jnp.uint32)[:, None]
    word_XA = (chosen_PA.reshape(-1, WORD, columns).astype(jnp.uint32) << bit_X1[None]).sum(
        axis=1, dtype=jnp.uint32
    )
    upto_XA = jnp.cumsum(jax.lax.population_count(word_XA).astype(jnp.int32), axis=0)
    words, column_1A, number_C1 = len(word_XA), jnp.arange(columns)[None], jnp.arange(most)[:, None]

    def taken(x_XA: Array, place_CA: Array) -> Array:
        return x_XA.at[jnp.clip(place_CA, 0, words - 1), column_1A].get(mode="promise_in_bounds")

    # the words before the one that holds the number-th of the column
    passed_CA = jnp.zeros((most, columns), jnp.int32)
    for step in (1 << n for n in reversed(range(words.bit_length()))):
        farther_CA = passed_CA + step
        passes_CA = (farther_CA <= words) & (taken(upto_XA, farther_CA - 1) <= number_C1)
        passed_CA = jnp.where(passes_CA, farther_CA, passed_CA)
    bits_CA = taken(word_XA, passed_CA)
    rank_CA = number_C1 - jnp.where(passed_CA > 0, taken(upto_XA, passed_CA - 1), 0)
    place_CA, width = WORD * passed_CA, WORD
    while (width := width // 2) >= BYTE:  # the half of these bits that has the one of that rank
        lower_CA = bits_CA & np.uint32((1 << width) - 1)
        in_lower_CA = jax.lax.population_count(lower_CA).astype(jnp.int32)
        upper_CA = rank_CA >= in_lower_CA
        bits_CA = jnp.where(upper_CA, bits_CA >> np.uint32(width), lower_CA)
        rank_CA, place_CA = (
            rank_CA - jnp.where(upper_CA, in_lower_CA, 0),
            place_CA + jnp.where(upper_CA, width, 0),
        )
    of_byte_CA = jnp.asarray(SET_BITS)[bits_CA.astype(jnp.int32), jnp.clip(rank_CA, 0, BYTE - 1)]
    return jnp.where(passed_CA < words, place_CA + of_byte_CA, count)


# Which bit of a byte is the first that is set, the second, …: (byte, rank); past the last, 0.
SET_BITS = np.array(
    [([b for b in range(BYTE) if byte >> b & 1] + BYTE * [0])[:BYTE] for byte in range(1 << BYTE)]
)
