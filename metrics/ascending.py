"""Candidates measured and put in order: what the search for neighbours does with those it was proposed.

Letters here: P points, C candidates of each, D coordinates.
"""

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Int, UInt

GATHERED = 2**17  # coordinates of candidates that exist at once: a core's cache holds them; an accelerator takes more
EXCHANGES = 4  # rounds in which neighbouring candidates change places, before all are sorted


def by_subtraction(
    cloud_PD: Float[Array, "P D"], candidate_PC: Int[Array, "P C"]
) -> tuple[Float[Array, "P C"], Int[Array, "P C"]]:
    """Distances to the candidates, ascending, and their indices: inf and 0 where there is none."""
    points, width = cloud_PD.shape
    ones_D = jnp.ones(width)

    def of_point(of: tuple[Array, Array]) -> Array:
        i, index_C = of
        # a product with ones adds up what lies in the cache in half the time of a sum
        square_C = jnp.matmul(jnp.square(cloud_PD[index_C] - cloud_PD[i][None]), ones_D, precision=Precision.HIGHEST)
        return jnp.where(index_C < points, jnp.sqrt(square_C), jnp.inf)

    gathered = GATHERED if jax.default_backend() == "cpu" else 8 * GATHERED
    at_once = max(1, min(points, gathered // (candidate_PC.shape[1] * width)))
    distance_PC = jax.lax.map(of_point, (jnp.arange(points), candidate_PC), batch_size=at_once)
    return ascending(distance_PC, jnp.where(candidate_PC < points, candidate_PC, 0))


def ascending(
    distance_PC: Float[Array, "P C"], index_PC: Int[Array, "P C"]
) -> tuple[Float[Array, "P C"], Int[Array, "P C"]]:
    """Both in the order of the distances, which are not negative; of equal ones in the order given, NaN last.

    They come nearly in order: a few rounds of exchanges do where all would take ten times as long to sort.
    """
    candidates = distance_PC.shape[1]

    def in_order(distance_PC: Array) -> Array:
        return (distance_PC[:, 1:] >= distance_PC[:, :-1]).all()

    def exchange(found: tuple[Array, Array], odd: int) -> tuple[Array, Array]:
        """Each of an even place, or of an odd one, with the next where that is nearer."""
        place_C = jnp.arange(candidates)
        left_1C = ((place_C % 2 == odd) & (place_C < candidates - 1))[None]
        right_1C = jnp.roll(left_1C, 1, axis=1)
        distance_PC, index_PC = found
        nearer_PC = left_1C & (jnp.roll(distance_PC, -1, axis=1) < distance_PC)
        farther_PC = right_1C & (jnp.roll(distance_PC, 1, axis=1) > distance_PC)

        def moved(x_PC: Array) -> Array:
            before_PC, next_PC = jnp.roll(x_PC, 1, axis=1), jnp.roll(x_PC, -1, axis=1)
            return jnp.where(nearer_PC, next_PC, jnp.where(farther_PC, before_PC, x_PC))

        return moved(distance_PC), moved(index_PC)

    def again(state: tuple) -> tuple:
        number, found = state
        return number + 1, exchange(exchange(found, 0), 1)

    _, found = jax.lax.while_loop(
        lambda state: (state[0] < EXCHANGES) & ~in_order(state[1][0]), again, (0, (distance_PC, index_PC))
    )
    return jax.lax.cond(in_order(found[0]), lambda: found, lambda: from_any_order(*found))


def from_any_order(
    distance_PC: Float[Array, "P C"], index_PC: Int[Array, "P C"]
) -> tuple[Float[Array, "P C"], Int[Array, "P C"]]:
    """`ascending` from any order.

    By the low bits, then by the high ones: XLA sorts 32-bit integers alone three times as fast as pairs with a float.
    The lowest bits of both keys say which candidate it is.
    """
    candidates = distance_PC.shape[1]
    place_C, own = jnp.arange(candidates, dtype=jnp.uint32)[None], candidates.bit_length()
    bits_PC = jax.lax.bitcast_convert_type(distance_PC, jnp.uint32)

    def taken(x_PC: Array, place_PC: UInt[Array, "P C"]) -> Array:
        return jnp.take_along_axis(x_PC, place_PC.astype(jnp.int32), axis=1, mode="promise_in_bounds")

    def order(key_PC: UInt[Array, "P C"]) -> UInt[Array, "P C"]:
        return jax.lax.sort(key_PC | place_C) & ((1 << own) - 1)

    by_low_PC = order(bits_PC << own)
    place_PC = taken(by_low_PC, order(taken(bits_PC, by_low_PC) >> (32 - own) << own))
    return taken(distance_PC, place_PC), taken(index_PC, place_PC)
