"""Family spectrum: quantities of the eigenvalues of the centered cloud.

All are read from one eigendecomposition. In the formulas, lambda are the eigenvalues of the
covariance C, largest first, D is the width and P the points. S are draws of the isotropic null
model.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anisoscope.measurement.null_models import CAPPED, ISOTROPIC, count_draws, isotropic_spectra
from anisoscope.measurement.quantity import (
    AT_LEAST_1,
    MEASURED,
    SHAPE_OF_LEARNING,
    Family,
    Quantity,
    Values,
    magnitude,
    share,
)
from anisoscope.measurement.resampling import Cloud
from anisoscope.metrics import spectrum

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
SPECTRUM = {
    "anisotropy": share(
        "anisotropy", "max(lambda) / sum(lambda)", SHAPE_OF_LEARNING, **CHANCE_OF_SPECTRUM
    ),
    "anisotropy_uncentered": share(
        "anisotropy about the origin",
        "top eigenvalue's share of (1/P) sum_i x_i x_i^T, not centered",
        nulls=(ISOTROPIC,),
        null_words=f"{SAMPLING}; random signs of the vectors leave it as it is",
    ),
    "participation_ratio": Quantity(
        "participation ratio",
        "(sum lambda)^2 / sum(lambda^2)",
        "Gao et al. 2017, after Litwin-Kumar et al. 2017",
        range=AT_LEAST_1,
        **CHANCE_OF_SPECTRUM,
    ),
    "participation_ratio_corrected": magnitude(
        "participation ratio, corrected for the number of points",
        "unbiased estimate of (tr C)^2 / unbiased estimate of tr C^2, points taken as independent",
        "reconstruction after Chun et al. 2025",
        null_words=UNBIASED,
    ),
    "effective_rank": Quantity(
        "effective rank",
        "exp(-sum p ln p), p = lambda / sum(lambda)",
        "after Roy and Vetterli 2007",
        range=AT_LEAST_1,
        **CHANCE_OF_SPECTRUM,
    ),
    "rankme_centered": Quantity(
        "RankMe of the centered cloud",
        "exp(-sum p ln p), p = s / sum(s) + 1e-7, s = sqrt(lambda)",
        "Garrido et al. 2023, who do not center",
        range=AT_LEAST_1,
        **CHANCE_OF_SPECTRUM,
    ),
    "stable_rank": Quantity(
        "stable rank",
        "sum(lambda) / max(lambda)",
        "Rudelson and Vershynin 2007",
        range=AT_LEAST_1,
        **CHANCE_OF_SPECTRUM,
    ),
    "isoscore": share(
        "IsoScore",
        "((sum lambda)^2 / sum(lambda^2) - 1) / (D - 1)",
        "Rudman et al. 2022",
        **CHANCE_OF_SPECTRUM,
    ),
    "isoscore_star": share(
        "IsoScore*",
        "IsoScore of (1 - z) C + z tr(C)/D I, z after Ledoit and Wolf 2004",
        "Rudman and Eickhoff 2024; target and weight: this project",
        null_words=UNBIASED,
    ),
    "alpha_req": magnitude(
        "power-law exponent of the spectrum",
        "-slope of ln lambda_i on ln i, weights 1/i, i = 4 ... 100 as far as lambda_i > 1e-9 "
        "lambda_1",
        "Agrawal et al. 2022",
        **POWER_LAW,
    ),
    "alpha_req_r2": share("R^2 of the power law", "R^2 of that line", **POWER_LAW),
}
SPECTRUM_READERS = {
    "anisotropy": spectrum.anisotropy,
    "anisotropy_uncentered": spectrum.anisotropy_uncentered,
    "participation_ratio": spectrum.participation_ratio,
    "participation_ratio_corrected": spectrum.participation_ratio_corrected,
    "effective_rank": spectrum.effective_rank,
    "rankme_centered": spectrum.rankme_centered,
    "stable_rank": spectrum.stable_rank,
    "isoscore": spectrum.isoscore,
    "isoscore_star": spectrum.isoscore_shrunk,
    "alpha_req": lambda spectra: spectrum.alpha_req(spectra).exponent,
    "alpha_req_r2": lambda spectra: spectrum.alpha_req(spectra).r2,
}


def read_spectra(spectra: spectrum.Spectrum) -> Values:
    """Compute all quantities of spectra along a first axis."""
    return jax.vmap(
        lambda single: {name: measure(single) for name, measure in SPECTRUM_READERS.items()}
    )(spectra)


def isotropic_draws(
    points: int, width: int, least: int, most: int
) -> tuple[spectrum.Spectrum, np.ndarray]:
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


def measure_spectrum(cloud: Cloud) -> dict[str, Values]:
    """Measure a cloud and, to first order, the cloud without each of its folds.

    The null models come from the same decomposition, or from no decomposition; all are read at once.
    """
    spectra = spectrum.spectrum(cloud.points_PD, cloud.labels.keep_RP)
    replicates, (draws, weight_S) = len(spectra.width), cloud.constants
    together = spectra, spectrum.capped(spectra), draws
    values = read_spectra(jax.tree.map(lambda *fields: jnp.concatenate(fields), *together))
    weight_S = jnp.asarray(weight_S)

    def average(value_S: Array) -> Array:
        return jnp.where(weight_S > 0, weight_S * value_S, 0.0).sum()

    return {
        MEASURED: {name: value[:replicates] for name, value in values.items()},
        CAPPED: {
            name: values[name][replicates : 2 * replicates]
            for name in values
            if CAPPED in SPECTRUM[name].nulls
        },
        ISOTROPIC: {
            name: jnp.broadcast_to(average(values[name][2 * replicates :]), replicates)
            for name in values
            if ISOTROPIC in SPECTRUM[name].nulls
        },
    }


FAMILIES = {"spectrum": Family(measure_spectrum, SPECTRUM, constants=isotropic_draws)}
