"""Family spectrum: all of it read off one eigendecomposition of the centred cloud.

In the formulas, lambda are the eigenvalues of the covariance C, largest first, D is the width and P the points.
"""

from collections.abc import Callable

import jax
from jax import Array

from anisoscope.measurement.quantity import (
    HERE,
    NOT_NEGATIVE,
    ONE_OR_MORE,
    SHAPE_OF_LEARNING,
    SHARE,
    Family,
    Quantity,
    Values,
)
from anisoscope.measurement.resamples import Cloud
from anisoscope.metrics import spectrum
from anisoscope.metrics.spectrum import Spectrum


def _spectral(
    read: Callable[[Spectrum], Array], long_name: str, formula: str, source: str, range: tuple[float, float]
) -> Quantity:
    about = {"long_name": long_name, "formula": formula, "source": source, "range": range}
    return Quantity(read=read, resampling="jackknife", **about)


QUANTITIES = {
    "anisotropy": _spectral(spectrum.anisotropy, "anisotropy", "max(lambda) / sum(lambda)", SHAPE_OF_LEARNING, SHARE),
    "anisotropy_uncentred": _spectral(
        spectrum.anisotropy_uncentred,
        "anisotropy about the origin",
        "top eigenvalue's share of (1/P) sum_i x_i x_i^T, not centred",
        HERE,
        SHARE,
    ),
    "participation_ratio": _spectral(
        spectrum.participation_ratio,
        "participation ratio",
        "(sum lambda)^2 / sum(lambda^2)",
        "Gao et al. 2017, after Litwin-Kumar et al. 2017",
        ONE_OR_MORE,
    ),
    "participation_ratio_corrected": _spectral(
        spectrum.participation_ratio_corrected,
        "participation ratio, corrected for the number of points",
        "unbiased estimate of (tr C)^2 / unbiased estimate of tr C^2, points taken as independent",
        "reconstruction after Chun et al. 2025",
        NOT_NEGATIVE,
    ),
    "effective_rank": _spectral(
        spectrum.effective_rank,
        "effective rank",
        "exp(-sum p ln p), p = lambda / sum(lambda)",
        "after Roy and Vetterli 2007",
        ONE_OR_MORE,
    ),
    "rankme": _spectral(
        spectrum.rankme,
        "RankMe",
        "exp(-sum p ln p), p = s / sum(s) + 1e-7, s = sqrt(lambda)",
        "Garrido et al. 2023, centred",
        ONE_OR_MORE,
    ),
    "stable_rank": _spectral(
        spectrum.stable_rank, "stable rank", "sum(lambda) / max(lambda)", "Rudelson and Vershynin 2007", ONE_OR_MORE
    ),
    "isoscore": _spectral(
        spectrum.isoscore, "IsoScore", "((sum lambda)^2 / sum(lambda^2) - 1) / (D - 1)", "Rudman et al. 2022", SHARE
    ),
    "isoscore_star": _spectral(
        spectrum.isoscore_shrunk,
        "IsoScore*",
        "IsoScore of (1 - z) C + z tr(C)/D I, z after Ledoit and Wolf 2004",
        "Rudman and Eickhoff 2024; target and weight: this project",
        SHARE,
    ),
    "alpha_req": _spectral(
        lambda one: spectrum.alpha_req(one).exponent,
        "power-law exponent of the spectrum",
        "-slope of ln lambda_i on ln i, weights 1/i, i = 4 ... 100 as far as lambda_i > 1e-9 lambda_1",
        "Agrawal et al. 2022",
        NOT_NEGATIVE,
    ),
    "alpha_req_r2": _spectral(
        lambda one: spectrum.alpha_req(one).r2, "R^2 of the power law", "R^2 of that line", HERE, SHARE
    ),
}


def readings(cloud_PD: Array, folds: int) -> Values:
    """Every quantity of a cloud and, to first order, of the cloud without each of its folds."""
    return jax.vmap(lambda one: {name: quantity.read(one) for name, quantity in QUANTITIES.items()})(
        spectrum.spectrum(cloud_PD, folds)
    )


def compute(cloud: Cloud) -> Values:
    return readings(cloud.points_PD, cloud.folds)


FAMILY = Family(of="cloud", compute=compute, quantities=QUANTITIES)
