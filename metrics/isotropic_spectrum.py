"""Spectra of isotropic Gaussian clouds: the effect of finite sampling alone.

Eigenvalues are drawn without the cloud. S are draws.
"""

import functools

import numpy as np
from jaxtyping import Float

from anisoscope.metrics.spectrum import Spectrum

EIGENVALUES = (
    4096  # eigenvalues over all draws: the error of the mean anisotropy is 0.1 to 0.4 % of it
)
FEWEST = 4  # draws


def isotropic_spectra(points: int, width: int) -> Spectrum:
    """Draw spectra of `points` independent normal vectors of one variance in all directions.

    P times the covariance about the mean has Wishart's distribution with n = P - 1 degrees of
    freedom. Its eigenvalues are those of B B^T, B bidiagonal with independent chi variables: of n,
    n - 1, … degrees of freedom on the diagonal, D - 1, …, 1 below it, or with n and D exchanged
    where n < D. So a draw takes O(min(P, D)^2), where the cloud's own spectrum takes O(P D^2). For
    many points and dimensions the eigenvalues are Marchenko and Pastur's. Source: Dumitriu and
    Edelman 2002, Matrix models for beta ensembles.

    Args:
        points: P, 2 or more.
        width: D.

    Returns:
        A spectrum with a leading axis of draws, always the same of one P and D: units of the
        variance of a coordinate, squared; `kurtosis` is NaN, as eigenvalues do not tell it.
    """
    values_SE, mean_SE, outside_S = _draw(points, width)
    unknown_S, ones_S = np.full(len(values_SE), np.nan, np.float32), np.ones(len(values_SE))
    return Spectrum(values_SE, mean_SE, outside_S, unknown_S, width * ones_S, points * ones_S)


@functools.cache
def _draw(
    points: int, width: int
) -> tuple[Float[np.ndarray, "S E"], Float[np.ndarray, "S E"], Float[np.ndarray, " S"]]:
    """Draw eigenvalues, largest first, the mean along their directions, and its remaining norm."""
    from scipy.linalg import eigvalsh_tridiagonal  # takes a tenth of a second to import

    rank, most = sorted((points - 1, width))
    draws = max(FEWEST, EIGENVALUES // rank)
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
