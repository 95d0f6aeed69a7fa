"""Families trajectory and windows: the path of a window's vectors, and their spectrum.

Here Q are the points, sorted by window and position, and padding; X stretches of positions.
"""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import AnyArray, Points, Scalar, entropy, product, scale_to_unit
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.eigen import fall_back
from anisoscope.metrics.public_metric import public_metric
from anisoscope.metrics.quantity import Family, Quantity, Values, count, magnitude
from anisoscope.metrics.resampling import Cloud

# first positions of each; the last has no end
STRETCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Turns(NamedTuple):
    """Turning angles at every point; meaningless where `valid_P` is false."""

    angle_P: Float[Array, " P"]  # between the step to the point and the step from it
    walk_P: Float[Array, " P"]  # between a step drawn from all and the step from the point
    valid_P: Bool[Array, " P"]  # both neighboring tokens are in the cloud, at other places


def turns(cloud_PD: Points, window_P: Int[AnyArray, " P"], time_P: Int[AnyArray, " P"]) -> Turns:
    """Curvature at x_t: arccos <v, w> / (|v| |w|) of the steps v = x_t - x_{t-1}, w = x_{t+1} - x_t.

    Points come in any order, with the window and position of each. In radians, [0, pi]. `walk_P` is
    the null model of a random walk: the same steps in random order over all windows. NaN at
    every point if a coordinate is not finite.
    """
    cloud_PD, time_P = scale_to_unit(cloud_PD), jnp.asarray(time_P)
    order_Q = jnp.lexsort((time_P, jnp.asarray(window_P)))  # points of no window are below 0
    x_QD, window_Q, time_Q = cloud_PD[order_Q], jnp.asarray(window_P)[order_Q], time_P[order_Q]
    # from each point; meaningless for the last of a window
    step_QD = jnp.roll(x_QD, -1, axis=0) - x_QD
    next_Q = ((jnp.roll(window_Q, -1) == window_Q) & (jnp.roll(time_Q, -1) == time_Q + 1)) & (
        (time_Q >= 0) & (window_Q >= 0)
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


@public_metric()
def curvature(x: ArrayLike) -> Scalar:
    """Mean angle between successive steps of a path: rows are the tokens of one text, in order.

    An angle in radians, [0, pi]: 0 for a straight path, pi/2 for independent steps, 2 pi/3 for
    independent points. Angles at repeated points are left out; NaN where none is left. Source:
    Hosseini and Fedorenko 2023.
    """
    points = jnp.arange(len(x))
    found = turns(x, jnp.zeros_like(points), points)
    return jnp.where(found.valid_P, found.angle_P, 0.0).sum() / found.valid_P.sum()


def mean_by_stretch(
    value_P: Float[AnyArray, " P"], weight_P: Float[AnyArray, " P"], time_P: Int[AnyArray, " P"]
) -> Float[Array, " X"]:
    """Mean over the points of each of STRETCHES, by position in the window; NaN where empty."""
    first_X, time_P = jnp.array(STRETCHES), jnp.asarray(time_P)
    end_X = jnp.append(first_X[1:], jnp.iinfo(jnp.int32).max)
    inside_XP = (time_P[None] >= first_X[:, None]) & (time_P[None] < end_X[:, None])
    weight_XP = inside_XP * weight_P[None]
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


ROWS_AT_ONCE = 256  # rows of a window decomposed at once; longer windows are first reduced by QR


def prompt_entropy(
    cloud_PD: Points, window_P: Int[AnyArray, " P"]
) -> tuple[Float[Array, " P"], Bool[Array, " P"]]:
    """Matrix entropy of every window: -sum_j p_j ln p_j, p_j = s_j^2 / sum s_j^2, in nats.

    s are the singular values of the window's n vectors, not centered. Returns the entropy of each
    point's window, [0, ln min(n, D)], and whether a point is the first of its window. NaN for a
    window of zeros, and if a coordinate is not finite. Points of a window below 0 are in none;
    their coordinates must be 0.
    """
    points, width = cloud_PD.shape
    cloud_PD, window_P = jnp.asarray(cloud_PD, jnp.float32), jnp.asarray(window_P)
    finite = jnp.isfinite(cloud_PD).all()  # a decomposition of NaN may not end
    rows = min(ROWS_AT_ONCE, points)
    order_P = jnp.argsort(window_P)  # stable
    sorted_P = window_P[order_P]
    x_QD = jnp.pad(jnp.where(finite, cloud_PD, 0.0)[order_P], ((0, rows), (0, 0)))
    starts_P = jnp.concatenate([jnp.ones(1, bool), sorted_P[1:] != sorted_P[:-1]])
    outside = (sorted_P[0] < 0).astype(int)  # one more window
    number_P = jnp.cumsum(starts_P) - 1
    size_P = jnp.zeros(points, int).at[number_P].add(1)
    start_P = jnp.cumsum(size_P) - size_P

    def block(x_QD: Array, start: Array, size: Array) -> Array:
        """Return `size` rows from `start` on, followed by zeros."""
        rows_TD = jax.lax.dynamic_slice_in_dim(x_QD, start, rows)
        return jnp.where(jnp.arange(rows)[:, None] < size, rows_TD, 0.0)

    def folded(x_QD: Array, start: Array, size: Array) -> Array:
        """Compute singular values of a longer window: those of R in QR, row block by row block."""

        def add(number: Array, r_DD: Array) -> Array:
            further_TD = block(x_QD, start + number * rows, size - number * rows)
            return jnp.linalg.qr(jnp.concatenate([r_DD, further_TD]), mode="r")

        r_DD = jax.lax.fori_loop(0, -(-size // rows), add, jnp.zeros((width, width)))
        return jnp.linalg.svd(r_DD, compute_uv=False)

    def at_once(x_QD: Array, start: Array, size: Array) -> Array:
        value_E = jnp.linalg.svd(block(x_QD, start, size), compute_uv=False)
        return jnp.pad(value_E, (0, width - value_E.size))

    def read_window(number: Array, entropy_P: Array) -> Array:
        start, size = start_P[number], size_P[number]
        value_D = fall_back(size > rows, folded, at_once, x_QD, start, size)
        square_D = jnp.square(value_D / value_D[0])  # else squares of small values would underflow
        return entropy_P.at[number].set(entropy(square_D / square_D.sum()))

    entropy_P = jax.lax.fori_loop(outside, number_P[-1] + 1, read_window, jnp.zeros(points))
    entropy_P = jnp.zeros(points).at[order_P].set(entropy_P[number_P])
    first_P = jnp.zeros(points, bool).at[order_P].set(starts_P & (sorted_P >= 0))
    return jnp.where(finite, entropy_P, jnp.nan), first_P


TRAJECTORY_QUANTITIES = {
    "curvature": Quantity(
        "curvature from token to token (contextual curvature)",
        "mean of arccos <v, w> / (|v| |w|), v = x_t - x_(t-1), w = x_(t+1) - x_t, at the points of "
        "the cloud whose neighbors in the window are in it too; 0 for a straight path, pi/2 for "
        "independent steps, 2 pi/3 for independent points",
        "Hosseini and Fedorenko 2023, Large language models implicitly learn to straighten neural "
        "trajectories; by layer as in arXiv 2604.23985, whose formula is reconstructed",
        range=(0.0, math.pi),
        units="rad",
    ),
    "curvature_random_walk": Quantity(
        "curvature of a random walk of the same steps",
        "curvature with each v that of another point, in random order over all windows",
        range=(0.0, math.pi),
        units="rad",
    ),
    "curvature_by_position": Quantity(
        "curvature by the place in the window",
        "curvature at the points from this position of their window up to the next one listed",
        range=(0.0, math.pi),
        units="rad",
        dims=("layer", "from_position"),
    ),
    "curvature_points": count(
        "points whose curvature is known",
        "points whose tokens before and after are in the cloud, at other places in space",
    ),
}
WINDOW_QUANTITIES = {
    "prompt_entropy": magnitude(
        "entropy of a window's spectrum",
        "mean over windows of -sum p ln p, p = s^2 / sum(s^2), s the singular values of the n "
        "vectors of the cloud in one window, not centered; at most ln min(n, D)",
        "Skean et al. 2025, Layer by Layer, order 1; by window as in Queipo-de-Llano et al. 2025",
        units="nat",
    )
}


def measure_trajectory(cloud: Cloud) -> Values:
    """Average over points, (R,); NaN where the places of the points are unknown."""
    time_P = cloud.places.time_P
    found = turns(cloud.points_PD, cloud.places.window_P, time_P)
    angle_P, walk_P = (jnp.where(found.valid_P, value_P, 0.0) for value_P in found[:2])

    by_position = jax.vmap(lambda keep_P: mean_by_stretch(angle_P, keep_P * found.valid_P, time_P))(
        cloud.labels.keep_RP
    )
    return {
        "curvature": cloud.fold_means(angle_P, found.valid_P),
        "curvature_random_walk": cloud.fold_means(walk_P, found.valid_P),
        "curvature_by_position": by_position.T,
        "curvature_points": found.valid_P.sum(dtype=jnp.int32),
    }


def measure_windows(cloud: Cloud) -> Values:
    """Average over windows, (R,); NaN where the windows of the points are unknown."""
    entropy_P, first_P = prompt_entropy(cloud.points_PD, cloud.places.window_P)
    return dict.fromkeys(WINDOW_QUANTITIES, cloud.fold_means(entropy_P, first_P))


TRAJECTORY = Family(
    "cloud", measure_trajectory, TRAJECTORY_QUANTITIES, coordinates={"from_position": STRETCHES}
)
WINDOWS = Family("cloud", measure_windows, WINDOW_QUANTITIES)
