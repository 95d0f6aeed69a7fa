"""Family leading: how few vectors carry the variance of a cloud, first tokens or longest vectors."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import AnyArray, Points, Scalar, Weights, centered, largest, product
from anisoscope.metrics.eigen import top_direction
from anisoscope.metrics.quantity import (
    AT_LEAST_1,
    AT_MOST_1,
    POINT_NULLS,
    SHAPE_OF_LEARNING,
    Family,
    Quantity,
    Values,
    share,
)
from anisoscope.metrics.resampling import Cloud

MASSIVE_RATIO = 10.0  # times the median norm: a longer vector is massive
SHARE_REMOVED = 100  # the longest of so many vectors is removed
LONGEST_LEFT_OUT = ("longest of each window", "longest 1 %")
BY_WITHOUT = ("layer", "without")
REMOVED = "without the longest vector of each window, or the longest 1 % of all"


def share_between(
    cloud_PD: Points,
    member_P: Bool[AnyArray, " P"],
    keep_P: Weights = None,
    valid_P: Bool[AnyArray, " P"] | None = None,
) -> Scalar:
    """Share of the scatter between the members and the rest: f (1 - f) |m_1 - m_0|^2 / tr C.

    f is the share of the points that are members, m_1 and m_0 the means of members and rest, C the
    covariance of all; weights 1 or 0 of the points (None: all). Range: [0, `anisotropy`]. No member
    kept, or no other point: 0. NaN if all points are equal. Of points that are not valid, see `centered`.
    """
    x_PD = centered(cloud_PD, valid_P)
    keep_P = jnp.ones(len(x_PD)) if keep_P is None else jnp.asarray(keep_P, jnp.float32)
    member_P = jnp.asarray(member_P)
    weight_2P = keep_P[None] * jnp.stack([~member_P, member_P])
    count_2 = weight_2P.sum(axis=1)
    mean_2D = product(weight_2P, x_PD) / jnp.maximum(count_2, 1.0)[:, None]
    share_2 = count_2 / count_2.sum()
    between = share_2[0] * share_2[1] * jnp.square(mean_2D[1] - mean_2D[0]).sum()
    mean_D = product(keep_P, x_PD) / keep_P.sum()
    square_P = jnp.square(x_PD).sum(axis=1)
    total = product(keep_P, square_P) / keep_P.sum() - jnp.square(mean_D).sum()
    return jnp.minimum(between / total, 1.0)  # rounding can leave 1 + 1e-7


def share_by_norm(
    cloud_PD: Points, member_P: Bool[AnyArray, " P"], keep_P: Weights = None
) -> Scalar:
    """`share_between` expected from norms alone: f r^2 / (1 + f r^2), f the share of members.

    The members are taken as equal and the rest as scattered about 0; r^2 = E |x|^2 of the members
    over that of the rest. 0 if no member is kept. NaN if no other is kept, or all points are 0.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    keep_P = jnp.ones(len(cloud_PD)) if keep_P is None else jnp.asarray(keep_P, jnp.float32)
    member_P = jnp.asarray(member_P)
    weight_2P = keep_P[None] * jnp.stack([~member_P, member_P])
    count_2 = weight_2P.sum(axis=1)
    size_P = jnp.abs(cloud_PD).max(axis=1)
    # otherwise squares of long vectors would overflow
    scaled_PD = cloud_PD / largest(jnp.where(keep_P > 0, size_P, 0.0))
    square_P = jnp.where(keep_P > 0, jnp.square(scaled_PD).sum(axis=1), 0.0)
    square_2 = product(weight_2P, square_P)
    # multiplied by the norms of the rest on both sides, so that nothing is divided by a norm of 0
    both = square_2[1] * count_2[0] / count_2.sum()
    return both / (both + square_2[0])


def longest(cloud_PD: Points, count: Int[Array, ""] | int) -> Bool[Array, " P"]:
    """Mark the `count` points of largest norm; of equal ones the first."""
    norm_P = jnp.linalg.norm(jnp.asarray(cloud_PD, jnp.float32), axis=1)
    order_P = jnp.argsort(-norm_P)  # stable
    return jnp.zeros(norm_P.size, bool).at[order_P].set(jnp.arange(norm_P.size) < count)


def longest_of_each(cloud_PD: Points, window_P: Int[AnyArray, " P"]) -> Bool[Array, " P"]:
    """Mark the point of largest norm of every window, of equal ones the first.

    Windows are numbers of 0 to P - 1.
    """
    norm_P = jnp.linalg.norm(jnp.asarray(cloud_PD, jnp.float32), axis=1)
    window_P, points = jnp.asarray(window_P), norm_P.size
    most_W = jax.ops.segment_max(norm_P, window_P, num_segments=points)
    place_P = jnp.where(norm_P == most_W[window_P], jnp.arange(points), points)
    return (
        jnp.arange(points) == jax.ops.segment_min(place_P, window_P, num_segments=points)[window_P]
    )


def norm_ratio(cloud_PD: Points, valid_P: Bool[AnyArray, " P"] | None = None) -> Scalar:
    """Largest norm over the median norm (the lower of two medians).

    Range: >= 1. More than half of the points 0: inf, or NaN where all are. Not finite: not finite.
    Points that are not valid (None: all are) must be 0.
    """
    norm_P = jnp.linalg.norm(jnp.asarray(cloud_PD, jnp.float32), axis=1)
    return largest(norm_P) / lower_median(norm_P, valid_P)


def lower_median(x_P: Float[Array, " P"], valid_P: Bool[Array, " P"] | None = None) -> Scalar:
    """Lower median of the valid numbers (None: all), as PyTorch's: a value that occurs."""
    valid_P = jnp.ones(x_P.size, bool) if valid_P is None else valid_P
    sorted_P = jnp.sort(jnp.where(valid_P, x_P, jnp.inf), stable=False)
    return sorted_P[(valid_P.sum() - 1) // 2]


def is_massive(norm_P: Float[AnyArray, " P"]) -> Bool[Array, " P"]:
    """Mark the norms of a cloud above MASSIVE_RATIO times their median (the lower of two medians)."""
    norm_P = jnp.asarray(norm_P)
    return norm_P > MASSIVE_RATIO * lower_median(norm_P)


class Direction(NamedTuple):
    """Statistics of the first principal direction of the remaining points, R resamples."""

    share: Float[Array, " R"]
    kurtosis: Float[Array, " R"]
    between: Float[Array, " R"]


def first_direction(
    cloud_PD: Points,
    left_P: Bool[AnyArray, " P"],
    keep_RP: Float[AnyArray, "R P"],
    label_P: Int[AnyArray, " P"] | None = None,
    valid_P: Bool[AnyArray, " P"] | None = None,
) -> Direction:
    """`anisotropy` of the remaining points, and how their scores s on the first direction spread.

    The direction is that of all points left, in all of R resamples. share: lambda_1 / tr C, [1/D,
    1]. kurtosis: E (s - E s)^4 / (E (s - E s)^2)^2, [1, P]. between: how much of the variance of s
    lies between labels, 1 - (1 - eta^2) (n - 1) / (n - g) of n points with g labels; at most 1, NaN
    without labels or where n = g. NaN if all points are equal, or none is left. Points that are not
    valid are never left.
    """
    left_P, keep_RP = jnp.asarray(left_P), jnp.asarray(keep_RP, jnp.float32)
    x_PD, weight_P = centered(cloud_PD, valid_P), left_P.astype(jnp.float32)
    mean_D = product(weight_P, x_PD) / weight_P.sum()
    x_PD = jnp.where(left_P[:, None], x_PD - mean_D[None], 0.0)
    _, direction_D = top_direction(product(x_PD.T, x_PD))
    score_P = product(x_PD, direction_D)
    weight_RP = keep_RP * weight_P[None]
    weight_RP = weight_RP / weight_RP.sum(axis=1, keepdims=True)
    score_RP = score_P[None] - product(weight_RP, score_P)[:, None]
    variance_R = (weight_RP * jnp.square(score_RP)).sum(axis=1)
    scaled_RP = score_RP / jnp.sqrt(variance_R)[:, None]
    label_P = jnp.zeros(len(x_PD), jnp.int32) if label_P is None else jnp.asarray(label_P)
    between_R = _between(scaled_RP, weight_RP, label_P)
    return Direction(
        variance_R / scatter(x_PD, weight_RP), (weight_RP * scaled_RP**4).sum(axis=1), between_R
    )


def scatter(x_PD: Float[Array, "P D"], weight_RP: Float[Array, "R P"]) -> Float[Array, " R"]:
    """Total variance, tr C, under each set of weights, which add up to 1: E |x|^2 - |E x|^2."""
    mean_RD = product(weight_RP, x_PD)
    square_R = product(weight_RP, jnp.square(x_PD).sum(axis=1))
    return square_R - jnp.square(mean_RD).sum(axis=1)


def _between(
    scaled_RP: Float[Array, "R P"], weight_RP: Float[Array, "R P"], label_P: Int[Array, " P"]
) -> Array:
    """Compute epsilon squared of scores of mean 0 and variance 1; weights add up to 1."""
    points = label_P.size
    number_P = jnp.searchsorted(jnp.sort(label_P, stable=False), label_P)  # below P
    share_PR, sum_PR = (
        jax.ops.segment_sum(value_RP.T, number_P, num_segments=points)
        for value_RP in (weight_RP, weight_RP * scaled_RP)
    )
    between_R = jnp.where(
        share_PR > 0, jnp.square(sum_PR) / jnp.where(share_PR > 0, share_PR, 1.0), 0.0
    ).sum(axis=0)
    points_R, labels_R = (weight_RP > 0).sum(axis=1), (share_PR > 0).sum(axis=0)
    known_R = (labels_R > 1) & (labels_R < points_R)
    corrected_R = 1.0 - (1.0 - between_R) * (points_R - 1) / jnp.where(
        known_R, points_R - labels_R, 1
    )
    return jnp.where(known_R, jnp.minimum(corrected_R, 1.0), jnp.nan)


LEADING_QUANTITIES = {
    "first_token_variance_share": share(
        "share of the scatter between the first token of each window and the rest",
        "f (1 - f) |E x_first - E x_other|^2 / tr C, f the share of first tokens; a lower bound of "
        "the anisotropy",
    ),
    "first_token_variance_share_by_norm": share(
        "share of the first token, expected from the norms alone",
        "f r^2 / (1 + f r^2), r^2 = E |x_first|^2 / E |x_other|^2: first tokens equal, the rest "
        "about 0",
    ),
    "longest_vectors_variance_share": share(
        "share of the scatter between the longest 1 % of the vectors and the rest",
        "f (1 - f) |E x_long - E x_other|^2 / tr C, f = 1 %; a lower bound of the anisotropy",
    ),
    "first_pc_kurtosis": Quantity(
        "kurtosis of the scores on the first principal direction",
        "E (s - E s)^4 / (E (s - E s)^2)^2, s = <x, v_1>; about 1/f where a share f of the points "
        "makes v_1",
        range=AT_LEAST_1,
    ),
    "first_pc_variance_by_position": Quantity(
        "share of the variance along the first principal direction between positions of the window",
        "1 - (1 - eta^2) (n - 1) / (n - g), eta^2 = sum_t f_t (E_t s - E s)^2 / E (s - E s)^2, s = "
        "<x, v_1>, over the g positions t of n points, f_t the share of the points at t; about 0 "
        "where positions say nothing about s",
        "epsilon squared of Kelley 1935; of this direction: this project",
        range=AT_MOST_1,
    ),
    "norm_ratio": Quantity(
        "largest norm over the median norm",
        "max |x| / median |x|, the lower of two medians",
        "after Sun et al. 2024, Massive Activations in Large Language Models",
        range=AT_LEAST_1,
        resampling="",
    ),
    "anisotropy_without_longest": share(
        "anisotropy without the longest vectors",
        f"max(lambda) / sum(lambda) {REMOVED}; what is removed is long, so that this lowers it in "
        "the Gaussian null model too",
        f"{SHAPE_OF_LEARNING}; the removal: this project",
        dims=BY_WITHOUT,
    ),
}


def without_longest(whole: Quantity) -> Quantity:
    """Return the entry of a quantity measured without the cloud's longest vectors."""
    return dataclasses.replace(
        whole,
        dims=BY_WITHOUT,
        long_name=f"{whole.long_name}, without the longest vectors",
        formula=f"{whole.formula}, {REMOVED}",
        source=f"{whole.source}; the removal: this project",
        read=None,
    )


def remaining(cloud: Cloud) -> Array:
    """Mark the points that remain after each removal of LONGEST_LEFT_OUT, (2, P).

    The first removal takes the longest vector of each window, the second the longest 1 % of all.
    Where windows are unknown, the first removal leaves no point.
    """
    points, valid_P = cloud.labels.points, cloud.labels.valid_P
    long_P = longest(cloud.points_PD, jnp.maximum(1, points // SHARE_REMOVED))
    window_P = cloud.places.window_P
    number_P = jnp.where(window_P < 0, jnp.arange(len(valid_P)), window_P)
    longest_P = longest_of_each(cloud.points_PD, number_P)
    return valid_P[None] & ~jnp.stack([longest_P, long_P])


def measure_leading(cloud: Cloud) -> Values:
    """Measure a cloud; NaN where it has no first token, or where the positions are unknown."""
    cloud_PD, labels, time_P = cloud.points_PD, cloud.labels, cloud.places.time_P
    valid_P = labels.valid_P
    left_2P = remaining(cloud)
    first_P, long_P = (time_P == 0) & valid_P, valid_P & ~left_2P[1]

    def read_kept(keep_P: Array) -> Values:
        first = share_between(cloud_PD, first_P, keep_P, valid_P)
        by_norm = share_by_norm(cloud_PD, first_P, keep_P)
        return {
            "first_token_variance_share": jnp.where(first_P.any(), first, jnp.nan),
            "first_token_variance_share_by_norm": jnp.where(first_P.any(), by_norm, jnp.nan),
            "longest_vectors_variance_share": share_between(cloud_PD, long_P, keep_P, valid_P),
        }

    values = cloud.over_folds(read_kept)
    left_3P = jnp.concatenate([valid_P[None], left_2P])
    direction_3 = jax.lax.map(
        lambda left_P: first_direction(cloud_PD, left_P, labels.keep_RP, time_P, valid_P),
        left_3P,
    )
    return values | {
        "first_pc_kurtosis": direction_3.kurtosis[0],
        "first_pc_variance_by_position": direction_3.between[0],
        "norm_ratio": norm_ratio(cloud_PD, valid_P),
        "anisotropy_without_longest": direction_3.share[1:],
    }


LEADING = Family(
    "cloud",
    measure_leading,
    LEADING_QUANTITIES,
    POINT_NULLS,
    coordinates={"without": LONGEST_LEFT_OUT},
)
