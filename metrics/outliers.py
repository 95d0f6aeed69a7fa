"""Families outliers and massive: coordinates and points that carry more than their share."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    Weights,
    centered,
    largest,
    nan_unless,
    product,
)
from anisoscope.metrics.eigen import top_direction
from anisoscope.metrics.leading import lower_median, scatter
from anisoscope.metrics.quantity import AT_LEAST_1, Family, Quantity, Values, read_all, share
from anisoscope.metrics.resampling import Cloud

TOPS = (1, 4, 16)  # numbers of top coordinates
Valid = Bool[AnyArray, " P"] | None
MEDIANS_AT_ONCE = 128  # points whose medians are searched at once


def top_coordinate_variance_share(
    cloud_PD: Points, keep_P: Weights = None, valid_P: Valid = None
) -> Float[Array, " 3"]:
    """Share of the total variance in the top 1, 4 and 16 coordinates: sum of largest v_j / sum_j v_j.

    Weights 1 or 0 of the points (None: all), here and below; points that are not valid (None: all
    are) have weight 0. Range: [top/D, 1]. NaN if all points are equal, or D < top.
    """
    descending_D = jnp.sort(_moments(centered(cloud_PD, valid_P), keep_P, 2)[1], descending=True)
    share_D = jnp.cumsum(descending_D) / descending_D.sum()
    return jnp.stack(
        [share_D[top - 1] if top <= share_D.size else jnp.full((), jnp.nan) for top in TOPS]
    )


def coordinate_kurtosis(cloud_PD: Points, keep_P: Weights = None, valid_P: Valid = None) -> Scalar:
    """Inequality of the coordinates' variances: D sum_j v_j^2 / (sum_j v_j)^2.

    Range: [1, D]. NaN if all points are equal. He et al. 2024 take v_j = mean of x_j^2, where a
    coordinate's constant part does not count.
    """
    variance_D = _moments(centered(cloud_PD, valid_P), keep_P, 2)[1]
    share_D = variance_D / variance_D.sum()
    return share_D.size * jnp.square(share_D).sum()


def activation_kurtosis(cloud_PD: Points, keep_P: Weights = None, valid_P: Valid = None) -> Scalar:
    """Mean over the coordinates of E (x_j - E x_j)^4 / (E (x_j - E x_j)^2)^2; 3 for a Gaussian.

    Range: [1, P - 2 + 1/(P - 1)]. Coordinates that do not vary are left out. NaN if none is left.
    """
    x_PD = centered(cloud_PD, valid_P)
    scale_D = jnp.sqrt(jnp.square(x_PD).mean(axis=0))
    x_PD = x_PD / jnp.where(scale_D > 0, scale_D, 1.0)[None]  # x^4 would leave the range of float32
    _, second_D, fourth_D = _moments(x_PD, keep_P, 4)
    # also true of NaN. A coordinate that is constant among the kept points has a rounding error here
    varies_D = ~(second_D <= 1e-6)
    kurtosis_D = jnp.where(varies_D, fourth_D / jnp.square(jnp.where(varies_D, second_D, 1.0)), 0.0)
    return kurtosis_D.sum() / varies_D.sum()


def coordinate_peaks(cloud_PD: Points) -> Float[Array, " P"]:
    """Prominence of each point's largest coordinate: max_j |x_ij| / median_j |x_ij|, not centered.

    Range: >= 1; a Gaussian point of 512 coordinates has about 4.8. The median is the lower of the
    two middle ones where D is even. Infinite if more than half of a point's coordinates are 0;
    NaN if all are, or one is NaN.
    """
    size_PD = jnp.abs(jnp.asarray(cloud_PD, jnp.float32))
    return largest(size_PD) / _order_statistic(size_PD, (size_PD.shape[1] - 1) // 2)


def anisotropy_without_top_coordinates(
    cloud_PD: Points, keep_RP: Float[AnyArray, "R P"]
) -> Float[Array, "3 R"]:
    """Anisotropy of the cloud without its top 1, 4 and 16 coordinates of largest variance, (3, R).

    The first of R resamples keeps all points that count; the direction is that of all in every
    resample. Range: [1/(D - top), 1]. NaN if nothing that varies is left.
    """
    keep_RP = jnp.asarray(keep_RP, jnp.float32)
    x_PD = centered(cloud_PD, keep_RP[0] > 0)
    points, width = x_PD.shape
    across = points < width
    weight_RP = keep_RP / keep_RP.sum(axis=1, keepdims=True)
    rank_D = jnp.argsort(jnp.argsort(-jnp.square(x_PD).sum(axis=0)))
    gram = product(x_PD, x_PD.T) if across else product(x_PD.T, x_PD)

    def without(top: Int[Array, ""]) -> Float[Array, " R"]:
        left_D = rank_D >= top
        left_PD = jnp.where(left_D[None], x_PD, 0.0)
        if across:
            top_PD = x_PD - left_PD
            _, score_P = top_direction(gram - product(top_PD, top_PD.T))
            direction_D = product(score_P, left_PD)
            direction_D = direction_D / jnp.linalg.norm(direction_D)
        else:
            _, direction_D = top_direction(jnp.where(left_D[:, None] & left_D[None], gram, 0.0))
        score_P1 = product(left_PD, direction_D)[:, None]
        return scatter(score_P1, weight_RP) / scatter(left_PD, weight_RP)

    return jax.lax.map(without, jnp.array(TOPS))  # a loop, whose body is compiled once


def _moments(
    x_PD: Float[Array, "P D"], keep_P: Float[Array, " P"] | None, order: int
) -> tuple[Float[Array, " D"], ...]:
    """Compute mean, variance and, for order 4, fourth central moment of the kept points.

    By products with the weights: many sets of weights become one matrix product.
    """
    keep_P = jnp.ones(x_PD.shape[0]) if keep_P is None else keep_P
    weight_P = keep_P / keep_P.sum()
    raw = [product(weight_P, x_PD**power) for power in range(1, order + 1)]
    mean_D, second_D = raw[:2]
    variance_D = jnp.maximum(second_D - jnp.square(mean_D), 0.0)
    if order == 2:
        return mean_D, variance_D
    third_D, fourth_D = raw[2:]
    central_D = fourth_D - 4 * third_D * mean_D + 6 * second_D * jnp.square(mean_D) - 3 * mean_D**4
    return mean_D, variance_D, central_D


def _order_statistic(size_PD: Float[Array, "P D"], rank: int) -> Float[Array, " P"]:
    """Find each row's value of this rank, 0 the smallest, of numbers >= 0.

    The search goes bit by bit, ten times faster than a sort: read as integers, the bits of such
    floats have their order.
    """

    def select(bits_D: Int[Array, " D"]) -> Int[Array, ""]:
        def decide(step: Int[Array, ""], value: Int[Array, ""]) -> Int[Array, ""]:
            tried = value | (1 << (30 - step))
            return jnp.where((bits_D < tried).sum() <= rank, tried, value)

        return jax.lax.fori_loop(0, 31, decide, jnp.zeros((), jnp.int32))

    bits_PD = jax.lax.bitcast_convert_type(size_PD, jnp.int32)
    statistic_P = jax.lax.map(select, bits_PD, batch_size=min(MEDIANS_AT_ONCE, len(bits_PD)))
    return jax.lax.bitcast_convert_type(statistic_P, jnp.float32)


RATIOS = (3, 10, 30, 100, 300, 1000, 3000)
SUN = "Sun et al. 2024, Massive Activations in Large Language Models"
PEAK = "max_j |x_ij| / median_j |x_ij|, the lower of two medians; vectors of zeros are left out"


OUTLIER_QUANTITIES = {
    "top_coordinate_variance_share": share(
        "variance in the top coordinates",
        "share of the total variance in the `top` coordinates of largest variance",
        dims=("layer", "top"),
        read=top_coordinate_variance_share,
    ),
    "coordinate_kurtosis": Quantity(
        "kurtosis across coordinates",
        "D sum_j v_j^2 / (sum_j v_j)^2, v_j the variance of coordinate j",
        "after He et al. 2024",
        range=AT_LEAST_1,
        read=coordinate_kurtosis,
    ),
    "activation_kurtosis": Quantity(
        "kurtosis of the activations",
        "mean over coordinates of the kurtosis over points",
        range=AT_LEAST_1,
        read=activation_kurtosis,
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
MASSIVE_QUANTITIES = {
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
    peak_P = jnp.where(nonzero_P, coordinate_peaks(cloud_PD), 0.0)

    values = cloud.over_folds(
        lambda keep_P: read_all(OUTLIER_QUANTITIES, cloud_PD, keep_P, valid_P)
    )
    values["coordinate_peak"] = cloud.fold_means(peak_P, nonzero_P)
    values["top_coordinate_variance_share"] = values["top_coordinate_variance_share"].T
    values["massive_activation"] = jnp.where(nonzero_P.any(), largest(peak_P), jnp.nan)
    return values | {
        "anisotropy_without_top_coordinates": anisotropy_without_top_coordinates(
            cloud_PD, cloud.labels.keep_RP
        )
    }


def measure_massive(cloud: Cloud) -> Values:
    """Measure a cloud, (ratio, R); NaN where it is not finite.

    Norms are compared with the median norm of the whole cloud.
    """
    norm_P = jnp.linalg.norm(jnp.asarray(cloud.points_PD, jnp.float32), axis=1)

    def count(ratio_P: Array) -> Array:
        # the sum makes the share NaN where a norm is NaN
        above = nan_unless(norm_P.sum(), ratio_P[None] > jnp.array(RATIOS, jnp.float32)[:, None])
        return cloud.fold_means(above)

    return {
        "massive_points": count(coordinate_peaks(cloud.points_PD)),
        "long_points": count(norm_P / lower_median(norm_P, cloud.labels.valid_P)),
    }


OUTLIERS = Family("cloud", measure_outliers, OUTLIER_QUANTITIES, coordinates={"top": TOPS})
MASSIVE = Family("cloud", measure_massive, MASSIVE_QUANTITIES, coordinates={"ratio": RATIOS})
