"""Family outliers: coordinates that carry more than their share, and anisotropy without them."""

import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.quantity import (
    AT_LEAST_1,
    HERE,
    SHARE,
    Family,
    Quantity,
    Values,
    jackknifed,
)
from anisoscope.measurement.resampling import Cloud, leave_out, over_folds
from anisoscope.metrics import outliers
from anisoscope.metrics.cloud import largest

MASSIVE = "after Sun et al. 2024, Massive Activations in Large Language Models; the median of each position"
PEAK = "max_j |x_ij| / median_j |x_ij|, of two medians the lower; vectors of zeros are left out"
BY_TOP = ("layer", "top")


QUANTITIES = {  # each reads the cloud, and weights 1 or 0 of its points
    "top_coordinate_variance_share": jackknifed(
        "variance in the top coordinates",
        "share of the total variance in the `top` coordinates of largest variance",
        HERE,
        outliers.top_coordinate_variance_share,
        SHARE,
        dims=BY_TOP,
    ),
    "coordinate_kurtosis": jackknifed(
        "kurtosis across coordinates",
        "D sum_j v_j^2 / (sum_j v_j)^2, v_j the variance of coordinate j",
        "after He et al. 2024",
        outliers.coordinate_kurtosis,
        AT_LEAST_1,
    ),
    "activation_kurtosis": jackknifed(
        "kurtosis of the activations",
        "mean over coordinates of the kurtosis over points",
        HERE,
        outliers.activation_kurtosis,
        AT_LEAST_1,
    ),
    "coordinate_peak": jackknifed(
        "peak of a vector's coordinates",
        f"mean over points i of {PEAK}",
        MASSIVE,
        range=AT_LEAST_1,
    ),
    "massive_activation": Quantity(
        "most massive activation",
        f"largest over points i of {PEAK}",
        MASSIVE,
        range=AT_LEAST_1,
    ),
    "anisotropy_without_top_coordinates": jackknifed(
        "anisotropy, top coordinates left out",
        "max(lambda) / sum(lambda), of the cloud without its `top` coordinates of largest variance",
        HERE,
        range=SHARE,
        dims=BY_TOP,
    ),
}
COORDINATE_READERS = {name: quantity.read for name, quantity in QUANTITIES.items() if quantity.read}


def compute(cloud: Cloud) -> Values:
    """Measure a cloud; NaN where no coordinate would remain without the top ones."""
    cloud_PD, folds = cloud.points_PD, cloud.folds
    points = len(cloud_PD)
    nonzero_P = jnp.asarray(cloud_PD).any(axis=1)
    peak_P = jnp.where(nonzero_P, outliers.coordinate_peaks(cloud_PD), 0.0)

    def measure_kept(keep_P: Array) -> Values:
        values = {name: read(cloud_PD, keep_P) for name, read in COORDINATE_READERS.items()}
        return values | {"coordinate_peak": (keep_P * peak_P).sum() / (keep_P * nonzero_P).sum()}

    values = over_folds(measure_kept, folds, points)
    values["top_coordinate_variance_share"] = values["top_coordinate_variance_share"].T
    values["massive_activation"] = jnp.where(nonzero_P.any(), largest(peak_P), jnp.nan)
    return values | {
        "anisotropy_without_top_coordinates": outliers.anisotropy_without_top_coordinates(
            cloud_PD, leave_out(folds, points)
        )
    }


FAMILY = Family(
    input_kind="cloud", compute=compute, quantities=QUANTITIES, coordinates={"top": outliers.TOPS}
)
