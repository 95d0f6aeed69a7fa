"""Find points of a cloud that are copies of one another: equal, or equal up to rounding.

A chain of points, each closer to the next than COPY_ROUNDING of its norm, counts as one point, for which
its first is kept, whatever the order and the scale. The norm is not centered, since float32 rounds
uncentered numbers. G are sums over coordinates, S turns, X pairs of points subtracted at once.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt

from anisoscope.metrics.cloud import AnyArray, Points, only

COPIED_AT_ONCE = (
    128  # points: on a CPU a sum over the whole cloud would first write all its squares
)
# share of |x|: less is rounding. A dozen layers leave up to 1e-6; true neighbors are 1e-3 apart
COPY_ROUNDING = 2e-6
AHEAD = 8  # turns that are examined at once, before the loop
SUMS = 4  # sums of coordinates with random signs: the first orders points, others separate pairs


class Copies(NamedTuple):
    """What each point is a copy of; itself, where no point before it is."""

    original_P: Int[Array, " P"]  # the first copy
    equal_P: Int[Array, " P"]  # the first point equal to this one in every coordinate


def copies(cloud_PD: Points, valid_P: Bool[AnyArray, " P"] | None = None) -> Copies:
    """Find the copies of every point: x_i and x_j with |x_i - x_j| < COPY_ROUNDING min(|x_i|, |x_j|).

    Points that are not finite, or whose squares are beyond float32, have only exact equals; a point
    that is not valid (None: all are) has no copy and is none, and its numbers are meaningless.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    points, width = cloud_PD.shape
    cloud_PD = only(cloud_PD, valid_P)
    # constants: a generator of random numbers takes a second to compile
    factor_2D = np.random.default_rng(0).integers(2**32, size=(2, width), dtype=np.uint32)
    bit_G1 = np.arange(SUMS, dtype=np.uint32)[:, None]
    sign_GD = np.float32((factor_2D[:1] >> bit_G1) & 1) * 2 - 1

    def summarize(x_D: Array) -> tuple[Array, Array, Array]:
        # -0.0 and 0.0 are equal
        bits_D = jax.lax.bitcast_convert_type(jnp.where(x_D == 0, 0.0, x_D), jnp.uint32)
        # carries high bits down: bfloat16 has only those
        bits_D = (bits_D ^ (bits_D >> 16)) * jnp.uint32(0x7FEB352D)
        bits_D = bits_D ^ (bits_D >> 15)
        hash_2 = (bits_D[None] * factor_2D).sum(axis=1, dtype=jnp.uint32)
        return hash_2, jnp.sqrt(jnp.square(x_D).sum()), (x_D[None] * sign_GD).sum(axis=1)

    batch = min(COPIED_AT_ONCE, points) if jax.default_backend() == "cpu" else points
    hash_P2, norm_P, sum_PG = jax.lax.map(summarize, cloud_PD, batch_size=batch)
    equal_P = _equal(hash_P2)
    valid_P = jnp.ones(points, bool) if valid_P is None else valid_P
    equal_P = jnp.where(valid_P, equal_P, jnp.arange(points))  # valid ones come first
    first_P = (equal_P == jnp.arange(points)) & (norm_P < jnp.inf) & valid_P
    original_P = _join(cloud_PD, norm_P, sum_PG, first_P)[equal_P]
    return Copies(original_P, equal_P)


def _equal(hash_P2: UInt[Array, "P 2"]) -> Int[Array, " P"]:
    """Find the first point equal to each, by 64-bit hashes.

    Of a million rows two share a hash with a chance below 1e-7.
    """
    points = len(hash_P2)
    order_P = jnp.lexsort(hash_P2.T)  # stable, so the first of equals has the smallest index
    sorted_P2 = hash_P2[order_P]
    starts_P = jnp.concatenate([jnp.ones(1, bool), (sorted_P2[1:] != sorted_P2[:-1]).any(axis=1)])
    start_P = jax.lax.cummax(jnp.where(starts_P, jnp.arange(points), 0))
    return jnp.zeros(points, jnp.int32).at[order_P].set(order_P[start_P].astype(jnp.int32))


def _join(
    cloud_PD: Float[Array, "P D"],
    norm_P: Float[Array, " P"],
    sum_PG: Float[Array, "P G"],
    first_P: Bool[Array, " P"],
) -> Int[Array, " P"]:
    """Find the first copy of each point among points without an exact equal.

    A sum of coordinates with signs differs by at most sqrt(D) times the distance, and its own
    rounding. So the points are ordered by such a sum, and each is compared with the next ones as
    long as the sums of any pair are that near: P^2 / 2 comparisons at worst.
    """
    points, width = cloud_PD.shape
    root = width**0.5
    reach_P = np.float32(root * (COPY_ROUNDING + max(root, 4.0) * 2.0**-23)) * norm_P
    order_P = jnp.argsort(jnp.where(first_P, sum_PG[:, 0], jnp.inf)).astype(jnp.int32)
    # padded with points near to no other, so that every pair has a second point
    sum_GP = jnp.where(first_P[order_P], sum_PG[order_P].T, jnp.nan)
    sum_GP = jnp.pad(sum_GP, ((0, 0), (0, max(points, AHEAD))), constant_values=jnp.nan)
    reach_P = reach_P[order_P]

    def compare(state: tuple[Array, Array, Array]) -> tuple[Array, Array, Array]:
        step, _, original_P = state
        shifted_GP = jax.lax.dynamic_slice_in_dim(sum_GP, step, points, 1)
        near_GP = jnp.abs(shifted_GP - sum_GP[:, :points]) <= reach_P[None]
        other_P = jnp.roll(order_P, -step)
        open_P = near_GP.all(axis=0) & (original_P[order_P] != original_P[other_P])
        original_P = _merge(cloud_PD, norm_P, order_P, other_P, open_P, original_P)
        return step + 1, near_GP[0].any() & (step < points - 1), original_P

    # Turns of a loop that depends on the data make an accelerator wait for the host. Mostly no pair
    # of the first few turns is near in all sums, and none in the first sum at the last of them.
    window_GPS = jnp.stack([sum_GP[:, step : step + points] for step in range(1, AHEAD + 1)], 2)
    near_GPS = jnp.abs(window_GPS - sum_GP[:, :points, None]) <= reach_P[None, :, None]
    needed = near_GPS.all(axis=0).any() | near_GPS[0, :, -1].any()
    start = jnp.int32(1), needed & (points > 1), jnp.arange(points, dtype=jnp.int32)
    return jax.lax.while_loop(lambda state: state[1], compare, start)[2]


def _merge(
    cloud_PD: Float[Array, "P D"],
    norm_P: Float[Array, " P"],
    left_P: Int[Array, " P"],
    right_P: Int[Array, " P"],
    open_P: Bool[Array, " P"],
    original_P: Int[Array, " P"],
) -> Int[Array, " P"]:
    """Join the open pairs that are near by subtraction, COPIED_AT_ONCE subtracted together."""
    points = len(left_P)
    many = min(COPIED_AT_ONCE, points)

    def subtract(state: tuple[Array, Array]) -> tuple[Array, Array]:
        open_P, near_P = state
        place_X = jnp.minimum(jnp.argmax(open_P), points - many) + jnp.arange(many)
        i_X, j_X = left_P[place_X], right_P[place_X]
        distance_X = jnp.sqrt(jnp.square(cloud_PD[i_X] - cloud_PD[j_X]).sum(axis=1))
        near_X = open_P[place_X] & (
            distance_X < COPY_ROUNDING * jnp.minimum(norm_P[i_X], norm_P[j_X])
        )
        return open_P.at[place_X].set(False), near_P.at[place_X].set(near_X | near_P[place_X])

    def join(state: tuple[Array, Array]) -> tuple[Array, Array]:
        near_P, original_P = state
        place = jnp.argmax(near_P)
        left, right = original_P[left_P[place]], original_P[right_P[place]]
        joined_P = original_P == jnp.maximum(left, right)
        original_P = jnp.where(joined_P, jnp.minimum(left, right), original_P)
        return near_P & (original_P[left_P] != original_P[right_P]), original_P

    def some(state: tuple[Array, Array]) -> Array:
        return state[0].any()

    near_P = jax.lax.while_loop(some, subtract, (open_P, jnp.zeros_like(open_P)))[1]
    return jax.lax.while_loop(some, join, (near_P, original_P))[1]
