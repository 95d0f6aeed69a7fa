"""Curvature of the path of a window's vectors from token to token.

Here Q are the points in the order of the text, X stretches of positions.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import AnyArray, product, scale_to_unit

# first positions of each; the last has no end
STRETCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Turns(NamedTuple):
    """Turning angles at every point; without meaning where `valid_P` is false."""

    angle_P: Float[Array, " P"]  # between the step to the point and the step from it
    # between a random step of all steps to a point, and the step from this point
    walk_P: Float[Array, " P"]
    # both neighboring tokens are in the cloud too, and both steps have a length
    valid_P: Bool[Array, " P"]


def turns(
    cloud_PD: Float[AnyArray, "P D"], window_P: Int[AnyArray, " P"], time_P: Int[AnyArray, " P"]
) -> Turns:
    """Curvature at x_t: arccos <v, w> / (|v| |w|) of the steps v = x_t - x_{t-1}, w = x_{t+1} - x_t.

    Shapes: P points of width D, each point's window and position in it, in any order -> P values,
    radian. Range: [0, pi]. A straight path has 0, independent steps of mean 0 have pi/2 on average,
    independent points of one distribution 2 pi/3 in many dimensions, a path to and fro pi. `walk_P`
    is the null model of a random walk: the same steps, with the steps to a point drawn in random
    order over all windows; common directions of all steps stay. A coordinate that is not finite:
    NaN at every point. Source: Hosseini and Fedorenko 2023, Large language models implicitly learn
    to straighten neural sentence trajectories; the random walk of the same steps is ours.
    """
    cloud_PD, time_P = scale_to_unit(cloud_PD), jnp.asarray(time_P)
    order_Q = jnp.lexsort((time_P, jnp.asarray(window_P)))
    x_QD, window_Q, time_Q = cloud_PD[order_Q], jnp.asarray(window_P)[order_Q], time_P[order_Q]
    # from each point; of the last of a window without meaning
    step_QD = jnp.roll(x_QD, -1, axis=0) - x_QD
    next_Q = (
        (jnp.roll(window_Q, -1) == window_Q) & (jnp.roll(time_Q, -1) == time_Q + 1) & (time_Q >= 0)
    )
    length_Q = jnp.linalg.norm(step_QD, axis=1)
    unit_QD = step_QD / jnp.where(length_Q == 0, 1.0, length_Q)[:, None]
    moves_Q = next_Q & (length_Q != 0)  # true for NaN, which must stay visible
    before_QD, valid_Q = jnp.roll(unit_QD, 1, axis=0), jnp.roll(moves_Q, 1) & moves_Q
    valid_Q = valid_Q.at[0].set(False)
    shuffled_Q = _shuffled(valid_Q)
    angles = [
        jnp.zeros(len(x_QD)).at[order_Q].set(_angles(v, unit_QD))
        for v in (before_QD, before_QD[shuffled_Q])
    ]
    finite = jnp.where(jnp.isfinite(cloud_PD).all(), 0.0, jnp.nan)
    return Turns(
        *(angle_P + finite for angle_P in angles),
        jnp.zeros(len(x_QD), bool).at[order_Q].set(valid_Q),
    )


def mean_by_stretch(
    value_P: Float[AnyArray, " P"], weight_P: Float[AnyArray, " P"], time_P: Int[AnyArray, " P"]
) -> Float[Array, " X"]:
    """Mean over the points of each of STRETCHES, by position in the window; NaN where empty."""
    first_X, time_P = jnp.array(STRETCHES), jnp.asarray(time_P)
    end_X = jnp.append(first_X[1:], jnp.iinfo(jnp.int32).max)
    weight_XP = ((time_P[None] >= first_X[:, None]) & (time_P[None] < end_X[:, None])) * weight_P[
        None
    ]
    return product(weight_XP, value_P) / weight_XP.sum(axis=1)


def _shuffled(valid_Q: Bool[Array, " Q"]) -> Int[Array, " Q"]:
    """Replace each valid entry by another, in random order."""
    points = len(valid_Q)
    random_Q = jax.random.permutation(jax.random.key(0), points)
    place_Q = jnp.nonzero(valid_Q, size=points, fill_value=0)[0]  # place of the n-th valid point
    shuffled_Q = random_Q[jnp.nonzero(valid_Q[random_Q], size=points, fill_value=0)[0]]
    return (
        jnp.zeros(points, place_Q.dtype)
        .at[jnp.where(valid_Q, jnp.arange(points), points)]
        .set(shuffled_Q[jnp.cumsum(valid_Q) - 1], mode="drop")
    )


def _angles(v_QD: Float[Array, "Q D"], w_QD: Float[Array, "Q D"]) -> Float[Array, " Q"]:
    """Compute angles between unit vectors; arccos would lose the digits of small angles."""
    return 2 * jnp.arctan2(
        jnp.linalg.norm(v_QD - w_QD, axis=1), jnp.linalg.norm(v_QD + w_QD, axis=1)
    )
