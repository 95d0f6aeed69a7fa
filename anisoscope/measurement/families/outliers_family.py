"""Families outliers and massive: coordinates and points that carry more than their share."""

import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.quantity import AT_LEAST_1, Family, Quantity, Values, share
from anisoscope.measurement.resampling import Cloud
from anisoscope.metrics import outliers
from anisoscope.metrics.cloud import largest, nan_unless
from anisoscope.metrics.leading import lower_median

RATIOS = (3, 10, 30, 100, 300, 1000, 3000)
SUN = "Sun et al. 2024, Massive Activations in Large Language Models"
PEAK = "max_j |x_ij| / median_j |x_ij|, the lower of two medians; vectors of zeros are left out"

OUTLIER_READERS = {  # each reads the cloud, weights 1 or 0 of its points, and which are valid
    "top_coordinate_variance_share": outliers.top_coordinate_variance_share,
    "coordinate_kurtosis": outliers.coordinate_kurtosis,
    "activation_kurtosis": outliers.activation_kurtosis,
}
OUTLIERS = {
    "top_coordinate_variance_share": share(
        "variance in the top coordinates",
        "share of the total variance in the `top` coordinates of largest variance",
        dims=("layer", "top"),
    ),
    "coordinate_kurtosis": Quantity(
        "kurtosis across coordinates",
        "D sum_j v_j^2 / (sum_j v_j)^2, v_j the variance of coordinate j",
        "after He et al. 2024",
        range=AT_LEAST_1,
    ),
    "activation_kurtosis": Quantity(
        "kurtosis of the activations",
        "mean over coordinates of the kurtosis over points",
        range=AT_LEAST_1,
    ),
    "coordinate_peak": Quantity(
        "peak of a vector's coordinates",
        f"mean over points i of {PEAK}",
        f"after {SUN}; the median of each position",
        range=AT_LEAST_1,
    ),
    "massive_activation": Quantity(
        "most massive activation",
        f"largest over points i of {PEAK}",
        f"after {SUN}; the median of each position",
        range=AT_LEAST_1,
        resampling="",
    ),
    "anisotropy_without_top_coordinates": share(
        "anisotropy, top coordinates left out",
        "max(lambda) / sum(lambda), of the cloud without its `top` coordinates of largest variance",
        dims=("layer", "top"),
    ),
}
MASSIVE_POINTS = {
    "massive_points": share(
        "share of points with a massive activation",
        "share of the points whose largest |coordinate| exceeds the median of their own by a "
        "factor above `ratio`",
        f"{SUN}: about 1,000 times the median there, of all points together",
        dims=("layer", "ratio"),
    ),
    "long_points": share(
        "share of long points",
        "share of the points whose norm exceeds the (lower) median norm by a factor above `ratio`",
        dims=("layer", "ratio"),
    ),
}


def measure_outliers(cloud: Cloud) -> Values:
    """Measure a cloud; NaN where no coordinate would remain without the top ones."""
    cloud_PD, valid_P = cloud.points_PD, cloud.labels.valid_P
    nonzero_P = jnp.asarray(cloud_PD).any(axis=1)
    peak_P = jnp.where(nonzero_P, outliers.coordinate_peaks(cloud_PD), 0.0)

    values = cloud.over_folds(
        lambda keep_P: {
            name: read(cloud_PD, keep_P, valid_P) for name, read in OUTLIER_READERS.items()
        }
    )
    values["coordinate_peak"] = cloud.fold_means(peak_P, nonzero_P)
    values["top_coordinate_variance_share"] = values["top_coordinate_variance_share"].T
    values["massive_activation"] = jnp.where(nonzero_P.any(), largest(peak_P), jnp.nan)
    return values | {
        "anisotropy_without_top_coordinates": outliers.anisotropy_without_top_coordinates(
            cloud_PD, cloud.labels.keep_RP
        )
    }


def measure_massive(cloud: Cloud) -> Values:
    """Measure a cloud, (ratio, R); NaN where it is not finite.

    Norms are compared with the median norm of the whole cloud.
    """
    norm_P = jnp.linalg.norm(jnp.asarray(cloud.points_PD, jnp.float32), axis=1)

    def share(ratio_P: Array) -> Array:
        # the sum makes the share NaN where a norm is NaN
        above = nan_unless(norm_P.sum(), ratio_P[None] > jnp.array(RATIOS, jnp.float32)[:, None])
        return cloud.fold_means(above)

    return {
        "massive_points": share(outliers.coordinate_peaks(cloud.points_PD)),
        "long_points": share(norm_P / lower_median(norm_P, cloud.labels.valid_P)),
    }


FAMILIES = {
    "outliers": Family(measure_outliers, OUTLIERS, coordinates={"top": outliers.TOPS}),
    "massive": Family(measure_massive, MASSIVE_POINTS, coordinates={"ratio": RATIOS}),
}
