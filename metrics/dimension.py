"""Family dimension: intrinsic dimension from the two nearest neighbors of every point.

Copies count once, except in LLM-Microscope's rule, which is computed from the numbers of copies. All
but that rule are NaN where too few points are distinct. G are groupings of the points, S parts of
them.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import Scalar
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.copies import COPY_ROUNDING
from anisoscope.metrics.leading import remaining, without_longest
from anisoscope.metrics.neighbors import SPARE, Neighbors, nearest_neighbors, neighbors_among
from anisoscope.metrics.public_metric import public_metric
from anisoscope.metrics.quantity import (
    POINT_NULLS,
    SHAPE_OF_LEARNING,
    Family,
    Values,
    count,
    magnitude,
    read_all,
)
from anisoscope.metrics.resampling import Cloud, over_parts

LEAST = 64  # distinct points with a ratio: the error of a dimension is d / sqrt(n), here an eighth


def has_enough_points(neighbors: Neighbors) -> Bool[Array, ""]:
    """Return whether a dimension is reported: LEAST distinct points have a ratio, or half of all.

    32 of 4096, as in a text of one repeated character, gave meaningless dimensions of 13 to 15.
    """
    usable_P = neighbors.usable()
    return usable_P.sum() >= jnp.minimum(LEAST, neighbors.member_P.sum() / 2)


def read_twonn(neighbors: Neighbors) -> Scalar:
    """Read `twonn`: sum(x y) / sum(x^2), x_i = ln mu_(i), y_i = -ln(1 - i/n), mu = r2/r1 of n points.

    The n distinct points are sorted by mu; the smallest int(0.9 n) enter (at least one, at most
    n - 1). 33 for a Gaussian of 50 dimensions, at 4096 points.
    """
    usable_P = neighbors.usable()
    count = usable_P.sum()
    x_P = jnp.sort(jnp.where(usable_P, _log_ratios(neighbors), jnp.inf), stable=False)
    # in integers: float32 would round 0.9 n to either side
    kept = jnp.clip(count * 9 // 10, 1, jnp.maximum(count - 1, 1))
    return _slope_through_origin(x_P, jnp.arange(1, x_P.size + 1) / count, kept, count)


@public_metric()
def twonn(x: ArrayLike) -> Scalar:
    """Intrinsic dimension by TwoNN: a line through the origin fits the smallest 90 % of the ratios.

    Copies of a point count once. Biased low above about 15 dimensions: compare with a Gaussian
    cloud of the same spectrum (`anisoscope.measure` does). A dimension above 0; NaN for fewer
    than 3 distinct points, inf for a lattice. Source: Facco et al. 2017.
    """
    return read_twonn(search_with_gradient(x, 2))


def read_twonn_mle(neighbors: Neighbors) -> Scalar:
    """Read `twonn_mle`, unbiased for Pareto ratios."""
    total, count = _sum_log_ratios(neighbors)
    return jnp.where(count > 2, (count - 1) / total, jnp.nan)


@public_metric()
def twonn_mle(x: ArrayLike) -> Scalar:
    """TwoNN by maximum likelihood, from all ratios: (n - 1) / sum ln(r2/r1).

    A dimension above 0; NaN for fewer than 3 distinct points, inf for a lattice. Source: Facco et
    al. 2017, as in DADApy ("ml").
    """
    return read_twonn_mle(search_with_gradient(x, 2))


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


def read_twonn_microscope(neighbors: Neighbors) -> Microscope:
    """Read `twonn_microscope`, flaw included: the slope of `twonn` over other points.

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


@public_metric()
def twonn_microscope(x: ArrayLike) -> Scalar:
    """TwoNN as the code of The Shape of Learning computes it: the smallest 20 % of the ratios.

    Copies are neighbors like others, which pushes the dimension up. A dimension above 0, too high
    where points have copies; NaN for fewer than 5 ratios. Source: the published code of Razzhigaev
    et al. 2024.
    """
    return read_twonn_microscope(search_with_gradient(x, 2)).dimension


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


def search_with_gradient(x_PD: Array, count: int) -> Neighbors:
    """Find neighbors; indices have no gradient, distances have that of the subtraction."""
    neighbors = jax.lax.stop_gradient(nearest_neighbors(jax.lax.stop_gradient(x_PD), count))
    square_PC = jnp.square(x_PD[:, None] - x_PD[neighbors.index_PC]).sum(axis=-1)
    distinct_PC = square_PC > 0
    recomputed_PC = jnp.where(distinct_PC, jnp.sqrt(jnp.where(distinct_PC, square_PC, 1.0)), 0.0)
    return neighbors._replace(
        distance_PC=neighbors.distance_PC + (recomputed_PC - jax.lax.stop_gradient(recomputed_PC))
    )


NAN_OF_FEW = f"; NaN below {LEAST} distinct points, or half of a cloud of fewer than {2 * LEAST}"
PUBLISHED = "twonn_microscope"  # as its authors compute it, for any number of points

dimension_quantity = functools.partial(magnitude, resampling="sections")


DIMENSION_QUANTITIES = {
    "twonn": dimension_quantity(
        "intrinsic dimension (TwoNN, 90 % fit)",
        "slope through the origin of -ln(1 - i/n) on ln(r2/r1), smallest 90 % of the n distinct "
        f"points{NAN_OF_FEW}",
        "Facco et al. 2017",
        read=read_twonn,
    ),
    "twonn_mle": dimension_quantity(
        "intrinsic dimension (TwoNN, maximum likelihood)",
        f"(n - 1) / sum ln(r2/r1) over the n distinct points{NAN_OF_FEW}",
        "Facco et al. 2017, in DADApy's unbiased form",
        read=read_twonn_mle,
    ),
    "twonn_bayes": dimension_quantity(
        "intrinsic dimension (TwoNN, posterior mean)",
        f"(2 + n) / (5 + sum ln(r2/r1)), prior Gamma(2, 5){NAN_OF_FEW}",
        "Facco et al. 2017, with DADApy's prior",
        read=lambda neighbors: twonn_bayes(neighbors).mean,
    ),
    "twonn_bayes_std": dimension_quantity(
        "intrinsic dimension (TwoNN, posterior deviation)",
        "sqrt(2 + n) / (5 + sum ln(r2/r1)); treats the ratios as independent, which they "
        f"are not{NAN_OF_FEW}",
        "Facco et al. 2017, with DADApy's prior",
        read=lambda neighbors: twonn_bayes(neighbors).std,
    ),
    "twonn_microscope": dimension_quantity(
        "intrinsic dimension (LLM-Microscope's 20 % rule)",
        "slope through the origin of -ln(1 - (u+j)/(n+u)) on ln(r2/r1), smallest 20 %, u dropped "
        "points counted in F",
        SHAPE_OF_LEARNING,
        read=lambda neighbors: read_twonn_microscope(neighbors).dimension,
    ),
}
COUNT_QUANTITIES = {  # of the whole cloud
    "duplicate_points": count(
        "copies of an earlier point",
        "points equal to an earlier one up to rounding (chains of distances below 2e-6 |x|); "
        "left out of every dimension but LLM-Microscope's",
        read=Neighbors.duplicates,
    ),
    "twonn_dropped": count(
        "distinct points without a ratio",
        "distinct points without two finite neighbors; left out of all but LLM-Microscope's",
        read=Neighbors.dropped,
    ),
    "microscope_useless": count(
        "useless points (LLM-Microscope)",
        "r1 < 1e-8 mean|x - E x|, copies being neighbors",
        SHAPE_OF_LEARNING,
        read=lambda neighbors: read_twonn_microscope(neighbors).useless,
    ),
    "microscope_dropped": count(
        "dropped points (LLM-Microscope)",
        "useless points and those with r2/r1 <= 1 + 1e-8; still counted in F",
        SHAPE_OF_LEARNING,
        read=lambda neighbors: read_twonn_microscope(neighbors).dropped,
    ),
}
TWONN_WITHOUT_LONGEST = "twonn_without_longest"


def mask_few_points(values: Values, neighbors: Neighbors) -> Values:
    """Replace values and resamples by NaN where too few points of the whole cloud are distinct."""
    enough = has_enough_points(neighbors)
    return {name: jnp.where(enough, value, jnp.nan) for name, value in values.items()}


def take_whole(searched: Neighbors) -> Neighbors:
    """Take the neighbors in the whole cloud."""
    return jax.tree.map(lambda x_G: x_G[0], searched)


def measure_dimension(cloud: Cloud) -> Values:
    """Measure a cloud, (R,); counts are of the whole cloud."""
    labels, whole = cloud.labels, take_whole(cloud.searched)
    section_P = jnp.asarray(labels.part_SP[1:]).argmax(axis=0) if len(labels.part_SP) > 1 else None
    entries = DIMENSION_QUANTITIES | COUNT_QUANTITIES

    def read(_: Array, neighbors_3: Neighbors) -> Values:
        return jax.vmap(lambda neighbors: read_all(entries, neighbors))(neighbors_3)

    def keep_left(left_P: Array) -> Neighbors:
        """Find neighbors among the points that remain, from those searched among all points."""

        def among(part: tuple[Neighbors, Array | int]) -> Neighbors:
            return neighbors_among(cloud.points_PD, part[0], left_P, part[1])

        if section_P is None:
            return jax.tree.map(lambda x_G: x_G[None], among((whole, 0)))
        return jax.lax.map(among, (cloud.searched, jnp.stack([0 * section_P, section_P])))

    left_2G = jax.lax.map(keep_left, remaining(cloud))
    # all points, then without the longest: sorting is compiled once
    searched_G3 = jax.tree.map(
        lambda x_G, x_2G: jnp.stack([x_G, *x_2G], axis=1), cloud.searched.nearest(2), left_2G
    )
    found = over_parts(read, labels, searched_G3)
    values = {name: value_3[0] for name, value_3 in found.items()}
    counts = {name: values[name][0] for name in COUNT_QUANTITIES}
    enough_2 = jax.vmap(lambda left_G: has_enough_points(take_whole(left_G)))(left_2G)
    without_2 = jnp.where(enough_2[:, None], found["twonn"][1:], jnp.nan)
    masked = mask_few_points(values, whole) | {PUBLISHED: values[PUBLISHED]}
    return masked | {TWONN_WITHOUT_LONGEST: without_2} | counts


DIMENSION = Family(
    "cloud",
    measure_dimension,
    DIMENSION_QUANTITIES
    | COUNT_QUANTITIES
    | {TWONN_WITHOUT_LONGEST: without_longest(DIMENSION_QUANTITIES["twonn"])},
    POINT_NULLS,
    neighbors=SPARE,
)
