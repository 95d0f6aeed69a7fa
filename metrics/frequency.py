"""Family frequency: how a cloud depends on the frequency of the characters at its points.

Types are numbers, below 0 for none. Only types with LEAST_OF_TYPE points in the whole cloud have a
centroid. X are columns that are summed, or bins.
"""

import functools
from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Int

from anisoscope.metrics.cloud import AnyArray, Points, Scalar, Weights, centered, fold_weights
from anisoscope.metrics.quantity import POINT_NULLS, Family, Values, count, magnitude, norm, share
from anisoscope.metrics.quantity import correlation as correlation_quantity
from anisoscope.metrics.resampling import Cloud

LENGTHS = (1, 2, 3)  # n, of the last n characters that make a type
BINS = ("least frequent quarter", "second quarter", "third quarter", "most frequent quarter")

LEAST_OF_TYPE = 20  # points of a type
FEWEST_TYPES = 3  # types for a correlation: with two it is always 1 or -1
SPREAD_ROUNDING = (
    1e-5  # of a cloud's spread: in float32 equal points can be this far from their mean
)
_contract = functools.partial(jnp.einsum, precision=Precision.HIGHEST)
FREQUENCY_SOURCE = (
    "reconstruction after Bernas et al. 2026, Revisiting Anisotropy in Language Transformers"
)


def number_frequent_types(
    type_P: Int[AnyArray, " P"], least: int = LEAST_OF_TYPE
) -> Int[Array, " P"]:
    """Assign 0 to V - 1 to types of `least` points or more; V = P // least to all other points."""
    type_P = jnp.asarray(type_P)
    points, most = type_P.size, type_P.size // least
    sorted_P = jnp.sort(type_P, stable=False)
    # where a type begins: the same number for all of its points
    start_P = jnp.searchsorted(sorted_P, type_P)
    count_P = jnp.zeros(points, jnp.int32).at[start_P].add(1)
    enough_P = (count_P >= least) & (sorted_P >= 0)  # at each place where a type begins
    number_P = jnp.where(enough_P, jnp.cumsum(enough_P) - 1, most)
    return number_P[start_P].astype(jnp.int32)


class TypeStatistics(NamedTuple):
    """Statistics of the centroids of types, of the whole cloud, then of each resample."""

    distance: Float[Array, " R"]  # E d_i, in units of x
    correlation: Float[Array, " R"]  # Pearson's r of d_i and l_i
    correlation_of_types: Float[Array, " R"]  # that of the types' mean d and l
    # sum_v n_v |m_v - m|^2 / sum_i |x_i - m|^2, [0, 1]
    share_between: Float[Array, " R"]
    distances: Float[Array, "R P"]  # d_i; NaN for a point left out, or of no frequent type


def type_statistics(
    cloud_PD: Points,
    number_P: Int[AnyArray, " P"],
    log_frequency_P: Float[AnyArray, " P"],
    folds: int = 1,
    least: int = LEAST_OF_TYPE,
) -> TypeStatistics:
    """Distances of points to the centroid of their type, and their correlation with log frequency.

    d_i = |x_i - c_i|, c_i the mean of the *other* points of its type, by `number_frequent_types`
    with the same `least`. d falls with frequency even without any dependence, as E d_i^2 is n/(n -
    1) of the variance: compare with a Gaussian cloud of the same types. A distance below 1e-5 of
    the cloud's spread counts as 0. R = 1 + folds, or one: each of the consecutive folds is left
    out in turn, and with it types of which fewer than 2 points are kept. All are NaN without a
    frequent type; correlations also for fewer than 3 types, or where all distances or frequencies
    are equal; the share also for a single type, or where all points are equal.
    """
    x_PD, number_P, keep_RJ = centered(cloud_PD), jnp.asarray(number_P), fold_weights(folds)
    points, most = len(x_PD), len(x_PD) // least
    if most == 0:
        none_RP = jnp.full((len(keep_RJ), points), jnp.nan)
        return TypeStatistics(*jnp.full((4, len(keep_RJ)), jnp.nan), none_RP)
    square_P = jnp.square(x_PD).sum(axis=1)
    rounding = SPREAD_ROUNDING * jnp.sqrt(square_P.mean())
    # zeros for a point of no frequent type
    member_PV = jax.nn.one_hot(number_P, most, dtype=jnp.float32)
    log_frequency_P = jnp.where(number_P < most, jnp.asarray(log_frequency_P, jnp.float32), 0.0)
    summand_P3 = jnp.stack([jnp.ones(points), square_P, log_frequency_P], axis=1)
    member_JPV = member_PV.reshape(folds, -1, most)
    sum_JVD, summand_JV3 = (
        _contract("jpv,jpx->jvx", member_JPV, value_PX.reshape(folds, -1, value_PX.shape[1]))
        for value_PX in (x_PD, summand_P3)
    )
    safe_P = jnp.minimum(number_P, most - 1)

    def read_resample(keep_J: Array) -> TypeStatistics:
        sum_VD = _contract("j,jvd->vd", keep_J, sum_JVD)
        count_V, square_V, log_frequency_V = _contract("j,jvx->xv", keep_J, summand_JV3)
        known_V = count_V >= 2  # types of which two or more points are kept
        count_V = jnp.where(known_V, count_V, 0.0)
        mean_VD = sum_VD / jnp.maximum(count_V, 1.0)[:, None]
        read_P = (number_P < most) & known_V[safe_P] & (jnp.repeat(keep_J, points // folds) > 0)
        # factor by which the mean of the other points is farther away than the mean of all
        factor_V = count_V / jnp.maximum(count_V - 1, 1.0)
        distance_P = factor_V[safe_P] * jnp.linalg.norm(x_PD - mean_VD[safe_P], axis=1)
        distance_P = jnp.where(read_P & ~(distance_P < rounding), distance_P, 0.0)
        per_point_V = 1.0 / jnp.maximum(count_V, 1.0)
        distance_V = _contract("p,pv->v", distance_P, member_PV) * per_point_V
        correlations = (
            correlation(distance_P, log_frequency_P, read_P.astype(jnp.float32)),
            correlation(distance_V, log_frequency_V * per_point_V, known_V.astype(jnp.float32)),
        )
        return TypeStatistics(
            distance_P.sum() / count_V.sum(),
            *(jnp.where(known_V.sum() >= FEWEST_TYPES, r, jnp.nan) for r in correlations),
            _share_between(count_V, sum_VD, square_V, rounding),
            jnp.where(read_P, distance_P, jnp.nan),
        )

    return jax.lax.map(read_resample, keep_RJ)


def _share_between(
    count_V: Float[Array, " V"],
    sum_VD: Float[Array, "V D"],
    square_V: Float[Array, " V"],
    rounding: Scalar,
) -> Scalar:
    """Compute the share of the scatter between types from counts (0: left out) and sums."""
    known_V, count = count_V > 0, count_V.sum()
    mean_VD = sum_VD / jnp.maximum(count_V, 1.0)[:, None]
    mean_D = _contract("v,vd->d", known_V.astype(jnp.float32), sum_VD) / count
    between = (count_V * jnp.square(mean_VD - mean_D[None]).sum(axis=1)).sum()
    total = jnp.where(known_V, square_V, 0.0).sum() - count * jnp.square(mean_D).sum()
    varies = (known_V.sum() >= 2) & ~(total <= count * jnp.square(rounding))
    # rounding can leave 1 + 1e-7
    return jnp.where(varies, jnp.clip(between / total, 0.0, 1.0), jnp.nan)


def correlation(
    x_P: Float[AnyArray, " P"], y_P: Float[AnyArray, " P"], weight_P: Weights = None
) -> Scalar:
    """Pearson's r with weights >= 0 (None: all 1): (P,), (P,) -> scalar in [-1, 1].

    NaN where an argument is constant, or without weight.
    """
    x_P, y_P = (jnp.asarray(x, jnp.float32) for x in (x_P, y_P))
    weight_P = jnp.ones_like(x_P) if weight_P is None else jnp.asarray(weight_P, jnp.float32)
    weight_P = weight_P / weight_P.sum()
    dx_P, dy_P = (x - (weight_P * x).sum() for x in (x_P, y_P))
    variance_x, variance_y, both = (
        (weight_P * a * b).sum() for a, b in ((dx_P, dx_P), (dy_P, dy_P), (dx_P, dy_P))
    )
    varies = (variance_x > 1e-12 * (weight_P * x_P**2).sum()) & (
        variance_y > 1e-12 * (weight_P * y_P**2).sum()
    )
    return jnp.where(varies, jnp.clip(both / jnp.sqrt(variance_x * variance_y), -1.0, 1.0), jnp.nan)


def mean_by_bin(
    value_P: Float[AnyArray, " P"], bin_P: Int[AnyArray, " P"], bins: int, keep_P: Weights = None
) -> Float[Array, " {bins}"]:
    """Mean of the values of each bin, weights 1 or 0 (None: all): (P,) -> (bins,), in their units.

    NaN for an empty bin, and for one with a value that is kept and not finite.
    """
    value_P = jnp.asarray(value_P, jnp.float32)
    weight_P = jnp.ones_like(value_P) if keep_P is None else jnp.asarray(keep_P, jnp.float32)
    member_PX = jax.nn.one_hot(jnp.asarray(bin_P), bins, dtype=jnp.float32)
    read_P, lost_P = (weight_P > 0) & jnp.isfinite(value_P), (weight_P > 0) & ~jnp.isfinite(value_P)
    sums_P3 = jnp.stack(
        [jnp.where(read_P, value_P, 0.0), weight_P, lost_P.astype(jnp.float32)], axis=1
    )
    sum_X, count_X, lost_X = _contract("px,pv->vx", member_PX, sums_P3)
    return jnp.where(lost_X > 0, jnp.nan, sum_X / count_X)


FREQUENT = (
    f"over the points whose last n characters (n: `ngram`) occur at {LEAST_OF_TYPE} points of the cloud or "
    "more, and in the training split"
)
DISTANCE = "d = |x - mean of the other points of the same n characters|"
UNRELATED = (
    f"NaN for fewer than {FEWEST_TYPES} types; below 0 in a Gaussian cloud too, since the centroid of "
    "few points lies farther off"
)
BIN_QUANTITIES = ("norm_by_frequency", "centroid_distance_by_frequency")
FREQUENCY_QUANTITIES = {
    "frequency_correlation": correlation_quantity(
        "correlation of log frequency and distance to the own centroid",
        f"Pearson's r of ln f and d {FREQUENT}; {DISTANCE}, f the frequency in the training split; "
        f"{UNRELATED}",
        FREQUENCY_SOURCE,
    ),
    "frequency_correlation_over_types": correlation_quantity(
        "correlation of log frequency and distance to the own centroid, over types",
        f"Pearson's r of ln f and each type's mean of d {FREQUENT}; {DISTANCE}; {UNRELATED}",
        FREQUENCY_SOURCE,
    ),
    "centroid_distance": norm(
        "distance to the own centroid",
        f"E d {FREQUENT}; {DISTANCE}",
        FREQUENCY_SOURCE,
        symbol="E |x − c|",
    ),
    "variance_share_between_types": share(
        "share of the variance between types",
        f"sum_k n_k |m_k - m|^2 / sum_i |x_i - m|^2 {FREQUENT}, m_k the mean of type k; by chance "
        "(K - 1)/(n - 1) of K types of n points",
    ),
    "norm_by_frequency": norm(
        "mean norm by the frequency of the character",
        "E |x| over the points of each quarter: characters in the order of their frequency in the "
        "training split, each quarter about as many positions of it",
        symbol="E |x|",
    ),
    "centroid_distance_by_frequency": norm(
        "distance to the own centroid by the frequency of the character",
        "E d over the points of each quarter, as in norm_by_frequency, whose character occurs at "
        f"{LEAST_OF_TYPE} points of the cloud or more, d = |x - mean of the other points of the same "
        "character|",
        FREQUENCY_SOURCE,
        symbol="E |x − c|",
    ),
    "frequent_points": count("points of frequent types", f"number of points, {FREQUENT}"),
    "frequent_types": magnitude(
        "frequent types",
        f"number of different last n characters {FREQUENT}",
        units="types",
        resampling="",
    ),
}
FREQUENCY_QUANTITIES = {
    name: replace(entry, dims=("layer", "ngram" if name not in BIN_QUANTITIES else "frequency"))
    for name, entry in FREQUENCY_QUANTITIES.items()
}
TYPE_QUANTITIES = (  # in the order of metrics.TypeStatistics
    "centroid_distance",
    "frequency_correlation",
    "frequency_correlation_over_types",
    "variance_share_between_types",
)


def measure_frequency(cloud: Cloud) -> Values:
    """Measure a cloud whose points have types."""
    cloud_PD, keep_RP, types = cloud.points_PD, cloud.labels.keep_RP, cloud.types
    folds = max(len(keep_RP) - 1, 1)  # of equal size, one after another, as texts are cut

    def measure_length(arrays: tuple[Array, Array]) -> Values:
        type_P, log_frequency_P = arrays
        number_P = number_frequent_types(jnp.where(jnp.isfinite(log_frequency_P), type_P, -1))
        statistics = type_statistics(cloud_PD, number_P, log_frequency_P, folds)
        few = len(cloud_PD) // LEAST_OF_TYPE  # the type number of every point of a rare type
        return dict(zip(TYPE_QUANTITIES, statistics[:4], strict=True)) | {
            "distances": statistics.distances,
            "frequent_points": (number_P < few).sum(dtype=jnp.int32),
            "frequent_types": jnp.where(number_P < few, number_P + 1, 0).max().astype(jnp.float32),
        }

    values = jax.lax.map(measure_length, (types.type_LP, types.log_frequency_LP))
    distance_RP = values.pop("distances")[0]  # for single characters, like the bins
    norm_P = jnp.linalg.norm(cloud_PD, axis=1)

    def by_bin(keep_P: Array, distance_P: Array) -> Values:
        # only points of frequent types have a distance
        read = ((norm_P, keep_P), (distance_P, keep_P * ~jnp.isnan(distance_P)))
        return {
            name: mean_by_bin(value_P, types.bin_P, len(BINS), kept_P)
            for name, (value_P, kept_P) in zip(BIN_QUANTITIES, read, strict=True)
        }

    binned = jax.vmap(by_bin)(jnp.asarray(keep_RP), distance_RP)
    return values | {name: value_RB.T for name, value_RB in binned.items()}


FREQUENCY = Family(
    "cloud",
    measure_frequency,
    FREQUENCY_QUANTITIES,
    POINT_NULLS,
    reads_types=True,
    coordinates={"ngram": LENGTHS, "frequency": BINS},
)
