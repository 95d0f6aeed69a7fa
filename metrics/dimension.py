"""Intrinsic dimension from the two nearest neighbors of every point.

Copies count once, except in LLM-Microscope's rule, which is computed from the numbers of copies.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import Scalar
from anisoscope.metrics.copies import COPY_ROUNDING
from anisoscope.metrics.neighbors import Neighbors

LEAST = 64  # distinct points with a ratio: the error of a dimension is d / sqrt(n), here an eighth


def has_enough_points(neighbors: Neighbors) -> Bool[Array, ""]:
    """Return whether a dimension is reported: LEAST distinct points have a ratio, or half of all.

    32 of 4096, as in a text of one repeated character, gave meaningless dimensions of 13 to 15.
    """
    usable_P = neighbors.usable()
    return usable_P.sum() >= jnp.minimum(LEAST, neighbors.member_P.sum() / 2)


def twonn(neighbors: Neighbors) -> Scalar:
    """TwoNN dimension by a line through the origin: sum(x y) / sum(x^2).

    x_i = ln mu_(i), y_i = -ln(1 - i/n), mu = r2/r1 of the n distinct points, sorted, of which the
    smallest int(0.9 n) enter (at least one, at most n - 1). Range: > 0; biased low above about
    15 dimensions (33 for a Gaussian of 50, at 4096 points). NaN with fewer than 3 distinct points.
    All
    ratios that enter equal to 1: inf.
    """
    usable_P = neighbors.usable()
    count = usable_P.sum()
    x_P = jnp.sort(jnp.where(usable_P, _log_ratios(neighbors), jnp.inf), stable=False)
    # in integers: float32 would round 0.9 n to either side
    kept = jnp.clip(count * 9 // 10, 1, jnp.maximum(count - 1, 1))
    return _slope_through_origin(x_P, jnp.arange(1, x_P.size + 1) / count, kept, count)


def twonn_mle(neighbors: Neighbors) -> Scalar:
    """TwoNN dimension by maximum likelihood, unbiased for Pareto ratios: (n - 1) / sum_i ln(r2_i/r1_i).

    Range: > 0, with the bias of `twonn`. NaN with fewer than 3 distinct points. All ratios 1: inf.
    """
    total, count = _sum_log_ratios(neighbors)
    return jnp.where(count > 2, (count - 1) / total, jnp.nan)


class Posterior(NamedTuple):
    mean: Scalar
    std: Scalar


def twonn_bayes(neighbors: Neighbors) -> Posterior:
    """Posterior of the TwoNN dimension under a Gamma(2, 5) prior: Gamma(2 + n, 5 + sum ln(r2/r1)).

    Range: > 0 and finite, with the bias of `twonn`; the deviation is too small below about 10
    dimensions, as neighbors share points. NaN with fewer than 3 distinct points.
    """
    total, count = _sum_log_ratios(neighbors)
    mean, std = (2.0 + count) / (5.0 + total), jnp.sqrt(2.0 + count) / (5.0 + total)
    return Posterior(*(jnp.where(count > 2, value, jnp.nan) for value in (mean, std)))


class Microscope(NamedTuple):
    dimension: Scalar
    useless: Int[Array, ""]  # points whose r1 is below 1e-8 of the mean centered norm
    dropped: Int[Array, ""]  # points left out of the fit, but counted in F


def twonn_microscope(neighbors: Neighbors) -> Microscope:
    """LLM-Microscope's dimension, flaw included: the slope of `twonn` over other points.

    Copies are neighbors like others; where two differ by rounding, a ratio is 1/ROUNDING or 1 +
    ROUNDING. u points are useless or have mu <= 1 + 1e-8 and are dropped, yet still counted in F_j
    = (u + j)/(n + u), j = 1..n over the n others, of which the smallest min(n // 5, n - 1) enter:
    copies push the result up, from 7.2 to 15.9 in one case. NaN with fewer than 5 ratios.
    """
    alone_P = neighbors.equals_P == 1
    # with copies included, a point with an equal has r1 = 0, and a point whose nearest has a copy
    # has r2 = r1, up to rounding, which is a ratio too
    copied_P = jnp.where(alone_P[neighbors.index_PC[:, 0]], COPY_ROUNDING, 0.0)
    x_P = jnp.where(
        neighbors.copies_P[neighbors.index_PC[:, 0]] == 1, _log_ratios(neighbors), copied_P
    )
    x_P = jnp.where(alone_P & (neighbors.copies_P > 1), -jnp.log(COPY_ROUNDING), x_P)
    useless_P = ~alone_P | ~(neighbors.r1_P >= 1e-8 * neighbors.mean_norm)
    useless_P, points = useless_P & neighbors.member_P, neighbors.member_P.sum()
    enters_P = neighbors.member_P & ~useless_P & (x_P > 1e-8) & (x_P < jnp.inf)
    count = enters_P.sum()
    dropped = points - count
    x_P = jnp.sort(jnp.where(enters_P, x_P, jnp.inf), stable=False)
    share_P = (dropped + jnp.arange(1, x_P.size + 1)) / points
    dimension = _slope_through_origin(x_P, share_P, jnp.minimum(count // 5, count - 1), count)
    return Microscope(dimension, useless_P.sum(), dropped)


def _slope_through_origin(
    x_P: Float[Array, " P"], share_P: Float[Array, " P"], kept: Array, count: Array
) -> Array:
    """Compute sum(x y) / sum(x^2) over the first `kept`, y = -ln(1 - share).

    NaN where `kept` is 0, or `count` below 3.
    """
    enters_P = jnp.arange(x_P.size) < kept
    x_P = jnp.where(enters_P, x_P, 0.0)
    y_P = -jnp.log1p(-jnp.where(enters_P, share_P, 0.0))
    square = jnp.square(x_P).sum()
    slope = jnp.where(square > 0, (x_P * y_P).sum() / square, jnp.inf)
    return jnp.where((count > 2) & (kept > 0), slope, jnp.nan)


def _log_ratios(neighbors: Neighbors) -> Float[Array, " P"]:
    """Compute ln(r2/r1), by log1p of the difference: a ratio near 1 keeps its digits."""
    r1_P, r2_P = neighbors.r1_P, neighbors.r2_P
    return jnp.log1p((r2_P - r1_P) / r1_P)


def _sum_log_ratios(neighbors: Neighbors) -> tuple[Scalar, Int[Array, ""]]:
    """Add up ln(r2/r1) of the usable points, and count them."""
    usable_P = neighbors.usable()
    return jnp.where(usable_P, _log_ratios(neighbors), 0.0).sum(), usable_P.sum()
