"""Intrinsic dimension from the two nearest neighbours of every point.

The duplicates rule. Copies of a point say nothing about the dimension, but r1 = 0 breaks every formula. Leaving out
the points with r1 = 0 would keep only what occurs once: of a character model's embeddings, the rarest characters.
So neighbours are sought among the *distinct* points, each counted once; copies are counted and reported.
LLM-Microscope's rule keeps copies, and is computed from the same neighbours and the numbers of copies.
"""

from fractions import Fraction
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int

from metrics.cloud import centred

BLOCK = 512  # rows of the distance matrix that exist at once
CANDIDATES = 8  # nearest by the Gram matrix, whose distances are then computed again by subtraction


class Neighbours(NamedTuple):
    """The neighbours of every point among the distinct points of its cloud; copies of a point have the same ones."""

    r1_P: Float[Array, " P"]  # distance to the nearest; inf where there is none
    r2_P: Float[Array, " P"]  # distance to the second nearest; inf where there is none
    first_P: Bool[Array, " P"]  # the first of its copies: stands for them all
    copies_P: Int[Array, " P"]  # how many points of the cloud are equal to this one, itself included
    nearest_copies_P: Int[Array, " P"]  # the same for its nearest
    mean_norm: Float[Array, ""]  # mean |x_i - mean(x)|, the unit of LLM-Microscope's threshold

    def usable(self) -> Bool[Array, " P"]:
        """Distinct points with two neighbours at positive, finite distances: those with a ratio r2/r1."""
        return self.first_P & (self.r1_P > 0) & (self.r2_P < jnp.inf)

    def duplicates(self) -> Int[Array, ""]:
        """How many points are copies of an earlier one."""
        return (~self.first_P).sum()

    def dropped(self) -> Int[Array, ""]:
        """How many distinct points have no ratio: all of one or two, or of a cloud that is not finite; else none."""
        return (self.first_P & ~self.usable()).sum()


def nearest_neighbours(cloud_PD: Float[Array, "P D"]) -> Neighbours:
    """Distances r1 <= r2 of every point to its two nearest among the distinct points, Euclidean.

    Shapes: P points of width D -> six arrays; BLOCK rows of the P x P distances exist at a time. Units: those of x.
    The Gram matrix of the centred cloud ranks the points, but its float32 differences are too rough to use as
    distances: those of the best candidates are computed again by subtraction, on the points as given. Points are
    equal when all their float32 coordinates are. Fewer than 3 distinct points: inf. A non-finite coordinate: inf.
    """
    points = cloud_PD.shape[0]
    cloud_PD = cloud_PD.astype(jnp.float32)
    centred_PD = centred(cloud_PD)
    square_P = jnp.square(centred_PD).sum(axis=1)
    original_P, copies_P = _originals(cloud_PD)
    first_P = original_P == jnp.arange(points)
    rank_P = jnp.where(first_P, square_P, jnp.inf)
    candidates = min(CANDIDATES, points)

    def of_point(i):
        gram_P = jnp.matmul(centred_PD[i], centred_PD.T, precision=Precision.HIGHEST)
        near_P = (rank_P - 2.0 * gram_P).at[original_P[i]].set(jnp.inf)
        negative_C, index_C = jax.lax.top_k(-near_P, candidates)
        direct_C = jnp.sqrt(jnp.square(cloud_PD[index_C] - cloud_PD[i][None]).sum(axis=1))
        # NaN fails the comparison, so that what is not finite finds no neighbour
        distance_C = jnp.where(negative_C > -jnp.inf, direct_C, jnp.inf)
        nearest = jnp.argmin(distance_C)
        return distance_C[nearest], distance_C.at[nearest].set(jnp.inf).min(), copies_P[index_C[nearest]]

    r1_P, r2_P, nearest_copies_P = jax.lax.map(of_point, jnp.arange(points), batch_size=min(BLOCK, points))
    mean_norm = jnp.sqrt(square_P).mean()
    return Neighbours(r1_P, r2_P, first_P, copies_P, nearest_copies_P, mean_norm)


def twonn(neighbours: Neighbours, fraction: float = 0.9) -> Float[Array, ""]:
    """TwoNN dimension by a line through the origin: sum(x y) / sum(x^2), x_i = ln mu_(i), y_i = -ln(1 - i/n).

    mu = r2/r1 of the n distinct points, sorted; only the smallest int(fraction n) enter (at least one, at most n - 1).
    Shapes: neighbours of a cloud -> scalar. Units: none. Range: > 0; biased low above about 15 dimensions (17.4 for a
    Gaussian of 20, 33 for one of 50, at 4096 points). Fewer than 3 distinct points: NaN. All ratios that enter equal
    to 1, as on a lattice: inf, the limit. Source: Facco et al. 2017; as DADApy's "base" form. scikit-dimension numbers
    the ratios from 0, F = (i - 1)/n, which lowers the result for few points (4.05 for 4.52 at 30 points).
    """
    x_P, count = _sorted_log_ratios(neighbours)
    share = Fraction(fraction).limit_denominator(1000)  # in integers: float32 would round 0.9 n to either side
    kept = jnp.clip(count * share.numerator // share.denominator, 1, jnp.maximum(count - 1, 1))
    return _slope_through_origin(x_P, jnp.arange(1, x_P.size + 1) / count, kept, count)


def twonn_mle(neighbours: Neighbours) -> Float[Array, ""]:
    """TwoNN dimension by maximum likelihood, unbiased for Pareto ratios: (n - 1) / sum_i ln(r2_i/r1_i).

    Over all n distinct points. Shapes: neighbours of a cloud -> scalar. Units: none. Range: > 0, with the bias of
    `twonn`. Fewer than 3 distinct points: NaN. All ratios 1: inf. Source: DADApy's "ml" form of Facco et al. 2017.
    """
    x_P, count = _sorted_log_ratios(neighbours)
    total = jnp.where(jnp.arange(x_P.size) < count, x_P, 0.0).sum()
    return jnp.where(count > 2, (count - 1) / total, jnp.nan)


class Microscope(NamedTuple):
    dimension: Float[Array, ""]
    useless: Int[Array, ""]  # points whose nearest neighbour is a copy: r1 < 1e-8 of the mean centred norm
    dropped: Int[Array, ""]  # points left out of the fit, though not of F: mu <= 1 + 1e-8, or useless


def twonn_microscope(neighbours: Neighbours) -> Microscope:
    """The dimension as LLM-Microscope computes it, flaw included: the slope of `twonn` over other points.

    Copies are neighbours like others. u points are useless or have mu <= 1 + 1e-8 and are dropped, yet still counted
    in F_j = (u + j)/(n + u), j = 1..n over the n others, sorted; the smallest min(n // 5, n - 1) of these enter.
    So copies push the result up: 1000 Gaussian points in 8 dimensions give 7.2, with 50 copied rows 15.9, with 200,
    48.5. Shapes: neighbours of a cloud -> a dimension and two counts. Fewer than 5 ratios: NaN, as in the original.
    Source: the published code of Razzhigaev et al. 2024, which works in float64; here float32, where mu <= 1 + 1e-8
    means mu = 1.
    """
    alone_P = neighbours.copies_P == 1
    # with copies back in, a point with a copy has r1 = 0, and one whose nearest has a copy has r2 = r1
    x_P = jnp.where(neighbours.nearest_copies_P == 1, _log_ratios(neighbours), 0.0)
    useless_P = ~alone_P | (neighbours.r1_P < 1e-8 * neighbours.mean_norm)
    enters_P = ~useless_P & (x_P > 1e-8) & (x_P < jnp.inf)
    count = enters_P.sum()
    dropped = enters_P.size - count
    x_P = jnp.sort(jnp.where(enters_P, x_P, jnp.inf))
    share_P = (dropped + jnp.arange(1, x_P.size + 1)) / x_P.size
    dimension = _slope_through_origin(x_P, share_P, jnp.minimum(count // 5, count - 1), count)
    return Microscope(dimension, useless_P.sum(), dropped)


def _slope_through_origin(x_P: Float[Array, " P"], share_P: Float[Array, " P"], kept: Array, count: Array) -> Array:
    """sum(x y) / sum(x^2) over the first `kept`, y = -ln(1 - share); NaN below 3 points or with none kept."""
    enters_P = jnp.arange(x_P.size) < kept
    x_P = jnp.where(enters_P, x_P, 0.0)
    y_P = -jnp.log1p(-jnp.where(enters_P, share_P, 0.0))
    square = jnp.square(x_P).sum()
    slope = jnp.where(square > 0, (x_P * y_P).sum() / square, jnp.inf)
    return jnp.where((count > 2) & (kept > 0), slope, jnp.nan)


def _log_ratios(neighbours: Neighbours) -> Float[Array, " P"]:
    """ln(r2/r1), by log1p of the difference: a ratio near 1 keeps its digits."""
    r1_P, r2_P = neighbours.r1_P, neighbours.r2_P
    return jnp.log1p((r2_P - r1_P) / r1_P)


def _sorted_log_ratios(neighbours: Neighbours) -> tuple[Float[Array, " P"], Int[Array, ""]]:
    """ln(r2/r1) of the usable points in ascending order, inf behind them; and how many they are."""
    usable_P = neighbours.usable()
    return jnp.sort(jnp.where(usable_P, _log_ratios(neighbours), jnp.inf)), usable_P.sum()


def _originals(cloud_PD: Float[Array, "P D"]) -> tuple[Int[Array, " P"], Int[Array, " P"]]:
    """For each point the index of the first point equal to it, and how many are equal to it.

    Equal rows are brought together by sorting 64-bit hashes of their bits: exact where distances are rounded, and
    without a sort over D columns. Two different rows of a million share a hash with a chance below 1e-7.
    """
    points, width = cloud_PD.shape
    unsigned_PD = jnp.where(cloud_PD == 0, 0.0, cloud_PD)  # -0.0 and 0.0 are equal and differ in a bit
    bits_PD = jax.lax.bitcast_convert_type(unsigned_PD, jnp.uint32)
    bits_PD = (bits_PD ^ (bits_PD >> 16)) * jnp.uint32(0x7FEB352D)  # carries high bits down: bfloat16 has only those
    bits_PD = bits_PD ^ (bits_PD >> 15)
    factor_2D = jax.random.bits(jax.random.key(0), (2, width), jnp.uint32)
    hash_2P = (bits_PD[None] * factor_2D[:, None]).sum(axis=2, dtype=jnp.uint32)

    order_P = jnp.lexsort(hash_2P)  # stable, so the first of equals has the smallest index
    sorted_2P = hash_2P[:, order_P]
    starts_P = jnp.concatenate([jnp.ones(1, bool), (sorted_2P[:, 1:] != sorted_2P[:, :-1]).any(axis=0)])
    start_P = jax.lax.cummax(jnp.where(starts_P, jnp.arange(points), 0))
    original_P = jnp.zeros(points, jnp.int32).at[order_P].set(order_P[start_P].astype(jnp.int32))
    copies_P = jnp.zeros(points, jnp.int32).at[original_P].add(1)
    return original_P, copies_P[original_P]
