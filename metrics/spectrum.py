"""The spectrum of a cloud's covariance: one eigendecomposition, and the metrics computed from it.

Metrics keep the leading axes R of a spectrum: the full cloud and its
resamples. All but `anisotropy_uncentered` are NaN where all points are equal.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    centered,
    entropy,
    largest,
    only,
    product,
    root,
    scale_to_unit,
    small_gram,
)
from anisoscope.metrics.eigen import drop_unresolved, eigen

RANKME_EPSILON = 1e-7  # RankMe's, added to each share of the singular values


class Spectrum(NamedTuple):
    """A cloud's eigenvalues and everything else that the metrics of its spectrum need."""

    # eigenvalues of the covariance about the mean, largest first; 0 below RESOLUTION
    eigenvalues_E: Float[Array, "*R E"]
    mean_E: Float[Array, "*R E"]  # the mean's coordinates along the principal directions
    mean_outside: Float[Array, "*R"]  # the norm of the rest of the mean
    kurtosis: Float[Array, "*R"]  # mean |x - mean|^4 / (mean |x - mean|^2)^2
    width: Float[Array, "*R"]  # D
    points: Float[Array, "*R"]  # P, also in the replicates: to first order they keep its bias


class PowerLaw(NamedTuple):
    exponent: Float[Array, "*R"]
    r2: Float[Array, "*R"]


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


def anisotropy(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Share of the variance along the top principal direction: max(lambda) / sum(lambda), [1/E, 1]."""
    return largest(_shares(spectrum))


def anisotropy_uncentered(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Anisotropy without centering: top eigenvalue share of (1/P) sum_i x_i x_i^T = C + m m^T.

    Range: [1/(E + 1), 1]; 1 for equal points other than 0; NaN if all are 0. The top eigenvalue t
    is the root above lambda_1 of the secular equation sum_e m_e^2/(t - lambda_e) +
    |m_outside|^2/t = 1 (Golub 1973), by bisection of t - lambda_1 in [0, |m|^2].
    """
    value_E, square_E = spectrum.eigenvalues_E, jnp.square(spectrum.mean_E)
    square_outside = jnp.square(spectrum.mean_outside)
    drift, top = square_E.sum(axis=-1) + square_outside, largest(value_E)
    scale = top + drift
    weight_E, outside = square_E / scale[..., None], square_outside / scale
    gap_E = (top[..., None] - value_E) / scale[..., None]

    def halve(_, bounds):
        low, high = bounds
        middle = (low + high) / 2
        term_E = jnp.where(weight_E > 0, weight_E / (middle[..., None] + gap_E), 0.0)
        rest = jnp.where(outside > 0, outside / (middle + top / scale), 0.0)
        above = term_E.sum(axis=-1) + rest > 1
        return jnp.where(above, middle, low), jnp.where(above, high, middle)

    low, high = jax.lax.fori_loop(0, 40, halve, (jnp.zeros_like(scale), drift / scale))
    return (top / scale + (low + high) / 2) / ((value_E.sum(axis=-1) + drift) / scale)


def participation_ratio(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Effective number of directions: (tr C)^2 / tr C^2 = (sum lambda)^2 / sum lambda^2, in [1, E].

    Biased low for few points: 1/PR grows by about 1/P.
    """
    return 1.0 / jnp.square(_shares(spectrum)).sum(axis=-1)


def participation_ratio_of_points(cloud_PD: Points) -> Scalar:
    """`participation_ratio` of a cloud, without its eigenvalues: (tr C)^2 / |C|_F^2."""
    gram_EE = small_gram(scale_to_unit(centered(cloud_PD)))
    return 1.0 / jnp.square(gram_EE / jnp.trace(gram_EE)).sum()


def participation_ratio_corrected(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Participation ratio of the population: unbiased estimates of (tr C)^2 and tr C^2, divided.

    Both are means over all quadruples of different points i, j, k, l: of |x_i - x_j|^2 |x_k -
    x_l|^2 / 4 and of <x_i - x_j, x_k - x_l>^2 / 4. With n points, k = `kurtosis`, c = tr C^2/(tr
    C)^2 they are, up to one factor,
        n^2 - 3n + 1 - (n - 1) k + 2c     and     (n - 1)(n - 2) c + 1 - (n - 1) k.
    Range: > 0, above D by chance. NaN with fewer than 4 points, or if the second estimate is below
    1e-2 of its first term, which is rounding. The denominator is that of Himeno and Yamada 2014.
    """
    n, kurtosis = spectrum.points, spectrum.kurtosis
    c = jnp.square(_shares(spectrum)).sum(axis=-1)
    top = n * n - 3 * n + 1 - (n - 1) * kurtosis + 2 * c
    first = (n - 1) * (n - 2) * c
    bottom = first + 1 - (n - 1) * kurtosis
    return jnp.where((n > 3) & (bottom > 1e-2 * first), top / bottom, jnp.nan)


def effective_rank(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Effective rank, exp(-sum p ln p), of the shares p_e = lambda_e / sum lambda, in [1, E]."""
    return jnp.exp(entropy(_shares(spectrum)))


def rankme_centered(spectrum: Spectrum) -> Float[Array, "*R"]:
    """RankMe of the centered cloud: exp(-sum p ln p), p_e = sigma_e / sum sigma + 1e-7, in [1, E].

    sigma_e = sqrt(lambda_e). Eigenvalues below RESOLUTION are left out: it is 3e-4 too small where
    a quarter of them are, and 1 to 5 % where one direction has 3e8 times the variance of
    every other direction.
    """
    value_E, most = root(spectrum.eigenvalues_E), jnp.minimum(spectrum.points, spectrum.width)
    return perplexity_of_singular_values(value_E, most[..., None])


def perplexity_of_singular_values(
    value_E: Float[Array, "*R E"], most: Float[Array, "*R 1"] | float = jnp.inf
) -> Float[Array, "*R"]:
    """RankMe of singular values: exp(-sum p ln p), p_e = sigma / sum sigma + 1e-7. NaN if all are 0.

    Of more than `most` values, which points and width allow, the last are padding.
    """
    share_E = value_E / value_E.sum(axis=-1, keepdims=True) + RANKME_EPSILON
    rank_E = jnp.broadcast_to(jnp.arange(share_E.shape[-1]), share_E.shape)
    return jnp.exp(entropy(jnp.where(rank_E < most, share_E, 0.0)))


def stable_rank(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Stable rank, tr C / lambda_1 = |X|_F^2 / |X|_2^2 of the centered cloud X, in [1, E]."""
    return 1.0 / largest(_shares(spectrum))


def isoscore(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Share of the dimensions that are used evenly: (PR - 1) / (D - 1), in [0, 1]. NaN if D = 1.

    The algorithm of Rudman et al. 2022 reduces to this.
    """
    return (participation_ratio(spectrum) - 1.0) / (spectrum.width - 1.0)


def covariance_isoscore(covariance_DD: Float[AnyArray, "D D"]) -> Scalar:
    """IsoScore of a covariance C: (tr(C)^2/|C|_F^2 - 1)/(D - 1).

    Range: [0, 1]. NaN if C = 0 or D = 1.
    """
    share_DD = covariance_DD / jnp.trace(covariance_DD)
    return (1.0 / jnp.square(share_DD).sum() - 1.0) / (covariance_DD.shape[0] - 1.0)


def isoscore_shrunk(spectrum: Spectrum) -> Float[Array, "*R"]:
    """IsoScore of (1 - z) C + z C_0, C the covariance, C_0 = (tr C/D) I, z by Ledoit and Wolf 2004.

    z = min(1, (mean |x - m|^4 - tr C^2) / (P |C - (tr C/D) I|_F^2)). Range: [0, 1]. NaN if D = 1;
    also where one or two points hold most of the scatter (`kurtosis` above P/4, and 3): with one, z
    would be 1, and the score that of an isotropic cloud.
    """
    width, share_E = spectrum.width, _shares(spectrum)
    even = 1.0 / width
    # |C - C_0|_F^2 / (tr C)^2
    away = jnp.square(share_E - even[..., None]).sum(axis=-1)
    away = away + (width - share_E.shape[-1]) * even**2
    noise = (spectrum.kurtosis - jnp.square(share_E).sum(axis=-1)) / spectrum.points
    kept = 1.0 - jnp.where(noise < away, noise / jnp.where(noise < away, away, 1.0), 1.0)
    shrunk = kept**2 * away + even  # tr C_z^2 / (tr C)^2: C - C_0 has no trace
    known = ~jnp.isnan(away) & (spectrum.kurtosis <= jnp.maximum(spectrum.points / 4.0, 3.0))
    return jnp.where(known, (1.0 / shrunk - 1.0) / (width - 1.0), jnp.nan)


def alpha_req(spectrum: Spectrum, first: int = 4, last: int = 100) -> PowerLaw:
    """Decay of the spectrum as a power law, lambda_i ~ i^-exponent over ranks first to last.

    Least squares of ln lambda_i on ln i with weights 1/i; R^2 = 1 - weighted residual/weighted
    variance. Eigenvalues below RESOLUTION of the largest are left out; fewer than 3 in the range:
    NaN; all equal: exponent 0, R^2 meaningless.
    """
    value_E = spectrum.eigenvalues_E
    rank_E = jnp.broadcast_to(jnp.arange(1.0, value_E.shape[-1] + 1), value_E.shape)
    used_E = (rank_E >= first) & (rank_E <= last) & (value_E > 0)
    weight_E = jnp.where(used_E, 1.0 / rank_E, 0.0)
    weight_E = weight_E / weight_E.sum(axis=-1, keepdims=True)
    x_E, y_E = jnp.log(rank_E), jnp.log(jnp.where(used_E, value_E, 1.0))
    x_E, y_E = (z_E - (weight_E * z_E).sum(axis=-1, keepdims=True) for z_E in (x_E, y_E))
    variance, covariance, other = (
        (weight_E * z_E).sum(axis=-1) for z_E in (jnp.square(x_E), x_E * y_E, jnp.square(y_E))
    )
    enough = used_E.sum(axis=-1) > 2
    return PowerLaw(
        jnp.where(enough, -covariance / variance, jnp.nan),
        jnp.where(enough, jnp.square(covariance) / (variance * other), jnp.nan),
    )


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


def _shares(spectrum: Spectrum) -> Float[Array, "*R E"]:
    return spectrum.eigenvalues_E / spectrum.eigenvalues_E.sum(axis=-1, keepdims=True)
