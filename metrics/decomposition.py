"""The eigendecomposition of a cloud's covariance, of its resamples, and of its null models.

S are draws of the isotropic null model.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import AnyArray, Points, centered, only, product
from anisoscope.metrics.eigen import drop_unresolved, eigen

EIGENVALUES = 4096  # over all draws: the error of the mean anisotropy is 0.1 to 0.4 % of it
FEWEST_DRAWS = 4  # draws of isotropic spectra


class Spectrum(NamedTuple):
    """A cloud's eigenvalues and everything else that the metrics of its spectrum need."""

    # eigenvalues of the covariance about the mean, largest first; 0 below RESOLUTION
    eigenvalues_E: Float[Array, "*R E"]
    mean_E: Float[Array, "*R E"]  # the mean's coordinates along the principal directions
    mean_outside: Float[Array, "*R"]  # the norm of the rest of the mean
    kurtosis: Float[Array, "*R"]  # mean |x - mean|^4 / (mean |x - mean|^2)^2
    width: Float[Array, "*R"]  # D
    points: Float[Array, "*R"]  # P, also in the replicates: to first order they keep its bias


def spectrum(cloud_PD: Points, keep_RP: Float[AnyArray, "R P"] | None = None) -> Spectrum:
    """Decompose C = (1/P) sum_i (x_i - mean)(x_i - mean)^T, and resamples of the points.

    Fields have a leading axis R, by weights 1 or 0 of the points: 0 is the full cloud, of all points
    that count at all (None: all do); the others leave points out, with eigenvalues to first order,
    v_e^T C_(-r) v_e of the full cloud's v_e.
    E = min(P, D) eigenvalues >= 0; exact zeros where all points are equal, NaN where not finite.
    In float32 the error is about 3e-7 of the largest eigenvalue; for eigenvalues below GRADED / 3
    of the largest it is about 2e-10 of the largest.
    """
    rows, width = cloud_PD.shape
    keep_RP = jnp.ones((1, rows)) if keep_RP is None else jnp.asarray(keep_RP)
    valid_P, points = keep_RP[0] > 0, keep_RP[0].sum()
    x_PD = centered(cloud_PD, valid_P)
    mean_D = only(jnp.asarray(cloud_PD, jnp.float32), valid_P).sum(axis=0) / points
    across = rows < width  # the P x P Gram matrix has the eigenvalues other than 0
    value_E, vector_EE, coordinate_PE = eigen(
        x_PD.T if across else x_PD, coordinates=len(keep_RP) > 1 and not across
    )
    value_E = drop_unresolved(value_E / points)

    square_P = jnp.square(x_PD).sum(axis=1)
    if across:
        length_E = jnp.sqrt(points * value_E)  # length of the coordinates along the direction
        along_E = product(product(x_PD, mean_D), vector_EE)
        mean_E = jnp.where(length_E > 0, along_E / jnp.where(length_E > 0, length_E, 1.0), 0.0)
        outside = jnp.sqrt(jnp.maximum(jnp.square(mean_D).sum() - jnp.square(mean_E).sum(), 0.0))
    else:
        mean_E, outside = product(mean_D, vector_EE), jnp.zeros(())
    if len(keep_RP) == 1:
        kurtosis_R = (only(jnp.square(square_P * points / square_P.sum()), valid_P).sum() / points)[
            None
        ]
        value_RE, mean_RE = value_E[None], mean_E[None]
    else:
        coordinate_PE = vector_EE * length_E[None] if across else coordinate_PE
        value_RE, shift_RE, kurtosis_R = _resample(coordinate_PE, square_P, keep_RP)
        value_RE, mean_RE = jax.vmap(drop_unresolved)(value_RE), mean_E[None] + shift_RE
    outside_R, width_R, points_R = (
        jnp.full_like(kurtosis_R, value) for value in (outside, width, points)
    )
    return Spectrum(value_RE, mean_RE, outside_R, kurtosis_R, width_R, points_R)


def capped(spectrum: Spectrum) -> Spectrum:
    """Shrink the first direction to the variance of the second; one direction stays as it is."""
    value_E = spectrum.eigenvalues_E
    first_E = value_E[..., 1:2] if value_E.shape[-1] > 1 else value_E
    return spectrum._replace(eigenvalues_E=jnp.concatenate([first_E, value_E[..., 1:]], axis=-1))


def _resample(
    coordinate_PE: Float[Array, "P E"], square_P: Float[Array, " P"], keep_RP: Float[Array, "R P"]
) -> tuple[Float[Array, "R E"], Float[Array, "R E"], Float[Array, " R"]]:
    """Compute variances along the full cloud's directions, shifts of the mean, and kurtosis."""
    keep_RP = keep_RP / keep_RP.sum(axis=1, keepdims=True)
    shift_RE = product(keep_RP, coordinate_PE)
    value_RE = product(keep_RP, jnp.square(coordinate_PE)) - jnp.square(shift_RE)
    square_RP = square_P[None] - 2.0 * product(shift_RE, coordinate_PE.T)
    square_RP = square_RP + jnp.square(shift_RE).sum(1)[:, None]
    square_R = (keep_RP * square_RP).sum(axis=1)
    kurtosis_R = (keep_RP * jnp.square(square_RP / square_R[:, None])).sum(axis=1)
    return jnp.maximum(value_RE, 0.0), shift_RE, kurtosis_R


def isotropic_spectra(points: int, width: int) -> Spectrum:
    """Draw spectra of `points` independent normal vectors of one variance in all directions.

    P times the covariance about the mean has Wishart's distribution with n = P - 1 degrees of
    freedom. Its eigenvalues are those of B B^T, B bidiagonal with independent chi variables: of n,
    n - 1, … degrees of freedom on the diagonal, D - 1, …, 1 below it, or with n and D exchanged
    where n < D. Source: Dumitriu and Edelman 2002, Matrix models for beta ensembles.

    Returns:
        A spectrum with a leading axis of draws, always the same of one P and D; `kurtosis` is NaN.
    """
    values_SE, mean_SE, outside_S = _draw(points, width)
    unknown_S, ones_S = np.full(len(values_SE), np.nan, np.float32), np.ones(len(values_SE))
    return Spectrum(values_SE, mean_SE, outside_S, unknown_S, width * ones_S, points * ones_S)


def count_draws(points: int, width: int) -> int:
    """Choose the number of draws."""
    return max(FEWEST_DRAWS, EIGENVALUES // min(points - 1, width))


@functools.cache
def _draw(
    points: int, width: int
) -> tuple[Float[np.ndarray, "S E"], Float[np.ndarray, "S E"], Float[np.ndarray, " S"]]:
    """Draw eigenvalues, largest first, the mean along their directions, and its remaining norm."""
    from scipy.linalg import eigvalsh_tridiagonal  # takes a tenth of a second to import

    rank, most = sorted((points - 1, width))
    draws = count_draws(points, width)
    generator, down_E = np.random.default_rng(0), np.arange(rank)
    diagonal_SE = generator.chisquare(most - down_E, (draws, rank))
    below_SE = generator.chisquare(rank - 1 - down_E[:-1], (draws, rank - 1))
    value_SE = np.stack(
        [
            eigvalsh_tridiagonal(a_E + np.append(0.0, b_E), np.sqrt(a_E[:-1] * b_E))[::-1]
            for a_E, b_E in zip(diagonal_SE, below_SE, strict=True)
        ]
    )
    mean_SE = generator.standard_normal((draws, rank))
    outside_S = np.sqrt(np.square(generator.standard_normal((draws, width - rank))).sum(axis=1))
    missing = ((0, 0), (0, min(points, width) - rank))  # P points span P - 1 directions
    value_SE, mean_SE = (np.pad(x_SE, missing) for x_SE in (np.maximum(value_SE, 0.0), mean_SE))
    root = points**0.5
    return tuple(np.float32(x) for x in (value_SE / points, mean_SE / root, outside_S / root))


def isotropic_draws(points: int, width: int, least: int, most: int) -> tuple[Spectrum, np.ndarray]:
    """Draw spectra of the isotropic null model, with a weight each, in one shape for all points.

    There are `least` to `most` points; the draws of most points are as many as of the fewest.
    """
    draws = isotropic_spectra(points, width)
    count = len(draws.points)
    missing = count_draws(least, width) - count, min(most, width) - draws.eigenvalues_E.shape[1]
    draws = jax.tree.map(
        lambda x_S: np.pad(x_S, [(0, missing[0]), (0, missing[1])][: x_S.ndim], mode="edge"), draws
    )
    beyond = np.arange(draws.eigenvalues_E.shape[1]) < min(points, width)
    draws = draws._replace(eigenvalues_E=draws.eigenvalues_E * beyond, mean_E=draws.mean_E * beyond)
    weight_S = np.where(np.arange(len(draws.points)) < count, 1 / count, 0)
    return jax.tree.map(np.float32, (draws, weight_S))
