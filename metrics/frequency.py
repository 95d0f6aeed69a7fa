"""How a cloud whose points are of types depends on how frequent these are: types' own centroids, and norms.

A type is what stands at a point's position, a character say. Types are numbers; below 0: of none. Only frequent types
have a centroid, those that LEAST points of the whole cloud are of: `frequent` numbers them 0 to K - 1, and every other
point K, where K = P // LEAST is as many as there can be.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Int

from anisoscope.metrics.cloud import AnyArray, centred, leave_out

LEAST = 20  # points of a type
FEWEST = 3  # types between which a correlation says something: of two it is 1 or -1
ROUNDING = 1e-5  # of the spread of a cloud: equal points lie so far from their mean in float32
SOURCE = "reconstruction after Bernas et al. 2026, Revisiting Anisotropy in Language Transformers"


def frequent(type_P: Int[AnyArray, " P"], least: int = LEAST) -> Int[Array, " P"]:
    """The number below K = P // least of each point's type, K where its type has fewer points, or is below 0.

    Shapes: (P,) -> (P,). Types are numbered in ascending order.
    """
    type_P = jnp.asarray(type_P)
    points, most = type_P.size, type_P.size // least
    sorted_P = jnp.sort(type_P)
    start_P = jnp.searchsorted(sorted_P, type_P)  # where a type begins: the same number for all of its points
    count_P = jnp.zeros(points, jnp.int32).at[start_P].add(1)
    enough_P = (count_P >= least) & (sorted_P >= 0)  # of each place where a type begins
    number_P = jnp.where(enough_P, jnp.cumsum(enough_P) - 1, most)
    return number_P[start_P].astype(jnp.int32)


class OfTypes(NamedTuple):
    """What is read off the centroids of types, of the whole cloud, then of each resample."""

    distance: Float[Array, " R"]
    correlation: Float[Array, " R"]
    correlation_of_types: Float[Array, " R"]
    share_between: Float[Array, " R"]
    distances: Float[Array, "R P"]  # of each point; NaN of those that are not read


def of_types(
    cloud_PD: Float[AnyArray, "P D"],
    number_P: Int[AnyArray, " P"],
    log_frequency_P: Float[AnyArray, " P"],
    folds: int = 1,
    least: int = LEAST,
) -> OfTypes:
    """Distances of points to the centroid of their type, and how they go with the log frequency of the type.

    Of the points that are of a frequent type, d_i = |x_i - c_i| with c_i the mean of the *other* points of its type.
        distance              E d_i; units of x, >= 0
        correlation           Pearson's r of d_i and l_i; [-1, 1]
        correlation_of_types  Pearson's r of the types' mean d and l, each type counting once; [-1, 1]
        share_between         sum_k n_k |m_k - m|^2 / sum_i |x_i - m|^2, m_k the mean of type k, m of all; [0, 1]
        distances             d_i of each point, NaN of a point that is of no frequent type or left out; (R, P)
    Shapes: P points of width D, fold-major in `folds` folds of equal size; `number_P` as `frequent` gives it; l_i,
    the log frequency of each point's type -> arrays (R,), R = 1 of one fold, else 1 + folds: all points, then all but
    one fold after another. Which types are frequent does not change between resamples; one of which a resample keeps
    fewer than 2 points is left out of it.

    Even without any dependence d falls with frequency: the centroid of n points has an error of its own, and E d_i^2 is
    n/(n - 1) of the variance, 1.05 times for n = 20. So a Gaussian cloud of the same types belongs beside the
    correlations. Fewer than 3 frequent types: both correlations are NaN, of 1 the share is, of none all are. A distance
    below 1e-5 of the cloud's spread is rounding and counts as 0. All distances or all frequencies equal: the
    correlation is NaN. All points equal: the share is NaN. Source: the distance and its correlation are a
    reconstruction after Bernas et al. 2026, whose text was not at hand: the least number of points of a type is a
    reading of ours. The share is that of a one-way analysis of variance, Fisher 1925.
    """
    x_PD, number_P = centred(cloud_PD), jnp.asarray(number_P)
    points, most = len(x_PD), len(x_PD) // least
    spread = jnp.sqrt(jnp.square(x_PD).sum(axis=1).mean())
    member_PK = jax.nn.one_hot(number_P, most, dtype=jnp.float32)  # of a point of no frequent type: zeros
    log_frequency_P = jnp.where(number_P < most, jnp.asarray(log_frequency_P, jnp.float32), 0.0)

    def of_folds(weight_PK: Array, value_PV: Array) -> Array:
        """Sums over the points of each type and fold, (J, K, V)."""
        parts_JPK, parts_JPV = (x.reshape(folds, points // folds, -1) for x in (weight_PK, value_PV))
        return jnp.einsum("jpk,jpv->jkv", parts_JPK, parts_JPV, precision=Precision.HIGHEST)

    beside_PV = jnp.stack([jnp.ones(points), jnp.square(x_PD).sum(axis=1), log_frequency_P], axis=1)
    sums_JKD, beside_JKV = of_folds(member_PK, x_PD), of_folds(member_PK, beside_PV)
    keep_RJ = leave_out(folds)

    def of_resample(keep_J: Array) -> OfTypes:
        sum_KD = jnp.einsum("j,jkd->kd", keep_J, sums_JKD, precision=Precision.HIGHEST)
        count_K, square_K, log_K = jnp.einsum("j,jkv->vk", keep_J, beside_JKV, precision=Precision.HIGHEST)
        known_K = count_K >= 2
        count_K = jnp.where(known_K, count_K, 0.0)
        mean_KD = sum_KD / jnp.maximum(count_K, 1.0)[:, None]
        safe_P = jnp.minimum(number_P, most - 1)
        weight_P = (number_P < most) * known_K[safe_P] * jnp.repeat(keep_J, points // folds)
        factor_K = count_K / jnp.maximum(count_K - 1, 1.0)  # the mean of the others is so much farther away
        distance_P = factor_K[safe_P] * jnp.linalg.norm(x_PD - mean_KD[safe_P], axis=1)
        distance_P = jnp.where((weight_P > 0) & ~(distance_P < ROUNDING * spread), distance_P, 0.0)
        distance_K = jnp.einsum("p,pk->k", distance_P, member_PK, precision=Precision.HIGHEST)
        distance_K = distance_K / jnp.maximum(count_K, 1.0)
        several = known_K.sum() >= FEWEST
        of_points = correlation(distance_P, log_frequency_P, weight_P)
        of_means = correlation(distance_K, log_K / jnp.maximum(count_K, 1.0), known_K.astype(jnp.float32))
        count = count_K.sum()
        mean_D = jnp.einsum("k,kd->d", known_K.astype(jnp.float32), sum_KD, precision=Precision.HIGHEST) / count
        between = (count_K * jnp.square(mean_KD - mean_D[None]).sum(axis=1)).sum()
        total = jnp.where(known_K, square_K, 0.0).sum() - count * jnp.square(mean_D).sum()
        apart = (known_K.sum() >= 2) & ~(total <= count * jnp.square(ROUNDING * spread))
        return OfTypes(
            distance_P.sum() / count,
            jnp.where(several, of_points, jnp.nan),
            jnp.where(several, of_means, jnp.nan),
            jnp.where(apart, jnp.clip(between / total, 0.0, 1.0), jnp.nan),  # rounding can leave 1 + 1e-7
            jnp.where(weight_P > 0, distance_P, jnp.nan),
        )

    if most == 0:
        return OfTypes(*jnp.full((4, len(keep_RJ)), jnp.nan), jnp.full((len(keep_RJ), points), jnp.nan))
    return jax.lax.map(of_resample, keep_RJ)


def correlation(
    x_P: Float[AnyArray, " P"], y_P: Float[AnyArray, " P"], weight_P: Float[AnyArray, " P"] | None = None
) -> Float[Array, ""]:
    """Pearson's r with weights >= 0 (None: all 1). Shapes: (P,), (P,) -> scalar. Units: none. Range: [-1, 1].

    One of the two constant, or no weight: NaN.
    """
    x_P, y_P = (jnp.asarray(x, jnp.float32) for x in (x_P, y_P))
    weight_P = jnp.ones_like(x_P) if weight_P is None else jnp.asarray(weight_P, jnp.float32)
    weight_P = weight_P / weight_P.sum()
    dx_P, dy_P = (x - (weight_P * x).sum() for x in (x_P, y_P))
    of_x, of_y, both = ((weight_P * a * b).sum() for a, b in ((dx_P, dx_P), (dy_P, dy_P), (dx_P, dy_P)))
    varies = (of_x > 1e-12 * (weight_P * x_P**2).sum()) & (of_y > 1e-12 * (weight_P * y_P**2).sum())
    return jnp.where(varies, jnp.clip(both / jnp.sqrt(of_x * of_y), -1.0, 1.0), jnp.nan)


def mean_by_bin(
    value_P: Float[AnyArray, " P"], bin_P: Int[AnyArray, " P"], bins: int, keep_P: Float[AnyArray, " P"] | None = None
) -> Float[Array, " B"]:
    """The mean of the values of each bin. Shapes: P values, the number of each one's bin -> (bins,). Units: theirs.

    Weights 1 or 0 of the points (None: all). An empty bin, or a value in it that is kept and not finite: NaN.
    Source: ours.
    """
    value_P = jnp.asarray(value_P, jnp.float32)
    weight_P = jnp.ones_like(value_P) if keep_P is None else jnp.asarray(keep_P, jnp.float32)
    member_PB = jax.nn.one_hot(jnp.asarray(bin_P), bins, dtype=jnp.float32)
    read_P, lost_P = (weight_P > 0) & jnp.isfinite(value_P), (weight_P > 0) & ~jnp.isfinite(value_P)
    sums_P3 = jnp.stack([jnp.where(read_P, value_P, 0.0), weight_P, lost_P.astype(jnp.float32)], axis=1)
    sum_B, count_B, lost_B = jnp.einsum("pb,pv->vb", member_PB, sums_P3, precision=Precision.HIGHEST)
    return jnp.where(lost_B > 0, jnp.nan, sum_B / count_B)
