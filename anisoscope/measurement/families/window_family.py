"""Families trajectory and windows: the path of a window's vectors, and their spectrum."""

import math

import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.quantity import Family, Quantity, Values, count, magnitude
from anisoscope.measurement.resampling import Cloud
from anisoscope.metrics import windows

TRAJECTORY = {
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
    if cloud.places is None:
        zero_P = jnp.zeros(len(cloud.points_PD), int)
        turns = windows.turns(cloud.points_PD, jnp.arange(len(zero_P)), zero_P)
        time_P = zero_P
    else:
        time_P = cloud.places.time_P
        turns = windows.turns(cloud.points_PD, cloud.places.window_P, time_P)
    angle_P, walk_P = (jnp.where(turns.valid_P, value_P, 0.0) for value_P in turns[:2])

    def stretches(keep_P: Array) -> Values:
        return {
            "curvature_by_position": windows.mean_by_stretch(
                angle_P, keep_P * turns.valid_P, time_P
            )
        }

    by_position = cloud.over_folds(stretches)
    return {
        "curvature": cloud.fold_means(angle_P, turns.valid_P),
        "curvature_random_walk": cloud.fold_means(walk_P, turns.valid_P),
        "curvature_points": turns.valid_P.sum(dtype=jnp.int32),
    } | {name: value.T for name, value in by_position.items()}


def measure_windows(cloud: Cloud) -> Values:
    """Average over windows, (R,); NaN where the windows of the points are unknown."""
    if cloud.places is None:
        entropy_P, first_P = jnp.full(len(cloud.points_PD), jnp.nan), None
    else:
        entropy_P, first_P = windows.prompt_entropy(cloud.points_PD, cloud.places.window_P)
    return dict.fromkeys(WINDOW_QUANTITIES, cloud.fold_means(entropy_P, first_P))


FAMILIES = {
    "trajectory": Family(
        measure_trajectory, TRAJECTORY, coordinates={"from_position": windows.STRETCHES}
    ),
    "windows": Family(measure_windows, WINDOW_QUANTITIES),
}
