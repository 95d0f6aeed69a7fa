"""The spectrum of a cloud's covariance, and what is read off it."""

import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float

from metrics.cloud import centred


def covariance_eigenvalues(cloud_PD: Float[Array, "P D"]) -> Float[Array, " E"]:
    """Eigenvalues of C = (1/P) sum_i (x_i - mean)(x_i - mean)^T, largest first.

    Shapes: P points of width D give E = min(P, D) eigenvalues; with fewer points than dimensions the P x P Gram
    matrix has the same ones that can differ from zero. Units: those of x, squared. Range: >= 0, rounding clipped.
    Float32: an eigenvalue is good to about 1e-6 of the largest. All points equal: exact zeros. A non-finite
    coordinate: NaN. Source: the squared singular values of LLM-Microscope's centred matrix, over P.
    """
    points, width = cloud_PD.shape
    x_PD = centred(cloud_PD)
    if points < width:
        gram = jnp.matmul(x_PD, x_PD.T, precision=Precision.HIGHEST)
    else:
        gram = jnp.matmul(x_PD.T, x_PD, precision=Precision.HIGHEST)
    return jnp.maximum(jnp.linalg.eigvalsh(gram / points)[::-1], 0.0)


def anisotropy(eigenvalues_E: Float[Array, " E"]) -> Float[Array, ""]:
    """Share of the variance along the top principal direction: max(lambda) / sum(lambda).

    Shapes: E eigenvalues of a centred covariance -> scalar. Units: none. Range: [1/E, 1]. All eigenvalues zero (all
    points equal): NaN, since no direction has variance. Source: Razzhigaev et al. 2024, s_1^2 / sum s_i^2 of the
    centred cloud, as in their published code.
    """
    return eigenvalues_E.max() / eigenvalues_E.sum()
