"""Family estimators: dimensions from pair counts and spanning trees, and ranks above noise.

Y are shares of the points, S parts of a cloud, G groupings by them, E eigenvalues.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    centered,
    nan_unless,
    only,
    product,
    scale_to_unit,
)
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.copies import COPY_ROUNDING, copies
from anisoscope.metrics.decomposition import spectrum
from anisoscope.metrics.dimension import NAN_OF_FEW, dimension_quantity, mask_few_points, take_whole
from anisoscope.metrics.eigen import RESOLUTION
from anisoscope.metrics.neighbors import Neighbors, nearest_neighbors, rounding
from anisoscope.metrics.public_metric import public_metric
from anisoscope.metrics.quantity import POINT_NULLS, Family, Values, magnitude
from anisoscope.metrics.resampling import Cloud

# neighbors whose median distances are the two radii of the correlation integral
NEARER, FARTHER = 10, 20
TREE_SHARES = (8, 4, 2, 1)  # shares 1/f of the points whose trees are grown
MOST_PAIRED = 40_000  # points whose pairwise distances are held at once
COUNTED_AT_ONCE = 64  # points whose distances to all others exist at once


def part_correlation_dimension(
    cloud_PD: Points, neighbors: Neighbors, part_SP: Bool[AnyArray, "S P"] | None = None
) -> Float[Array, "*S"]:
    """Growth of the correlation integral: ln(C(r2)/C(r1)) / ln(r2/r1), C(r) the share of pairs nearer than r.

    r1 and r2 are the medians over distinct points of the distances to the 10th and to the 20th
    neighbor (searched to 20 at least, or ValueError). A pair as far as r, or nearer by less than
    ROUNDING of r, is not nearer. Where the rounding of the Gram matrix could move a pair across a
    radius, the distances of the point are computed by subtraction. Range: >= 0. NaN with fewer
    than 21 distinct points, equal radii, or no pair nearer than r1, or if not finite. With parts,
    which share no point, a value of each; neighbors are those in the same part.
    """
    neighbors.check_searched(FARTHER)
    if part_SP is None:
        return part_correlation_dimension(cloud_PD, neighbors, neighbors.member_P[None])[0]
    distance_P2 = neighbors.distance_PC[:, jnp.array([NEARER - 1, FARTHER - 1])]
    first_SP = neighbors.first_P[None] & part_SP
    radius_S2 = jax.lax.map(
        lambda first_P: jnp.nanmedian(jnp.where(first_P[:, None], distance_P2, jnp.nan), axis=0),
        first_SP,
    )
    part_P = jnp.where(first_SP.any(axis=0), first_SP.argmax(axis=0), -1)
    valid_P = jnp.asarray(part_SP).any(axis=0)
    cloud_PD = only(jnp.asarray(cloud_PD, jnp.float32), neighbors.member_P)
    x_PD = centered(cloud_PD, neighbors.member_P)
    square_P = jnp.square(x_PD).sum(axis=1)
    points, width = x_PD.shape
    nearer_S2 = jnp.square(radius_S2 * (1 - COPY_ROUNDING))

    def counts(i: Array, square_of_P: Array) -> Float[Array, "2"]:
        other_P = (part_P == part_P[i]) & (part_P[i] >= 0) & (jnp.arange(points) != i)
        near_2P = other_P[None] & (square_of_P[None] < nearer_S2[part_P[i]][:, None])
        return near_2P.sum(axis=1).astype(jnp.float32)

    def by_products(i: Array) -> tuple[Float[Array, "2"], Bool[Array, ""]]:
        square_of_P = square_P + square_P[i] - 2 * product(x_PD, x_PD[i])
        slack_2 = rounding(jnp.stack([square_P[i]] * 2), 2 * radius_S2[part_P[i]], width)
        gap_2P = jnp.abs(square_of_P[None] - nearer_S2[part_P[i]][:, None])
        near_2P = (gap_2P <= slack_2[:, None]) & (part_P == part_P[i])[None]
        return counts(i, square_of_P), near_2P.any() & (part_P[i] >= 0)

    def again(i: Array) -> Float[Array, "2"]:
        def by_subtraction() -> Float[Array, "2"]:
            return counts(i, jnp.square(cloud_PD - cloud_PD[i][None]).sum(axis=1))

        return jax.lax.cond(unsure_P[i], by_subtraction, lambda: rough_P2[i])

    rough_P2, unsure_P = jax.lax.map(
        by_products, jnp.arange(points), batch_size=min(COUNTED_AT_ONCE, points)
    )
    pairs_S2 = product(jnp.float32(first_SP), jax.lax.map(again, jnp.arange(points)))
    dimension_S = jnp.log(pairs_S2[:, 1] / pairs_S2[:, 0]) / jnp.log(
        radius_S2[:, 1] / radius_S2[:, 0]
    )
    differ_S = (radius_S2[:, 0] < radius_S2[:, 1]) & (radius_S2[:, 1] < jnp.inf)
    known_S = differ_S & (pairs_S2[:, 0] > 0) & jnp.isfinite(only(square_P, valid_P)).all()
    return jnp.where(known_S, dimension_S, jnp.nan)


@public_metric()
def correlation_dimension(x: ArrayLike) -> Scalar:
    """Correlation dimension: growth of the share of pairs nearer than r between two radii.

    The radii are the medians of the distances to the 10th and to the 20th neighbor. A dimension, 0
    or above; NaN for fewer than 21 distinct points. Its derivative is 0 or NaN. Source: Grassberger
    and Procaccia 1983, with the radii of scikit-dimension's CorrInt.
    """
    return part_correlation_dimension(x, nearest_neighbors(x, FARTHER))


def part_ph_dimension(
    cloud_PD: Points,
    original_P: Int[AnyArray, " P"] | None = None,
    part_SP: Bool[AnyArray, "S P"] | None = None,
) -> Float[Array, "*S"]:
    """Dimension from the growth of the minimum spanning tree: 1 / (1 - s).

    s is the slope of ln L on ln n, n = P/8 to P distinct points; the length L of the tree grows as
    n^(1 - 1/d). Range: above 0; noisy, and biased low in many dimensions. A slope of 1 or above:
    inf. NaN with fewer than 64 points, or if not finite. Holds the P x P distances. With parts of
    the points and the first copy of each point, a value of each part.
    """
    if part_SP is None:  # its shares are smaller clouds, whose derivatives are known
        original_P, everything_P = copies(cloud_PD).original_P, jnp.ones(len(cloud_PD), bool)
        if len(cloud_PD) < 8 * TREE_SHARES[0]:
            return jnp.full((), jnp.nan)
        distance_PP = _distances(cloud_PD, original_P, everything_P)
        kept = [jnp.arange(len(cloud_PD)) % factor == 0 for factor in TREE_SHARES]
        size_Y = jnp.stack([_distinct(original_P, kept_P) for kept_P in kept])
        shares = [distance_PP[::factor, ::factor] for factor in TREE_SHARES]
        lengths = [_tree_length(x, everything_P[: len(x)], len(x) - 1) for x in shares]
        return _dimension_by_growth(size_Y, jnp.stack(lengths))
    distance_PP = _distances(cloud_PD, original_P, part_SP.any(axis=0))

    def read(part_P: Array) -> Scalar:
        place_P = jnp.cumsum(part_P) - 1

        def read_share(factor: Array) -> tuple[Scalar, Scalar]:
            kept_P = part_P & (place_P % factor == 0)
            length = _tree_length(distance_PP, kept_P, kept_P.sum() - 1)
            return _distinct(original_P, kept_P), length

        found = _dimension_by_growth(*jax.lax.map(read_share, jnp.array(TREE_SHARES)))
        return jnp.where(part_P.sum() >= 8 * TREE_SHARES[0], found, jnp.nan)

    return jax.lax.map(read, jnp.asarray(part_SP))


@public_metric()
def ph_dimension(x: ArrayLike) -> Scalar:
    """Dimension by persistent homology of degree 0: the growth of the minimum spanning tree.

    A dimension above 0, noisy; NaN for fewer than 64 points. Source: Birdal et al. 2021,
    Schweinhart 2020; slope over P/8 to P points, a reconstruction.

    Raises:
        ValueError: x is not a matrix of real numbers with two points or more, or has more than
            40,000 points, whose distances take 20 GB.
    """
    if len(x) > MOST_PAIRED:
        raise ValueError(
            f"x has {len(x):,} points, and the distances of all pairs are held at once; pass at most "
            f"{MOST_PAIRED:,}"
        )
    return part_ph_dimension(x)


def _dimension_by_growth(size_Y: Float[Array, " Y"], length_Y: Float[Array, " Y"]) -> Scalar:
    """Compute 1 / (1 - s), s the slope of the logarithm of lengths on that of sizes."""
    log_Y = jnp.log(size_Y) - jnp.log(size_Y).mean()
    slope = (log_Y * jnp.log(length_Y)).sum() / jnp.square(log_Y).sum()
    return jnp.where(slope < 1, 1 / (1 - slope), jnp.where(jnp.isnan(slope), jnp.nan, jnp.inf))


def marchenko_pastur_rank(
    eigenvalues_E: Float[AnyArray, " E"], points: int, factor: Scalar | None = None
) -> Scalar:
    """Eigenvalues of the covariance above the edge of noise, s^2 (1 + sqrt(g))^2, g = D/P.

    s^2 is the variance of noise for which the median of the D eigenvalues is that of the
    Marchenko-Pastur law; at least RESOLUTION of the largest. Range: [0, D]. NaN with
    fewer points than dimensions, or if all eigenvalues are 0. `factor` is that of `noise_factors`, computed before.
    """
    return _count_above(eigenvalues_E, points, 0, factor)


def gavish_donoho_rank(
    eigenvalues_E: Float[AnyArray, " E"], points: int, factor: Scalar | None = None
) -> Scalar:
    """Singular values above Gavish and Donoho's optimal hard threshold, for unknown noise.

    It is t(g) / sqrt(m) times the median singular value, m the median of the Marchenko-Pastur law
    of ratio g = D/P. Range and bad input as for `marchenko_pastur_rank`.
    """
    return _count_above(eigenvalues_E, points, 1, factor)


def noise_factors(width: int, points: int) -> np.ndarray:
    """Compute how far above their median eigenvalues of noise reach, by either rule; NaN: P < D."""
    g = width / points
    if g > 1:
        return np.full(2, np.nan, np.float32)
    threshold = 2 * (g + 1) + 8 * g / (g + 1 + (g**2 + 14 * g + 1) ** 0.5)  # t(g)^2
    return np.float32([(1 + g**0.5) ** 2, threshold]) / np.float32(marchenko_pastur_median(g))


def _count_above(
    eigenvalues_E: Float[AnyArray, " E"], points: int, rule: int, factor: Scalar | None
) -> Scalar:
    """Count eigenvalues above the edge of noise that has the same median."""
    value_E = jnp.asarray(eigenvalues_E)
    factor = noise_factors(value_E.shape[-1], points)[rule] if factor is None else factor
    median = jnp.maximum(jnp.median(value_E), RESOLUTION * jnp.max(value_E))
    known = (median > 0) & ~jnp.isnan(factor)
    return jnp.where(known, (value_E > median * factor).sum().astype(jnp.float32), jnp.nan)


@functools.cache
def marchenko_pastur_median(ratio: float) -> float:
    """Median eigenvalue of unit noise of many points, to 1e-6; D/P = ratio in (0, 1]."""
    low, high = (1 - ratio**0.5) ** 2, (1 + ratio**0.5) ** 2
    # x = middle - half cos(angle): a smooth integrand
    angle = (np.arange(200_000) + 0.5) / 200_000 * np.pi
    x = (low + high) / 2 - (high - low) / 2 * np.cos(angle)
    mass = np.cumsum(np.sin(angle) ** 2 / x)
    return float(np.interp(0.5 * mass[-1], mass, x))


def _distinct(original_P: Int[Array, " P"], kept_P: Bool[Array, " P"]) -> Scalar:
    """Count the distinct numbers of the points that are kept."""
    kept_P = jnp.zeros(len(original_P), bool).at[original_P].max(kept_P)
    return kept_P.sum().astype(jnp.float32)


def _distances(
    cloud_PD: Points, original_P: Int[Array, " P"], valid_P: Bool[Array, " P"]
) -> Float[Array, "P P"]:
    """Compute all distances by the Gram matrix; 0 between copies; NaN where not finite."""
    x_PD = scale_to_unit(centered(cloud_PD, valid_P))
    square_P = jnp.square(x_PD).sum(axis=1)
    square_PP = square_P[:, None] + square_P[None] - 2 * product(x_PD, x_PD.T)
    copies_PP = original_P[:, None] == original_P[None]
    distance_PP = jnp.sqrt(jnp.where(copies_PP, 0.0, jnp.maximum(square_PP, 0.0)))
    return nan_unless(square_P.sum(), distance_PP)


def _tree_length(
    distance_PP: Float[Array, "P P"], kept_P: Bool[Array, " P"], edges: Int[Array, ""] | int
) -> Scalar:
    """Compute the length of the minimum spanning tree of these points by Prim's algorithm."""

    def join(_: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        near_P, left_P, last, length = state
        near_P, left_P = jnp.minimum(near_P, distance_PP[last]), left_P.at[last].set(False)
        open_P = jnp.where(left_P, near_P, jnp.inf)
        nearest = open_P.argmin()
        return near_P, left_P, nearest, length + open_P[nearest]

    start = jnp.full(len(kept_P), jnp.inf), kept_P, kept_P.argmax(), jnp.zeros(())
    length = jax.lax.fori_loop(0, edges, join, start)[3]
    return nan_unless(distance_PP[0, 0], length)


NOISE_VARIANCE = (
    "s^2 the variance of noise whose Marchenko-Pastur median is the median eigenvalue; NaN for "
    "fewer points than dimensions"
)
ESTIMATOR_QUANTITIES = {
    "correlation_dimension": dimension_quantity(
        "correlation dimension",
        "ln(C(r2)/C(r1)) / ln(r2/r1), C(r) the share of pairs nearer than r, r1 and r2 the medians "
        f"of the distances to the {NEARER}th and {FARTHER}th neighbor{NAN_OF_FEW}",
        "Grassberger and Procaccia 1983, radii as scikit-dimension's CorrInt",
    ),
    "ph_dimension": dimension_quantity(
        "dimension of the minimum spanning tree",
        "1/(1 - s), s the slope of ln of the tree's length on ln n, n = P/8, P/4, P/2, P distinct "
        f"points{NAN_OF_FEW}",
        "Steele 1988; Schweinhart 2020; sizes and fit: this project",
    ),
    "marchenko_pastur_rank": magnitude(
        "principal directions above the Marchenko-Pastur edge",
        f"number of eigenvalues above s^2 (1 + sqrt(D/P))^2, {NOISE_VARIANCE}",
        "Marchenko and Pastur 1967",
        read=marchenko_pastur_rank,
    ),
    "gavish_donoho_rank": magnitude(
        "principal directions above Gavish and Donoho's threshold",
        f"number of singular values above the optimal hard threshold of unknown noise, {NOISE_VARIANCE}",
        "Gavish and Donoho 2014",
        read=gavish_donoho_rank,
    ),
}


def measure_estimators(cloud: Cloud) -> Values:
    """Measure a cloud, (R,).

    Ranks without a fold are those of the eigenvalues without it, to first order.
    """
    labels, whole = cloud.labels, take_whole(cloud.searched)
    part_SP = jnp.asarray(labels.part_SP)
    sections = max(len(part_SP) - 1, 1)
    # parts of both groupings, as many of each: the whole, and the sections
    part_GSP = jnp.zeros((1, sections, part_SP.shape[1]), bool).at[0, 0].set(part_SP[0])
    if len(part_SP) > 1:
        part_GSP = jnp.concatenate([part_GSP, part_SP[None, 1:]])
    pairs_GS = jax.lax.map(
        lambda both: part_correlation_dimension(cloud.points_PD, *both),
        (cloud.searched, part_GSP),
    )
    values = {
        "correlation_dimension": jnp.concatenate([pairs_GS[0, :1], pairs_GS[1:].ravel()]),
        "ph_dimension": part_ph_dimension(cloud.points_PD, whole.original_P, part_SP),
    }
    values = mask_few_points(values, whole)
    ranks = {name: entry.read for name, entry in ESTIMATOR_QUANTITIES.items() if entry.read}
    if len(part_SP[0]) < cloud.points_PD.shape[1]:
        return values | dict.fromkeys(ranks, jnp.full(len(labels.keep_RP), jnp.nan))
    eigenvalues_RE = spectrum(cloud.points_PD, labels.keep_RP).eigenvalues_E
    return values | {
        name: jax.vmap(
            lambda value_E, n=n, rank=rank: rank(value_E, 0, jnp.asarray(cloud.constants)[n])
        )(eigenvalues_RE)
        for n, (name, rank) in enumerate(ranks.items())
    }


ESTIMATORS = Family(
    "cloud",
    measure_estimators,
    ESTIMATOR_QUANTITIES,
    POINT_NULLS,
    neighbors=FARTHER,
    constants=lambda points, width, *_: noise_factors(width, points),
)
