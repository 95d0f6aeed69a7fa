"""Family similarity: cosines between vectors, their mean and norms, and the partition function. Not
centred.
"""

import dataclasses
import math

import jax
from jax import Array

from anisoscope.measurement.families import leading_family
from anisoscope.measurement.quantity import (
    COSINE,
    HERE,
    INHERENT,
    NOT_NEGATIVE,
    SHARE,
    Family,
    Values,
    jackknifed,
)
from anisoscope.measurement.resampling import Cloud, over_folds
from anisoscope.metrics import similarity

QUANTITIES = {  # each reads the cloud, and weights 1 or 0 of its points
    "mean_cosine": jackknifed(
        "mean cosine of pairs",
        "(|sum_i x_i/|x_i||^2 - P) / (P (P - 1)), all pairs of the P x_i that are not 0",
        INHERENT,
        similarity.mean_cosine,
        COSINE,
    ),
    "mean_cosine_drift": jackknifed(
        "mean cosine, part of the drift",
        "|E x|^2 mean over pairs of 1/(|x_i| |x_j|)",
        HERE,
        lambda cloud_PD, keep_P: similarity.mean_cosine_parts(cloud_PD, keep_P).drift,
        NOT_NEGATIVE,
    ),
    "mean_cosine_residual": jackknifed(
        "mean cosine, residual",
        "mean_cosine - mean_cosine_drift",
        HERE,
        lambda cloud_PD, keep_P: similarity.mean_cosine_parts(cloud_PD, keep_P).residual,
    ),
    "drift": jackknifed(
        "drift",
        "|E x|",
        INHERENT,
        similarity.drift,
        NOT_NEGATIVE,
        units="activation",
        symbol="|E x|",
    ),
    "relative_drift": jackknifed(
        "relative drift", "|E x| / sqrt(E |x|^2)", HERE, similarity.relative_drift, SHARE
    ),
    "mean_norm": jackknifed(
        "mean norm",
        "E |x|",
        INHERENT,
        similarity.mean_norm,
        NOT_NEGATIVE,
        units="activation",
        symbol="E |x|",
    ),
    "log_partition_isotropy": jackknifed(
        "log of the partition function's isotropy",
        "ln(min_c Z(c) / max_c Z(c)), Z(c) = sum_i exp(c.x_i), c = +- the eigenvectors of X^T X",
        "Mu and Viswanath 2018; both signs: this project",
        range=(-math.inf, 0.0),
    ),
}
OF_KEPT = {name: quantity.read for name, quantity in QUANTITIES.items() if quantity.read}
WITHOUT = {  # the quantity -> the same without the longest vectors
    name: leading_family.without_longest(name, dataclasses.replace(QUANTITIES[name], read=None))
    for name in ("mean_cosine", "drift")
}
QUANTITIES |= dict(WITHOUT.values())


def compute(cloud: Cloud) -> Values:
    cloud_PD, folds = cloud.points_PD, cloud.folds
    values = over_folds(
        lambda keep_P: {name: read(cloud_PD, keep_P) for name, read in OF_KEPT.items()},
        folds,
        cloud_PD.shape[0],
    )

    def of_left(left_P: Array) -> Values:
        def read(keep_P: Array) -> Values:
            return {
                own: OF_KEPT[name](cloud_PD, keep_P * left_P) for name, (own, _) in WITHOUT.items()
            }

        return over_folds(read, folds, cloud_PD.shape[0])

    values |= jax.lax.map(of_left, leading_family.remaining(cloud))
    return values | {"log_partition_isotropy": similarity.log_partition_isotropy(cloud_PD, folds)}


FAMILY = Family(of="cloud", compute=compute, quantities=QUANTITIES)
