"""Family spectrum: all of it read off one eigendecomposition of the centred cloud.

In the formulas, lambda are the eigenvalues of the covariance C, largest first, D is the width and P
the points.
"""

import jax
from jax import Array

from anisoscope.measurement.quantity import (
    HERE,
    NOT_NEGATIVE,
    ONE_OR_MORE,
    SHAPE_OF_LEARNING,
    SHARE,
    Family,
    Values,
    jackknifed,
)
from anisoscope.measurement.resampling import Cloud
from anisoscope.metrics import spectrum

QUANTITIES = {
    "anisotropy": jackknifed(
        "anisotropy", "max(lambda) / sum(lambda)", SHAPE_OF_LEARNING, spectrum.anisotropy, SHARE
    ),
    "anisotropy_uncentred": jackknifed(
        "anisotropy about the origin",
        "top eigenvalue's share of (1/P) sum_i x_i x_i^T, not centred",
        HERE,
        spectrum.anisotropy_uncentred,
        SHARE,
    ),
    "participation_ratio": jackknifed(
        "participation ratio",
        "(sum lambda)^2 / sum(lambda^2)",
        "Gao et al. 2017, after Litwin-Kumar et al. 2017",
        spectrum.participation_ratio,
        ONE_OR_MORE,
    ),
    "participation_ratio_corrected": jackknifed(
        "participation ratio, corrected for the number of points",
        "unbiased estimate of (tr C)^2 / unbiased estimate of tr C^2, points taken as independent",
        "reconstruction after Chun et al. 2025",
        spectrum.participation_ratio_corrected,
        NOT_NEGATIVE,
    ),
    "effective_rank": jackknifed(
        "effective rank",
        "exp(-sum p ln p), p = lambda / sum(lambda)",
        "after Roy and Vetterli 2007",
        spectrum.effective_rank,
        ONE_OR_MORE,
    ),
    "rankme_centered": jackknifed(
        "RankMe of the centered cloud",
        "exp(-sum p ln p), p = s / sum(s) + 1e-7, s = sqrt(lambda)",
        "Garrido et al. 2023, who do not center",
        spectrum.rankme_centered,
        ONE_OR_MORE,
    ),
    "stable_rank": jackknifed(
        "stable rank",
        "sum(lambda) / max(lambda)",
        "Rudelson and Vershynin 2007",
        spectrum.stable_rank,
        ONE_OR_MORE,
    ),
    "isoscore": jackknifed(
        "IsoScore",
        "((sum lambda)^2 / sum(lambda^2) - 1) / (D - 1)",
        "Rudman et al. 2022",
        spectrum.isoscore,
        SHARE,
    ),
    "isoscore_star": jackknifed(
        "IsoScore*",
        "IsoScore of (1 - z) C + z tr(C)/D I, z after Ledoit and Wolf 2004",
        "Rudman and Eickhoff 2024; target and weight: this project",
        spectrum.isoscore_shrunk,
        SHARE,
    ),
    "alpha_req": jackknifed(
        "power-law exponent of the spectrum",
        "-slope of ln lambda_i on ln i, weights 1/i, i = 4 ... 100 as far as lambda_i > 1e-9 lambda_1",
        "Agrawal et al. 2022",
        lambda one: spectrum.alpha_req(one).exponent,
        NOT_NEGATIVE,
    ),
    "alpha_req_r2": jackknifed(
        "R^2 of the power law",
        "R^2 of that line",
        HERE,
        lambda one: spectrum.alpha_req(one).r2,
        SHARE,
    ),
}


def readings(cloud_PD: Array, folds: int) -> Values:
    """Measure a cloud and, to first order, the cloud without each of its folds."""
    return jax.vmap(
        lambda one: {name: quantity.read(one) for name, quantity in QUANTITIES.items()}
    )(spectrum.spectrum(cloud_PD, folds))


def compute(cloud: Cloud) -> Values:
    return readings(cloud.points_PD, cloud.folds)


FAMILY = Family(of="cloud", compute=compute, quantities=QUANTITIES)
