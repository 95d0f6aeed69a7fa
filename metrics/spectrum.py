"""Family spectrum: what is read of the eigenvalues of the centered cloud.

All come from one decomposition, and keep the leading axes R of a spectrum: the full cloud and its
resamples. In the formulas, lambda are the eigenvalues of the covariance C, largest first, D is the
width and P the points; S are draws of the isotropic null model. All but `anisotropy_uncentered` and
`rankme` are NaN where all points are equal.
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
    root,
    scale_to_unit,
    small_gram,
)
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.decomposition import Spectrum, capped, isotropic_draws, spectrum
from anisoscope.metrics.eigen import eigh
from anisoscope.metrics.public_metric import public_metric
from anisoscope.metrics.quantity import (
    AT_LEAST_1,
    CAPPED,
    ISOTROPIC,
    MEASURED,
    SHAPE_OF_LEARNING,
    Family,
    Quantity,
    Values,
    magnitude,
    read_all,
    share,
)
from anisoscope.metrics.resampling import Cloud

RANKME_EPSILON = 1e-7  # RankMe's, added to each share of the singular values


def _shares(spectrum: Spectrum) -> Float[Array, "*R E"]:
    return spectrum.eigenvalues_E / spectrum.eigenvalues_E.sum(axis=-1, keepdims=True)


def _top_share(x_PD: Array) -> Array:
    """Compute the top eigenvalue's share of the trace, with a gradient.

    `read_anisotropy_uncentered` has a bisection, which has no gradient.
    """
    square_EE = small_gram(scale_to_unit(x_PD))
    return jnp.minimum(eigh(square_EE)[0][-1] / jnp.trace(square_EE), 1.0)  # rounding


def _decompose(x_PD: Array) -> Spectrum:
    return jax.tree.map(lambda field_R: field_R[0], spectrum(x_PD))


def read_anisotropy(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Read `anisotropy`, in [1/E, 1]."""
    return largest(_shares(spectrum))


@public_metric()
def anisotropy(x: ArrayLike) -> Scalar:
    """Share of the variance along the top principal direction: lambda_1 / sum(lambda).

    A share of the covariance's trace, in [1/min(points, width), 1]; NaN where all points are equal.
    Source: Razzhigaev et al. 2024, The Shape of Learning.
    """
    return _top_share(centered(x))


def read_anisotropy_uncentered(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Read `anisotropy_uncentered`, the top eigenvalue share of C + m m^T, in [1/(E + 1), 1].

    1 for equal points other than 0; NaN if all are 0. The top eigenvalue t is the root above
    lambda_1 of the secular equation sum_e m_e^2/(t - lambda_e) + |m_outside|^2/t = 1 (Golub 1973),
    by bisection of t - lambda_1 in [0, |m|^2].
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


@public_metric(about_mean=False)
def anisotropy_uncentered(x: ArrayLike) -> Scalar:
    """Share of the top direction of (1/P) X^T X, not centered: near 1 where the mean dominates.

    A share in [1/min(points, width), 1]; NaN where all points are 0. Source: as for `anisotropy`,
    without centering.
    """
    return _top_share(x)


def read_participation_ratio(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Read `participation_ratio`, in [1, E]; for few points 1/PR grows by about 1/P."""
    return 1.0 / jnp.square(_shares(spectrum)).sum(axis=-1)


def _participation_ratio(cloud_PD: Points) -> Scalar:
    """`participation_ratio` of a cloud, without its eigenvalues: (tr C)^2 / |C|_F^2."""
    gram_EE = small_gram(scale_to_unit(centered(cloud_PD)))
    return 1.0 / jnp.square(gram_EE / jnp.trace(gram_EE)).sum()


@public_metric()
def participation_ratio(x: ArrayLike) -> Scalar:
    """Effective number of principal directions: (sum lambda)^2 / sum lambda^2.

    A number of directions in [1, min(points, width)], biased low for few points; NaN where all
    points are equal. Source: the inverse participation ratio of physics; Gao et al. 2017 for
    neurons.
    """
    return _participation_ratio(x)


def read_participation_ratio_corrected(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Read `participation_ratio_corrected`: unbiased estimates of (tr C)^2 and tr C^2, divided.

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


@public_metric()
def participation_ratio_corrected(x: ArrayLike) -> Scalar:
    """Participation ratio of the population, without the bias that few points cause.

    Assumes independent points. A number of directions above 0, by chance even above the width; NaN
    for fewer than 4 points, or where only rounding is left. Source: Chun et al. 2025; the
    closed form in moments is derived here.
    """
    return read_participation_ratio_corrected(_decompose(x))


def read_effective_rank(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Read `effective_rank`, in [1, E]."""
    return jnp.exp(entropy(_shares(spectrum)))


@public_metric()
def effective_rank(x: ArrayLike) -> Scalar:
    """Effective rank, exp(-sum p ln p), of the eigenvalue shares p of the covariance.

    A number of directions in [1, min(points, width)]; NaN where all points are equal. Source: Roy
    and Vetterli 2007, applied to the covariance of the cloud.
    """
    return read_effective_rank(_decompose(x))


def read_rankme_centered(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Read `rankme_centered`, in [1, E], from sigma_e = sqrt(lambda_e).

    Eigenvalues below RESOLUTION are left out: it is 3e-4 too small where
    a quarter of them are, and 1 to 5 % where one direction has 3e8 times the variance of
    every other direction.
    """
    value_E, most = root(spectrum.eigenvalues_E), jnp.minimum(spectrum.points, spectrum.width)
    return compute_rankme(value_E, most[..., None])


def compute_rankme(
    value_E: Float[Array, "*R E"], most: Float[Array, "*R 1"] | float = jnp.inf
) -> Float[Array, "*R"]:
    """RankMe of singular values: exp(-sum p ln p), p_e = sigma / sum sigma + 1e-7. NaN if all are 0.

    Of more than `most` values, which points and width allow, the last are padding.
    """
    share_E = value_E / value_E.sum(axis=-1, keepdims=True) + RANKME_EPSILON
    rank_E = jnp.broadcast_to(jnp.arange(share_E.shape[-1]), share_E.shape)
    return jnp.exp(entropy(jnp.where(rank_E < most, share_E, 0.0)))


@public_metric()
def rankme_centered(x: ArrayLike) -> Scalar:
    """RankMe of the centered cloud: the mean does not count as a direction.

    A number of directions in [1, min(points, width)], up to 1e-5; NaN where all points are equal.
    Source: Garrido et al. 2023, who do not center; the centering is this project's.
    """
    return read_rankme_centered(_decompose(x))


@public_metric(about_mean=False)
def rankme(x: ArrayLike) -> Scalar:
    """RankMe: exp(-sum p ln p), p = s / sum(s) + 1e-7, s the singular values of x, not centered.

    A mean far from the origin counts as one more direction, the largest: see `rankme_centered`. A
    number of directions in [1, min(points, width)], up to 1e-5; NaN where all points are 0. Source:
    Garrido et al. 2023.
    """
    return compute_rankme(jnp.linalg.svd(x, compute_uv=False))


def read_stable_rank(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Read `stable_rank`, tr C / lambda_1 = |X|_F^2 / |X|_2^2 of the centered cloud X, in [1, E]."""
    return 1.0 / largest(_shares(spectrum))


@public_metric()
def stable_rank(x: ArrayLike) -> Scalar:
    """Sum of the eigenvalues over the largest: 1 / `anisotropy`.

    A number of directions in [1, min(points, width)]; NaN where all points are equal. Source:
    Rudelson and Vershynin 2007, who call it the numerical rank.
    """
    return 1.0 / _top_share(centered(x))


def read_isoscore(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Read `isoscore`, in [0, 1]; NaN if D = 1."""
    return (read_participation_ratio(spectrum) - 1.0) / (spectrum.width - 1.0)


def covariance_isoscore(covariance_DD: Float[AnyArray, "D D"]) -> Scalar:
    """IsoScore of a covariance C: (tr(C)^2/|C|_F^2 - 1)/(D - 1).

    Range: [0, 1]. NaN if C = 0 or D = 1.
    """
    share_DD = covariance_DD / jnp.trace(covariance_DD)
    return (1.0 / jnp.square(share_DD).sum() - 1.0) / (covariance_DD.shape[0] - 1.0)


@public_metric()
def isoscore(x: ArrayLike) -> Scalar:
    """IsoScore: 1 for equal variance in all directions, 0 for all variance in one direction.

    (PR - 1) / (D - 1), PR the `participation_ratio`: the closed form of the algorithm of Rudman et
    al. 2022. A number in [0, 1]; NaN where all points are equal, or width is 1.
    """
    return (_participation_ratio(x) - 1.0) / (x.shape[1] - 1.0)


def read_isoscore_star(spectrum: Spectrum) -> Float[Array, "*R"]:
    """Read `isoscore_star`: IsoScore of (1 - z) C + z C_0, C_0 = (tr C/D) I.

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


@public_metric()
def isoscore_star(x: ArrayLike) -> Scalar:
    """IsoScore* of one cloud: `isoscore` of the covariance shrunk toward an isotropic one.

    A number in [0, 1], with less bias for few points than `isoscore`. NaN where all points are
    equal, width is 1, or one or two points hold most of the variance. Source: Rudman and
    Eickhoff 2024; the weight of Ledoit and Wolf 2004 is this project's choice.
    """
    return read_isoscore_star(_decompose(x))


class PowerLaw(NamedTuple):
    exponent: Float[Array, "*R"]
    r2: Float[Array, "*R"]


def read_alpha_req(spectrum: Spectrum, first: int = 4, last: int = 100) -> PowerLaw:
    """Read `alpha_req`, the decay lambda_i ~ i^-exponent over ranks first to last, and its fit.

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


@public_metric()
def alpha_req(x: ArrayLike) -> Scalar:
    """alpha-ReQ: the exponent alpha of lambda_i ~ i^-alpha, fitted to eigenvalues 4 to 100.

    An exponent, 0 or above; NaN where fewer than 3 eigenvalues can be fitted. Source: Agrawal et
    al. 2022, with the weights 1/i of their code.
    """
    return read_alpha_req(_decompose(x)).exponent


SAMPLING = (
    "isotropic, as many independent normal points with one variance in all directions, says what "
    "sampling alone gives"
)
SAME_SPECTRUM = "a Gaussian cloud of the same spectrum has the same value"
CHANCE_OF_SPECTRUM = {
    "nulls": (ISOTROPIC, CAPPED),
    "null_words": f"{SAMPLING}; capped, the first direction shrunk to the variance of the second, "
    f"says what this direction adds; {SAME_SPECTRUM}",
}
POWER_LAW = {"nulls": (ISOTROPIC,), "null_words": f"{SAMPLING}; {SAME_SPECTRUM}"}
UNBIASED = "it corrects for sampling itself, so no null model says more"
SPECTRUM_QUANTITIES = {
    "anisotropy": share(
        "anisotropy",
        "max(lambda) / sum(lambda)",
        SHAPE_OF_LEARNING,
        **CHANCE_OF_SPECTRUM,
        read=read_anisotropy,
    ),
    "anisotropy_uncentered": share(
        "anisotropy about the origin",
        "top eigenvalue's share of (1/P) sum_i x_i x_i^T, not centered",
        nulls=(ISOTROPIC,),
        null_words=f"{SAMPLING}; random signs of the vectors leave it as it is",
        read=read_anisotropy_uncentered,
    ),
    "participation_ratio": Quantity(
        "participation ratio",
        "(sum lambda)^2 / sum(lambda^2)",
        "Gao et al. 2017, after Litwin-Kumar et al. 2017",
        range=AT_LEAST_1,
        **CHANCE_OF_SPECTRUM,
        read=read_participation_ratio,
    ),
    "participation_ratio_corrected": magnitude(
        "participation ratio, corrected for the number of points",
        "unbiased estimate of (tr C)^2 / unbiased estimate of tr C^2, points taken as independent",
        "reconstruction after Chun et al. 2025",
        null_words=UNBIASED,
        read=read_participation_ratio_corrected,
    ),
    "effective_rank": Quantity(
        "effective rank",
        "exp(-sum p ln p), p = lambda / sum(lambda)",
        "after Roy and Vetterli 2007",
        range=AT_LEAST_1,
        **CHANCE_OF_SPECTRUM,
        read=read_effective_rank,
    ),
    "rankme_centered": Quantity(
        "RankMe of the centered cloud",
        "exp(-sum p ln p), p = s / sum(s) + 1e-7, s = sqrt(lambda)",
        "Garrido et al. 2023, who do not center",
        range=AT_LEAST_1,
        **CHANCE_OF_SPECTRUM,
        read=read_rankme_centered,
    ),
    "stable_rank": Quantity(
        "stable rank",
        "sum(lambda) / max(lambda)",
        "Rudelson and Vershynin 2007",
        range=AT_LEAST_1,
        **CHANCE_OF_SPECTRUM,
        read=read_stable_rank,
    ),
    "isoscore": share(
        "IsoScore",
        "((sum lambda)^2 / sum(lambda^2) - 1) / (D - 1)",
        "Rudman et al. 2022",
        **CHANCE_OF_SPECTRUM,
        read=read_isoscore,
    ),
    "isoscore_star": share(
        "IsoScore*",
        "IsoScore of (1 - z) C + z tr(C)/D I, z after Ledoit and Wolf 2004",
        "Rudman and Eickhoff 2024; target and weight: this project",
        null_words=UNBIASED,
        read=read_isoscore_star,
    ),
    "alpha_req": magnitude(
        "power-law exponent of the spectrum",
        "-slope of ln lambda_i on ln i, weights 1/i, i = 4 ... 100 as far as lambda_i > 1e-9 "
        "lambda_1",
        "Agrawal et al. 2022",
        **POWER_LAW,
        read=lambda spectra: read_alpha_req(spectra).exponent,
    ),
    "alpha_req_r2": share(
        "R^2 of the power law",
        "R^2 of the line of alpha_req",
        **POWER_LAW,
        read=lambda spectra: read_alpha_req(spectra).r2,
    ),
}


def measure_spectrum(cloud: Cloud) -> dict[str, Values]:
    """Measure a cloud and, to first order, the cloud without each of its folds.

    The null models come from the same decomposition, or from no decomposition; all are read at once.
    """
    spectra = spectrum(cloud.points_PD, cloud.labels.keep_RP)
    replicates, (draws, weight_S) = len(spectra.width), cloud.constants
    together = jax.tree.map(
        lambda *fields: jnp.concatenate(fields), spectra, capped(spectra), draws
    )
    values = jax.vmap(lambda single: read_all(SPECTRUM_QUANTITIES, single))(together)
    weight_S = jnp.asarray(weight_S)

    def average(value_S: Array) -> Array:
        return jnp.where(weight_S > 0, weight_S * value_S, 0.0).sum()

    def having(null: str) -> list[str]:
        return [name for name in values if null in SPECTRUM_QUANTITIES[name].nulls]

    return {
        MEASURED: {name: value[:replicates] for name, value in values.items()},
        CAPPED: {name: values[name][replicates : 2 * replicates] for name in having(CAPPED)},
        ISOTROPIC: {
            name: jnp.broadcast_to(average(values[name][2 * replicates :]), replicates)
            for name in having(ISOTROPIC)
        },
    }


SPECTRUM = Family("cloud", measure_spectrum, SPECTRUM_QUANTITIES, constants=isotropic_draws)
