"""Family scale: intrinsic dimension as a function of scale, generalized ratios, decimation, local dimensions.

Ties have the ratio 1, whose logarithm 0 enters the sums like any other: they push dimensions up, to
inf where all are ties. Y are scales: ranks of neighbors, or factors of decimation.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from anisoscope.metrics.cloud import Points, Scalar
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.dimension import (
    NAN_OF_FEW,
    dimension_quantity,
    mask_few_points,
    read_twonn,
    search_with_gradient,
    take_whole,
)
from anisoscope.metrics.neighbors import Neighbors, nearest_neighbors
from anisoscope.metrics.public_metric import public_metric
from anisoscope.metrics.quantity import POINT_NULLS, Family, Values, magnitude, read_all
from anisoscope.metrics.resampling import Cloud, over_sections

SCALES = (1, 2, 4, 8, 16, 32, 64)  # ranks n1 of `gride_curve`, each compared with 2 n1
FACTORS = (1, 4, 16)  # shares 1/f of the points in `decimation`
QUANTILES = (0.05, 0.25, 0.5, 0.75, 0.95)
# three reach 1e-13 on the most uneven ratios tried: the start is within a third of the root
NEWTON_ROUNDS = 4


def read_gride(neighbors: Neighbors, first: int) -> Scalar:
    """Read `gride` at ranks n1 = first and n2 = 2 first.

    It is the most likely d given mu_i = r_i,n2 / r_i,n1, where

        f(mu | d) = d (mu^d - 1)^(n2 - n1 - 1) / (mu^((n2 - 1) d + 1) B(n2 - n1, n1))   over n distinct points.

    With u_i = d ln mu_i the score vanishes where sum_i 1 + (n1 - 1) u_i/(exp(u_i) - 1) - n1 u_i =
    0. The left side falls and is convex in d, so that Newton from d = 0 climbs to the one root. Its
    first step is 2 n1 / ((3 n1 - 1) m), m = mean ln mu. At n1 = 1 the root is 1/m.

    Neighbors searched to 2 first at least, or ValueError. Fewer than 2 first + 1 distinct points:
    NaN; all ties: inf. Biased low in many dimensions, the more the larger the ranks.
    """
    neighbors.check_searched(2 * first)
    return _gride(neighbors, jnp.array(first))


@public_metric()
def gride(x: ArrayLike, k: int = 2) -> Scalar:
    """Intrinsic dimension at a scale: most likely for ratios of the 2k-th to the k-th distance.

    A larger k is a larger scale, with less noise and more curvature. A dimension above 0; NaN for
    fewer than 2k + 1 distinct points, inf for a lattice. Source: Denti et al. 2022.
    """
    return read_gride(search_with_gradient(x, 2 * k), k)


def gride_curve(neighbors: Neighbors) -> Float[Array, " Y"]:
    """`gride` at the ranks of SCALES; NaN where the cloud, or the neighbor search, is too small."""
    return jax.vmap(_gride, in_axes=(None, 0))(neighbors, jnp.array(SCALES))


def _gride(neighbors: Neighbors, first: Int[Array, ""]) -> Scalar:
    near_P, far_P = (
        jnp.take(neighbors.distance_PC, rank - 1, axis=1, mode="fill", fill_value=jnp.inf)
        for rank in (first, 2 * first)
    )
    enters_P = neighbors.usable() & (far_P < jnp.inf)
    count = enters_P.sum()
    # 1 elsewhere: a ratio of 0 or inf would make a derivative of NaN
    near_P, far_P = (jnp.where(enters_P, r_P, 1.0) for r_P in (near_P, far_P))
    x_P = jnp.log1p((far_P - near_P) / near_P)  # keeps the digits of a ratio near 1
    mean = x_P.sum() / count

    def newton(_, d):
        u_P = d * x_P
        share_P = jnp.where(u_P > 0, u_P / jnp.expm1(jnp.where(u_P > 0, u_P, 1.0)), 1.0)
        score_P = 1 + (first - 1) * share_P - first * u_P
        # d times the derivative of the score
        slope_P = (first - 1) * share_P * (1 - u_P - share_P) - first * u_P
        return d * (1 - (score_P * enters_P).sum() / (slope_P * enters_P).sum())

    start = 2 * first / ((3 * first - 1) * jnp.where(mean > 0, mean, 1.0))
    d = jax.lax.fori_loop(0, NEWTON_ROUNDS, newton, start)
    return jnp.where(count > 0, jnp.where(mean > 0, d, jnp.inf), jnp.nan)


def read_levina_bickel(neighbors: Neighbors, count: int = 20) -> Scalar:
    """Read `levina_bickel` of k = count neighbors, or as many as there are: n / sum_i 1/d_i.

    1/d_i = sum_{j<k} ln(T_ik / T_ij) / (k - 1), T_ij the distance from point i to its j-th
    neighbor, n distinct points. Inverses are averaged: they are free of bias. Neighbors searched to
    `count` at least, or ValueError.
    """
    sum_P, terms_P = _log_ratio_sums(neighbors, count)
    usable_P = neighbors.usable()
    inverse_P = jnp.where(usable_P, sum_P / jnp.where(usable_P, terms_P, 1.0), 0.0)
    return usable_P.sum() / inverse_P.sum()


@public_metric(least_k=3)
def levina_bickel(x: ArrayLike, k: int = 20) -> Scalar:
    """Intrinsic dimension from k neighbors: n / sum 1/d_i, d_i the most likely one at point i.

    A dimension above 0; NaN for fewer than 3 distinct points, inf for a lattice. Source: Levina and
    Bickel 2004; inverses are averaged, after MacKay and Ghahramani 2005.
    """
    return read_levina_bickel(search_with_gradient(x, k), k)


def local_dimensions(neighbors: Neighbors, count: int = 20) -> Float[Array, " P"]:
    """Dimension around each point: (k - 2) / sum_{j<k} ln(T_ik / T_ij), as in `levina_bickel`.

    Free of bias where the density is even, with a deviation of d / sqrt(k - 3). Copies have the
    same one. NaN with fewer than 4 distinct points. All ties: inf.
    """
    sum_P, terms_P = _log_ratio_sums(neighbors, count)
    return jnp.where(terms_P > 1, (terms_P - 1) / sum_P, jnp.nan)


def local_quantiles(neighbors: Neighbors, count: int = 20) -> Float[Array, " 5"]:
    """Quantiles (QUANTILES) of `local_dimensions` over distinct points; NaN where one is NaN.

    Between two points the inverse 1/d is interpolated, which is finite where d is not: a share of
    points with ties makes the upper quantiles inf, not NaN.
    """
    local_P = local_dimensions(neighbors, count)
    inverse_P = jnp.where(neighbors.usable(), 1 / local_P, jnp.nan)
    return 1 / jnp.nanquantile(inverse_P, 1 - jnp.array(QUANTILES))


def decimation(cloud_PD: Points, neighbors: Neighbors) -> Float[Array, " Y"]:
    """`twonn` of every f-th point, for f of FACTORS: the mean over the disjoint subsets cloud[i::f].

    `neighbors` are those of the cloud, f = 1. A dimension of the cloud, not of its noise,
    does not change with f. The P mod f last points are left out. NaN at an f of
    which a subset has fewer than 3 distinct points.
    """
    points, width = cloud_PD.shape
    count = neighbors.member_P.sum()  # these points come first

    def read(factor: int) -> Array:
        kept = points // factor
        if factor == 1 or kept < 3:
            return read_twonn(neighbors) if factor == 1 else jnp.array(jnp.nan)
        subsets_YPD = jnp.asarray(cloud_PD)[: kept * factor].reshape(kept, factor, width)
        valid_P = jnp.arange(kept) < count // factor
        dimension_Y = jax.lax.map(
            lambda subset_PD: read_twonn(nearest_neighbors(subset_PD, valid_P=valid_P)),
            subsets_YPD.swapaxes(0, 1),
        )
        return dimension_Y.mean()

    return jnp.stack([read(factor) for factor in FACTORS])


def _log_ratio_sums(
    neighbors: Neighbors, count: int
) -> tuple[Float[Array, " P"], Float[Array, " P"]]:
    """Compute sum_{j<k} ln(T_k / T_j) of every point and its k - 1 terms, k neighbors at most."""
    neighbors.check_searched(count)
    distance_PC = neighbors.distance_PC[:, :count]
    finite_PC = distance_PC < jnp.inf
    farthest_P1 = jnp.where(finite_PC, distance_PC, 0.0).max(axis=1, keepdims=True)
    distance_PC = jnp.where(finite_PC, distance_PC, 1.0)  # inf would make a derivative of NaN
    log_PC = jnp.log1p((farthest_P1 - distance_PC) / distance_PC)
    return jnp.where(finite_PC, log_PC, 0.0).sum(axis=1), finite_PC.sum(axis=1) - 1.0


SCALE_QUANTITIES = {
    "gride": dimension_quantity(
        "intrinsic dimension (GRIDE)",
        f"maximum likelihood from r_2k/r_k, k = `neighbors`{NAN_OF_FEW}",
        "Denti et al. 2022, The generalized ratios intrinsic dimension estimator",
        dims=("layer", "neighbors"),
        read=gride_curve,
    ),
    "decimation": magnitude(
        "intrinsic dimension of a thinned cloud",
        f"twonn of every f-th point, mean over the f disjoint subsets, f = `factor`{NAN_OF_FEW}",
        "Facco et al. 2017, where subsets are drawn at random; by order neighbors of one cluster "
        "are thinned evenly",
        dims=("layer", "factor"),
        resampling="",
    ),
    "levina_bickel": dimension_quantity(
        "intrinsic dimension (Levina-Bickel, 20 neighbors)",
        f"inverse of the mean over points of the mean over j < 20 of ln(r_20/r_j){NAN_OF_FEW}",
        "Levina and Bickel 2004, averaged as MacKay and Ghahramani 2005",
        read=read_levina_bickel,
    ),
    "local_dimension": dimension_quantity(
        "local dimension (20 neighbors), quantile over points",
        "quantile over distinct points of (20 - 2) / sum_{j < 20} ln(r_20/r_j), interpolated in "
        f"1/d{NAN_OF_FEW}",
        "Levina and Bickel 2004",
        dims=("layer", "quantile"),
        read=local_quantiles,
    ),
}


def measure_scale(cloud: Cloud) -> Values:
    """Measure a cloud, (R,), with its scales before the replicates."""
    whole = take_whole(cloud.searched)
    values = over_sections(
        lambda neighbors: read_all(SCALE_QUANTITIES, neighbors),
        cloud.labels,
        cloud.searched,
    )
    values["decimation"] = decimation(cloud.points_PD, whole)
    return mask_few_points(values, whole)


SCALE = Family(
    "cloud",
    measure_scale,
    SCALE_QUANTITIES,
    POINT_NULLS,
    neighbors=2 * SCALES[-1],
    coordinates={"neighbors": SCALES, "factor": FACTORS, "quantile": QUANTILES},
)
