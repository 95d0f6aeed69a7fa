"""The quantities of one cloud, each on the whole of it and on its resamples (see panel/intervals.py).

R replicates come last in every array: the whole cloud, then each of the resamples. A cloud is group-major: P/J points
of each of J groups of windows, one group after another.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array
from jax.lax import Precision

from metrics import dimension, outliers, scale, similarity
from metrics import spectrum as spectral
from metrics.cloud import centred, largest
from metrics.neighbours import Neighbours, nearest_neighbours, originals
from panel.intervals import section_count
from panel.quantities import OVERLAP_NEIGHBOURS, SPECTRUM

Values = dict[str, Array]


class Searched(NamedTuple):
    """A cloud's neighbours, found once for all that is read from them; each section's among its own points."""

    whole: Neighbours
    parts: Neighbours | None  # arrays (section, …)


def search(cloud_PD: Array, families: tuple[str, ...], groups: int) -> Searched | None:
    """As many neighbours as the families need: 2, 10 to compare, 128 for the scales; None if they need none."""
    wanted = {"dimension": 2, "comparison": OVERLAP_NEIGHBOURS, "scale": 2 * scale.SCALES[-1]}
    count = max((wanted[family] for family in families if family in wanted), default=0)
    if count == 0:
        return None
    whole = nearest_neighbours(cloud_PD, count)
    if groups == 1:
        return Searched(whole, None)
    return Searched(whole, jax.lax.map(lambda part_PD: nearest_neighbours(part_PD, count), sections(cloud_PD, groups)))


def measure_cloud(cloud_PD: Array, searched: Searched | None, families: tuple[str, ...], groups: int) -> Values:
    """The families spectrum, outliers, dimension, scale and similarity, as far as they are asked for."""
    values = {}
    if "spectrum" in families:
        values |= _spectrum(cloud_PD, groups)
    if "outliers" in families:
        values |= _outliers(cloud_PD, groups)
    if "dimension" in families:
        values |= over_sections(_two_neighbours, searched) | _counts(searched.whole)
    if "scale" in families:
        values |= over_sections(_scales, searched) | {"decimation": scale.decimation(cloud_PD, searched.whole)}
    if "similarity" in families:
        values |= _similarity(cloud_PD, groups)
    return values


def gaussian(cloud_PD: Array, key: Array) -> Array:
    """A featureless cloud of the same spectrum: normal points, decorrelated, then stretched along the coordinates.

    Shapes: (P, D) -> (P, D). Its distinct points have covariance eigenvalues exactly, not on average, those of the
    cloud's distinct points: a cloud drawn from a sample's spectrum would be sampled twice, and a normal cloud would
    seem to exceed its own null model. It has copies where the cloud has: dimensions are read off distinct points, and
    depend on how many there are. Rotations and the mean are left out: distances see neither.
    """
    points, width = cloud_PD.shape
    original_P, _ = originals(cloud_PD)
    first_P = original_P == jnp.arange(points)

    def of_distinct(x_PE: Array) -> Array:
        """Centred on the mean of the distinct points; 0 for copies."""
        kept_PE = jnp.where(first_P[:, None], x_PE, 0.0)
        return jnp.where(first_P[:, None], x_PE - kept_PE.sum(axis=0, keepdims=True) / first_P.sum(), 0.0)

    eigenvalues_E = spectral.spectrum(of_distinct(centred(cloud_PD))).eigenvalues_E[0]
    normal_PE = of_distinct(jax.random.normal(key, (points, eigenvalues_E.size)))
    null_PE = _decorrelated(normal_PE, first_P.sum()) * jnp.sqrt(points * eigenvalues_E)[None]
    return jnp.pad(null_PE, ((0, 0), (0, width - eigenvalues_E.size)))[original_P]


def _decorrelated(x_PE: Array, distinct: Array) -> Array:
    """Orthonormal columns with the same span: by Cholesky's factor where that is safe, many times as fast as QR."""

    def by_cholesky(x_PE: Array) -> Array:
        factor_EE = jnp.linalg.cholesky(jnp.matmul(x_PE.T, x_PE, precision=Precision.HIGHEST))
        return jax.lax.linalg.triangular_solve(factor_EE, x_PE, lower=True, transpose_a=True)

    few = distinct < 2 * x_PE.shape[1]  # few normal points are nearly, or exactly, dependent
    return jax.lax.cond(few, lambda x_PE: jnp.linalg.qr(x_PE)[0], by_cholesky, x_PE)


def leave_out(groups: int, points: int) -> Array:
    """Weights (R, points): all, then all but one group after another."""
    return jnp.repeat(similarity.leave_out(groups), points // groups, axis=1)


def sections(cloud_PD: Array, groups: int) -> Array:
    """The cloud cut into sections of whole groups, (sections, P / sections, D)."""
    return cloud_PD.reshape(section_count(groups), -1, cloud_PD.shape[1])


def _spectrum(cloud_PD: Array, groups: int) -> Values:
    return jax.vmap(_spectral_readings)(spectral.spectrum(cloud_PD, groups))


def _spectral_readings(one: spectral.Spectrum) -> Values:
    power_law = spectral.alpha_req(one)
    return {
        "anisotropy": spectral.anisotropy(one),
        "anisotropy_uncentred": spectral.anisotropy_uncentred(one),
        "participation_ratio": spectral.participation_ratio(one),
        "participation_ratio_corrected": spectral.participation_ratio_corrected(one),
        "effective_rank": spectral.effective_rank(one),
        "rankme": spectral.rankme(one),
        "stable_rank": spectral.stable_rank(one),
        "isoscore": spectral.isoscore(one),
        "isoscore_star": spectral.isoscore_shrunk(one),
        "alpha_req": power_law.exponent,
        "alpha_req_r2": power_law.r2,
    }


def _outliers(cloud_PD: Array, groups: int) -> Values:
    """Also the spectral quantities without the top coordinates; NaN where no coordinate would be left."""
    keep_RP = leave_out(groups, cloud_PD.shape[0])
    peaks_P = outliers.coordinate_peaks(cloud_PD)
    values = {
        "coordinate_share": jax.vmap(lambda keep_P: outliers.coordinate_share(cloud_PD, keep_P))(keep_RP).T,
        "coordinate_kurtosis": jax.vmap(lambda keep_P: outliers.coordinate_kurtosis(cloud_PD, keep_P))(keep_RP),
        "activation_kurtosis": jax.vmap(lambda keep_P: outliers.activation_kurtosis(cloud_PD, keep_P))(keep_RP),
        "coordinate_peak": jax.vmap(lambda keep_P: (keep_P * peaks_P).sum() / keep_P.sum())(keep_RP),
        "massive_activation": largest(peaks_P),
    }
    nothing = dict.fromkeys(SPECTRUM, jnp.full(len(keep_RP), jnp.nan))
    without = [
        _spectrum(outliers.without_top(cloud_PD, top), groups) if top < cloud_PD.shape[1] else nothing
        for top in outliers.TOPS
    ]
    return values | {f"{name}_left_out": jnp.stack([one[name] for one in without]) for name in SPECTRUM}


def over_sections(read: Callable[..., Values], *searched: Searched) -> Values:
    """What `read` finds in the neighbours of one or several clouds: in the whole of them, then in each section."""
    whole = {name: value[..., None] for name, value in read(*(one.whole for one in searched)).items()}
    if searched[0].parts is None:
        return whole
    parts = jax.lax.map(lambda neighbours: read(*neighbours), tuple(one.parts for one in searched))
    return {name: jnp.concatenate([value, jnp.moveaxis(parts[name], 0, -1)], -1) for name, value in whole.items()}


def _two_neighbours(neighbours: Neighbours) -> Values:
    posterior = dimension.twonn_bayes(neighbours)
    return {
        "twonn": dimension.twonn(neighbours),
        "twonn_mle": dimension.twonn_mle(neighbours),
        "twonn_bayes": posterior.mean,
        "twonn_bayes_deviation": posterior.std,
        "twonn_microscope": dimension.twonn_microscope(neighbours).dimension,
    }


def _counts(neighbours: Neighbours) -> Values:
    microscope = dimension.twonn_microscope(neighbours)
    return {
        "duplicate_points": neighbours.duplicates(),
        "twonn_dropped": neighbours.dropped(),
        "microscope_useless": microscope.useless,
        "microscope_dropped": microscope.dropped,
    }


def _scales(neighbours: Neighbours) -> Values:
    return {
        "gride": scale.gride_curve(neighbours),
        "levina_bickel": scale.levina_bickel(neighbours),
        "local_dimension": scale.local_quantiles(neighbours),
    }


def _similarity(cloud_PD: Array, groups: int) -> Values:
    def read(keep_P: Array) -> Values:
        parts = similarity.mean_cosine_parts(cloud_PD, keep_P)
        return {
            "mean_cosine": similarity.mean_cosine(cloud_PD, keep_P),
            "mean_cosine_drift": parts.drift,
            "mean_cosine_residual": parts.residual,
            "drift": similarity.drift(cloud_PD, keep_P),
            "mean_norm": similarity.mean_norm(cloud_PD, keep_P),
        }

    values = jax.vmap(read)(leave_out(groups, cloud_PD.shape[0]))
    return values | {"log_partition_isotropy": similarity.log_partition_isotropy(cloud_PD, groups)}
