"""What can be said of each point of a cloud by itself; its local dimension is in metrics/scale.py."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import AnyArray, centred
from anisoscope.metrics.eigen import product
from anisoscope.metrics.leading import top_direction
from anisoscope.metrics.similarity import cosine


class Points(NamedTuple):
    norm_P: Float[Array, " P"]  # |x_i|
    cosine_to_mean_P: Float[Array, " P"]
    first_score_P: Float[Array, " P"]


def of_points(cloud_PD: Float[AnyArray, "P D"]) -> Points:
    """Norm, cosine to the mean, and score on the first principal direction of every point.

    norm |x_i|; cosine_to_mean <x_i, m> / (|x_i| |m|), m = E x; first_score <x_i - m, v>, v the first principal
    direction. An eigenvector has no sign: v is turned so that the scores have a third moment >= 0, that is, their
    longer tail is positive. Shapes: P points of width D -> three arrays (P,). Units: norm and score those of x, the
    cosine none. Range: norm >= 0, cosine [-1, 1]. A point or a mean that is 0: cosine NaN. All points equal, or a
    coordinate that is not finite: NaN scores. Source: the cosine after Godey et al. 2024; first principal direction of
    Razzhigaev et al. 2024; the sign is this project's.
    """
    x_PD = centred(cloud_PD)
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    mean_D = cloud_PD.mean(axis=0)
    direction_D = top_direction(product(x_PD.T, x_PD))
    score_P = product(x_PD, direction_D)
    sign = jnp.where(((score_P / jnp.abs(score_P).max()) ** 3).sum() < 0, -1.0, 1.0)
    cosine_P = jax.vmap(cosine, in_axes=(0, None))(cloud_PD, mean_D)
    return Points(jnp.linalg.norm(cloud_PD, axis=1), cosine_P, sign * score_P)
