"""The least of many keys, for many rows at once: a threshold for each row, and then the places below it.

XLA selects the nearest 128 of 4,096 points row by row, in three times the time of the products that rank them. Here
a row's keys lie along the first axis, so that a pass is over many rows side by side, which vectorises. Each pass counts
the keys up to a guess, and the guesses close in on as many as are wanted.

Letters here: N keys of each of A rows, C that are kept, W words of bits.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

INFINITY = np.uint32(0x7F800000)  # the bits of float32 inf: finite distances lie below, NaN above
LAST = np.uint32(0xFFFFFFFF)
ROOM = 8  # an eighth more than are kept, and 8 at least, may be below the threshold: it is found in fewer passes
HALVED = 8  # every 8th guess halves what is left: what is interpolated could creep
WORD, BYTE = 32, 8  # bits
BLOCK = 64  # so many are counted in a byte


def ordered(square: Float[Array, "..."]) -> UInt[Array, "..."]:
    """Keys in the order of squared distances, of which rounding may have made some negative: from 1 on; NaN is inf."""
    bits = jax.lax.bitcast_convert_type(jnp.maximum(square, 0.0), jnp.uint32)
    return jnp.minimum(bits, INFINITY) + np.uint32(1)


def least(key_NA: UInt[Array, "N A"], kept: int) -> tuple[Int[Array, "A C"], Float[Array, " A"]]:
    """Where the `kept` least keys of each row are, and a bound: nothing else has a smaller squared distance.

    Shapes: keys of `ordered` -> places, nearly ascending, N where there are fewer with a finite distance; and a bound,
    a little low, inf where all of these are kept. Equal keys are dropped together where there is no room for all.
    """
    count = len(key_NA)
    kept = min(kept, count)
    room = min(kept + max(kept // ROOM, ROOM), count)
    threshold_A, all_A = _threshold(key_NA, kept, room)
    place_CA = _places(key_NA <= threshold_A[None], room)
    row_1A, lowest = jnp.arange(key_NA.shape[1])[None], np.uint32((1 << room.bit_length()) - 1)
    of_place_CA = key_NA.at[jnp.minimum(place_CA, count - 1), row_1A].get(mode="promise_in_bounds") - np.uint32(1)
    rough_CA = jnp.where(place_CA < count, of_place_CA, INFINITY) & ~lowest  # these bits say which one it is
    rough_CA = _ascending(rough_CA | jnp.arange(room, dtype=jnp.uint32)[:, None])
    order_CA = (rough_CA[:kept] & lowest).astype(jnp.int32)
    beyond_A = jnp.where(all_A, INFINITY, jnp.maximum(threshold_A, 1) - np.uint32(1))
    if kept < room:
        beyond_A = jnp.minimum(beyond_A, rough_CA[kept] & ~lowest)
    place_AC = place_CA.at[order_CA, row_1A].get(mode="promise_in_bounds").T
    return place_AC, jax.lax.bitcast_convert_type(beyond_A, jnp.float32)


def _ascending(key_CA: UInt[Array, "C A"]) -> UInt[Array, "C A"]:
    """By Batcher's bitonic network, whose exchanges are the same for all rows."""
    count, doublings = len(key_CA), (len(key_CA) - 1).bit_length()
    runs = [2 << n for n in range(doublings)]  # so long are those in order, upwards and downwards by turns
    exchanges = [(run, run >> n) for run in runs for n in range(1, run.bit_length())]
    run_E, apart_E = np.array(exchanges, np.int32).reshape(-1, 2).T
    place_C = jnp.arange(1 << doublings)

    def exchange(number: Array, key_CA: Array) -> Array:
        run, apart = jnp.asarray(run_E)[number], jnp.asarray(apart_E)[number]
        other_CA = key_CA.at[place_C ^ apart].get(mode="promise_in_bounds")
        keeps_less_C = (place_C & run == 0) == (place_C & apart == 0)
        return jnp.where(keeps_less_C[:, None], jnp.minimum(key_CA, other_CA), jnp.maximum(key_CA, other_CA))

    key_CA = jnp.pad(key_CA, ((0, len(place_C) - count), (0, 0)), constant_values=LAST)
    return jax.lax.fori_loop(0, len(exchanges), exchange, key_CA)[:count] if exchanges else key_CA


class _Ends(NamedTuple):
    """Of what is left of each row's keys to find a threshold in."""

    low_A: UInt[Array, " A"]  # fewer keys than are wanted are up to it
    high_A: UInt[Array, " A"]
    of_high_A: Int[Array, " A"]  # how many are up to the high end
    lacks_A: Float[Array, " A"]  # how far, in log odds, the low end is below what is wanted, and
    exceeds_A: Float[Array, " A"]  # the high one above it
    moved_A: Int[Array, " A"]  # which moved last: -1 the low end, 1 the high one


def _threshold(key_NA: UInt[Array, "N A"], fewest: int, most: int) -> tuple[UInt[Array, " A"], Bool[Array, " A"]]:
    """A key that `fewest` to `most` are not above, and whether these are all of finite distance.

    Where equal keys make that impossible, or too few are finite, fewer are not above it. Guesses are interpolated:
    the log odds of being nearer are nearly linear in the logarithm of a distance, and so in its bits. An end
    that stays counts half from its second time on ("Illinois"), so that it does not stay for long.
    """
    wanted = _log_odds((fewest + most) / 2, len(key_NA))

    def open_A(ends: _Ends) -> Array:
        return (ends.of_high_A > most) & (ends.high_A - ends.low_A > 1)

    def guess(state: tuple[Array, _Ends]) -> tuple[Array, _Ends]:
        number, ends = state
        share_A = jnp.where(number % HALVED == HALVED - 1, 0.5, ends.lacks_A / (ends.lacks_A + ends.exceeds_A))
        left_A = jnp.maximum(ends.high_A - ends.low_A, 2)
        key_A = ends.low_A + jnp.clip((share_A * left_A).astype(jnp.uint32), 1, left_A - 1)
        count_A = _counted(key_NA <= key_A[None])
        over_A = _log_odds(count_A, len(key_NA)) - wanted
        lacks_A, exceeds_A = ends.lacks_A, ends.exceeds_A
        low = _Ends(key_A, ends.high_A, ends.of_high_A, -over_A, exceeds_A * jnp.where(ends.moved_A < 0, 0.5, 1), -1)
        high = _Ends(ends.low_A, key_A, count_A, lacks_A * jnp.where(ends.moved_A > 0, 0.5, 1), over_A, 1)
        moved = jax.tree.map(lambda low, high: jnp.where(count_A < fewest, low, high), low, high)
        return number + 1, jax.tree.map(lambda new, old: jnp.where(open_A(ends), new, old), moved, ends)

    finite_NA = key_NA <= INFINITY
    finite_A = _counted(finite_NA)
    start_A = key_NA.min(axis=0) - np.uint32(1), jnp.where(finite_NA, key_NA, 0).max(axis=0), finite_A
    far_A = wanted - _log_odds(jnp.zeros_like(finite_A), len(key_NA)), _log_odds(finite_A, len(key_NA)) - wanted
    start = jnp.int32(0), _Ends(*start_A, *far_A, jnp.zeros_like(finite_A))
    _, ends = jax.lax.while_loop(lambda state: open_A(state[1]).any(), guess, start)
    fits_A = ends.of_high_A <= most
    return jnp.where(fits_A, ends.high_A, ends.low_A), fits_A & (ends.of_high_A == finite_A)


def _counted(true_NA: Bool[Array, "N A"]) -> Int[Array, " A"]:
    """How many are true, first in bytes, of which twice as many are added at once."""
    true_NA = jnp.pad(true_NA, ((0, -len(true_NA) % BLOCK), (0, 0)))
    of_block_NA = true_NA.reshape(-1, BLOCK, true_NA.shape[1]).astype(jnp.int8).sum(axis=1, dtype=jnp.int8)
    return of_block_NA.sum(axis=0, dtype=jnp.int32)


def _log_odds(below: Array | float, count: int) -> Array:
    """Of a key to be among so many of the count."""
    return jnp.log((below + np.float32(0.5)) / (count - below + np.float32(0.5)))


def _places(chosen_NA: Bool[Array, "N A"], most: int) -> Int[Array, "C A"]:
    """Where the chosen ones of each row are, of which there are at most so many: ascending, then N."""
    count, rows = chosen_NA.shape
    chosen_NA = jnp.pad(chosen_NA, ((0, -count % WORD), (0, 0)))
    bit_B1 = jnp.arange(WORD, dtype=jnp.uint32)[:, None]
    word_WA = (chosen_NA.reshape(-1, WORD, rows).astype(jnp.uint32) << bit_B1[None]).sum(axis=1, dtype=jnp.uint32)
    word_WA = jax.lax.optimization_barrier(word_WA)  # or XLA makes them again for each use
    upto_WA = jnp.cumsum(jax.lax.population_count(word_WA).astype(jnp.int32), axis=0)
    words, row_1A, number_C1 = len(word_WA), jnp.arange(rows)[None], jnp.arange(most)[:, None]

    def taken(x_WA: Array, place_CA: Array) -> Array:
        return x_WA.at[jnp.clip(place_CA, 0, words - 1), row_1A].get(mode="promise_in_bounds")

    passed_CA = jnp.zeros((most, rows), jnp.int32)  # the words before the one that holds the number-th of the row
    for step in (1 << n for n in reversed(range(words.bit_length()))):
        farther_CA = passed_CA + step
        passes_CA = (farther_CA <= words) & (taken(upto_WA, farther_CA - 1) <= number_C1)
        passed_CA = jnp.where(passes_CA, farther_CA, passed_CA)
    bits_CA = taken(word_WA, passed_CA)
    rank_CA = number_C1 - jnp.where(passed_CA > 0, taken(upto_WA, passed_CA - 1), 0)
    place_CA, width = WORD * passed_CA, WORD
    while (width := width // 2) >= BYTE:  # the half of these bits that has the one of that rank
        lower_CA = bits_CA & np.uint32((1 << width) - 1)
        in_lower_CA = jax.lax.population_count(lower_CA).astype(jnp.int32)
        upper_CA = rank_CA >= in_lower_CA
        bits_CA = jnp.where(upper_CA, bits_CA >> np.uint32(width), lower_CA)
        rank_CA, place_CA = rank_CA - jnp.where(upper_CA, in_lower_CA, 0), place_CA + jnp.where(upper_CA, width, 0)
    of_byte_CA = jnp.asarray(SET_BITS)[bits_CA.astype(jnp.int32), jnp.clip(rank_CA, 0, BYTE - 1)]
    return jnp.where(passed_CA < words, place_CA + of_byte_CA, count)


# Which bit of a byte is the first that is set, the second, …: (byte, rank); past the last, 0.
SET_BITS = np.array([([b for b in range(BYTE) if byte >> b & 1] + BYTE * [0])[:BYTE] for byte in range(1 << BYTE)])
