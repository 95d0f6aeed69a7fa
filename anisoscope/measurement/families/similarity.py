"""Family similarity: cosines between vectors, their mean and norms, and the partition function. Not centred."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import jax
from jax import Array

from anisoscope.measurement.families import leading
from anisoscope.measurement.quantity import COSINE, HERE, INHERENT, NOT_NEGATIVE, Family, Quantity, Values
from anisoscope.measurement.resamples import Cloud, over_folds
from anisoscope.metrics import similarity

Read = Callable[[Array, Array], Array]  # the cloud, and weights 1 or 0 of its points


def _similarity(read: Read | None, long_name: str, units: str, formula: str, source: str, **further: Any) -> Quantity:
    about = {"long_name": long_name, "units": units, "formula": formula, "source": source}
    return Quantity(read=read, resampling="jackknife", **about, **further)


QUANTITIES = {
    "mean_cosine": _similarity(
        similarity.mean_cosine,
        "mean cosine of pairs",
        "1",
        "(|sum_i x_i/|x_i||^2 - P) / (P (P - 1)), all pairs of the P x_i that are not 0",
        INHERENT,
        range=COSINE,
    ),
    "mean_cosine_drift": _similarity(
        lambda cloud_PD, keep_P: similarity.mean_cosine_parts(cloud_PD, keep_P).drift,
        "mean cosine, part of the drift",
        "1",
        "|E x|^2 mean over pairs of 1/(|x_i| |x_j|)",
        HERE,
        range=NOT_NEGATIVE,
    ),
    "mean_cosine_residual": _similarity(
        lambda cloud_PD, keep_P: similarity.mean_cosine_parts(cloud_PD, keep_P).residual,
        "mean cosine, residual",
        "1",
        "mean_cosine - mean_cosine_drift",
        HERE,
    ),
    "drift": _similarity(
        similarity.drift, "drift", "activation", "|E x|", INHERENT, range=NOT_NEGATIVE, symbol="|E x|"
    ),
    "mean_norm": _similarity(
        similarity.mean_norm, "mean norm", "activation", "E |x|", INHERENT, range=NOT_NEGATIVE, symbol="E |x|"
    ),
    "log_partition_isotropy": _similarity(
        None,
        "log of the partition function's isotropy",
        "1",
        "ln(min_c Z(c) / max_c Z(c)), Z(c) = sum_i exp(c.x_i), c = +- the eigenvectors of X^T X",
        "Mu and Viswanath 2018; both signs: this project",
        range=(-math.inf, 0.0),
    ),
}
OF_KEPT = {name: quantity.read for name, quantity in QUANTITIES.items() if quantity.read}
WITHOUT = {  # the quantity -> the same without the longest vectors
    name: leading.without_longest(name, dataclasses.replace(QUANTITIES[name], read=None))
    for name in ("mean_cosine", "drift")
}
QUANTITIES |= dict(WITHOUT.values())


def compute(cloud: Cloud) -> Values:
    cloud_PD, folds = cloud.points_PD, cloud.folds
    values = over_folds(
        lambda keep_P: {name: read(cloud_PD, keep_P) for name, read in OF_KEPT.items()}, folds, cloud_PD.shape[0]
    )

    def of_left(left_P: Array) -> Values:
        def read(keep_P: Array) -> Values:
            return {own: OF_KEPT[name](cloud_PD, keep_P * left_P) for name, (own, _) in WITHOUT.items()}

        return over_folds(read, folds, cloud_PD.shape[0])

    values |= jax.lax.map(of_left, leading.left(cloud))
    return values | {"log_partition_isotropy": similarity.log_partition_isotropy(cloud_PD, folds)}


FAMILY = Family(of="cloud", compute=compute, quantities=QUANTITIES)
