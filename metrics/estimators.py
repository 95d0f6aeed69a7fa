"""Dimensions of a cloud from pair counts, spanning trees and eigenvalues.

Here X are the points of a subcloud, Y sizes of subclouds, E eigenvalues.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import AnyArray, Points, Scalar, centered, product, scale_to_unit
from anisoscope.metrics.copies import ROUNDING, copies
from anisoscope.metrics.eigen import RESOLUTION
from anisoscope.metrics.neighbors import Neighbors, rounding

# neighbors whose median distances are the two radii of the correlation integral
NEAR, FAR = 10, 20
SIZES = (8, 4, 2, 1)  # shares 1/f of the points whose trees are grown
AT_ONCE = 64  # points whose distances to all others exist at once


def correlation_dimension(cloud_PD: Points, neighbors: Neighbors) -> Scalar:
    """Growth of the correlation integral: ln(C(r2)/C(r1)) / ln(r2/r1), C(r) the share of pairs nearer than r.

    r1 and r2 are the medians over distinct points of the distances to the 10th and to the 20th
    neighbor (searched to 20 at least, or ValueError). A pair as far as r, or nearer by less than
    ROUNDING of r, is not nearer. Where the rounding of the Gram matrix could move a pair across a
    radius, the distances of the point are computed by subtraction. Range: >= 0. Fewer than 21
    distinct points, equal radii, no pair nearer than r1, or not finite: NaN.
    """
    neighbors.check_searched(FAR)
    first_P = neighbors.first_P
    distance_P2 = neighbors.distance_PC[:, jnp.array([NEAR - 1, FAR - 1])]
    radius_2 = jnp.nanmedian(jnp.where(first_P[:, None], distance_P2, jnp.nan), axis=0)
    nearer_2 = jnp.square(radius_2 * (1 - ROUNDING))
    cloud_PD, x_PD = jnp.asarray(cloud_PD, jnp.float32), centered(cloud_PD)
    square_P = jnp.square(x_PD).sum(axis=1)
    points, width = x_PD.shape

    def counts(i: Array, square_of_P: Array) -> Float[Array, "2"]:
        other_P = first_P & first_P[i] & (jnp.arange(points) != i)
        near_2P = other_P[None] & (square_of_P[None] < nearer_2[:, None])
        return near_2P.sum(axis=1).astype(jnp.float32)

    def by_products(i: Array) -> tuple[Float[Array, "2"], Bool[Array, ""]]:
        square_of_P = square_P + square_P[i] - 2 * product(x_PD, x_PD[i])
        slack_2 = rounding(jnp.stack([square_P[i]] * 2), 2 * radius_2, width)
        near_2P = jnp.abs(square_of_P[None] - nearer_2[:, None]) <= slack_2[:, None]
        return counts(i, square_of_P), (near_2P & first_P[None]).any() & first_P[i]

    def again(i: Array) -> Float[Array, "2"]:
        def by_subtraction() -> Float[Array, "2"]:
            return counts(i, jnp.square(cloud_PD - cloud_PD[i][None]).sum(axis=1))

        return jax.lax.cond(unsure_P[i], by_subtraction, lambda: rough_P2[i])

    rough_P2, unsure_P = jax.lax.map(
        by_products, jnp.arange(points), batch_size=min(AT_ONCE, points)
    )
    pairs_2 = jax.lax.map(again, jnp.arange(points)).sum(axis=0)
    dimension = jnp.log(pairs_2[1] / pairs_2[0]) / jnp.log(radius_2[1] / radius_2[0])
    radii_differ = (radius_2[0] < radius_2[1]) & (radius_2[1] < jnp.inf)
    known = radii_differ & (pairs_2[0] > 0) & jnp.isfinite(square_P).all()
    return jnp.where(known, dimension, jnp.nan)


def ph_dimension(cloud_PD: Points) -> Scalar:
    """Dimension from the growth of the minimum spanning tree: 1 / (1 - s).

    s is the slope of ln L on ln n, n = P/8 to P distinct points; the length L of the tree grows as
    n^(1 - 1/d). Range: above 0; noisy, and biased low in many dimensions. A slope of 1 or above:
    inf. Fewer than 64 points, or not finite: NaN. Holds the P x P distances.
    """
    if len(cloud_PD) < 8 * SIZES[0]:
        return jnp.full((), jnp.nan)
    original_P = copies(cloud_PD).original_P
    distance_PP = _distances(cloud_PD, original_P)
    size_Y = jnp.stack([_distinct(original_P[::factor]) for factor in SIZES])
    length_Y = jnp.log(
        jnp.stack([_tree_length(distance_PP[::factor, ::factor]) for factor in SIZES])
    )
    log_Y = jnp.log(size_Y) - jnp.log(size_Y).mean()
    slope = (log_Y * length_Y).sum() / jnp.square(log_Y).sum()
    return jnp.where(slope < 1, 1 / (1 - slope), jnp.where(jnp.isnan(slope), jnp.nan, jnp.inf))


def marchenko_pastur_rank(eigenvalues_E: Float[AnyArray, " E"], points: int) -> Scalar:
    """Eigenvalues of the covariance above the edge of noise, s^2 (1 + sqrt(g))^2, g = D/P.

    s^2 is the variance of noise for which the median of the D eigenvalues is that of the
    Marchenko-Pastur law; at least RESOLUTION of the largest. Range: [0, D]. Fewer points than
    dimensions, or all eigenvalues 0: NaN.
    """
    return _count_above(eigenvalues_E, points, lambda ratio: (1 + ratio**0.5) ** 2)


def gavish_donoho_rank(eigenvalues_E: Float[AnyArray, " E"], points: int) -> Scalar:
    """Singular values above Gavish and Donoho's optimal hard threshold, for unknown noise.

    It is t(g) / sqrt(m) times the median singular value, m the median of the Marchenko-Pastur law
    of ratio g = D/P. Range and bad input as for `marchenko_pastur_rank`.
    """
    return _count_above(
        eigenvalues_E,
        points,
        lambda g: 2 * (g + 1) + 8 * g / (g + 1 + (g**2 + 14 * g + 1) ** 0.5),  # t(g)^2
    )


def _count_above(
    eigenvalues_E: Float[AnyArray, " E"], points: int, edge: Callable[[float], float]
) -> Scalar:
    """Count eigenvalues above the edge (a function of D/P) of noise that has the same median."""
    ratio, value_E = eigenvalues_E.shape[-1] / points, jnp.asarray(eigenvalues_E)
    if ratio > 1:
        return jnp.full((), jnp.nan)
    median = jnp.maximum(jnp.median(value_E), RESOLUTION * jnp.max(value_E))
    threshold = median / marchenko_pastur_median(ratio) * edge(ratio)
    return jnp.where(median > 0, (value_E > threshold).sum().astype(jnp.float32), jnp.nan)


def marchenko_pastur_median(ratio: float) -> float:
    """Median eigenvalue of unit noise of many points, to 1e-6; D/P = ratio in (0, 1]."""
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    # x = middle - half cos(angle): a smooth integrand
    angle = (np.arange(200_000) + 0.5) / 200_000 * np.pi
    x = (low + high) / 2 - (high - low) / 2 * np.cos(angle)
    mass = np.cumsum(np.sin(angle) ** 2 / x)
    return float(np.interp(0.5 * mass[-1], mass, x))


def _distinct(original_X: Int[Array, " X"]) -> Scalar:
    """Count the distinct numbers."""
    sorted_X = jnp.sort(original_X, stable=False)
    return 1.0 + (sorted_X[1:] != sorted_X[:-1]).sum()


def _distances(cloud_PD: Points, original_P: Int[Array, " P"]) -> Float[Array, "P P"]:
    """Compute all distances by the Gram matrix; 0 between copies; NaN where not finite."""
    x_PD = scale_to_unit(centered(cloud_PD))
    square_P = jnp.square(x_PD).sum(axis=1)
    square_PP = square_P[:, None] + square_P[None] - 2 * product(x_PD, x_PD.T)
    copies_PP = original_P[:, None] == original_P[None]
    return jnp.sqrt(jnp.where(copies_PP, 0.0, jnp.maximum(square_PP, 0.0))) + 0.0 * square_P.sum()


def _tree_length(distance_XX: Float[Array, "X X"]) -> Scalar:
    """Compute the length of the minimum spanning tree by Prim's algorithm."""

    def join(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        near_X, left_X, last, length = state
        near_X, left_X = jnp.minimum(near_X, distance_XX[last]), left_X.at[last].set(False)
        open_X = jnp.where(left_X, near_X, jnp.inf)
        nearest = open_X.argmin()
        return near_X, left_X, nearest, length + open_X[nearest]

    points = len(distance_XX)
    start = jnp.full(points, jnp.inf), jnp.ones(points, bool), jnp.array(0), jnp.zeros(())
    length = jax.lax.fori_loop(0, points - 1, join, start)[3]
    return length + 0.0 * distance_XX[0, 0]
