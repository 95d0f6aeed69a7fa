"""Family similarity: cosines, norms and the partition function of vectors that are not centered.

`keep_P` weights the points, 1 or 0; None keeps them all. It enters by products alone, so that
`jax.vmap` over many choices is one matrix product. Q are points of a second cloud, X runs of
points.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Bool, Float, Int

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    Weights,
    centered,
    fold_members,
    fold_weights,
    largest,
    norms,
    only,
    product,
    root,
    scale_to_unit,
)
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.eigen import eigh
from anisoscope.metrics.leading import remaining, without_longest
from anisoscope.metrics.public_metric import public_metric
from anisoscope.metrics.quantity import (
    FLIPPED,
    INHERENT,
    MEASURED,
    Family,
    Quantity,
    Values,
    correlation,
    magnitude,
    norm,
    share,
)
from anisoscope.metrics.resampling import Cloud

# points that are added up in one float32 run: in longer runs rounding errors would accumulate
NORMS_AT_ONCE = 4096


def weighted_mean_cosine(cloud_PD: Points, keep_P: Weights = None) -> Scalar:
    """Compute `mean_cosine` of the kept points, exactly.

    It is (|sum_i u_i|^2 - sum_i |u_i|^2) / (P (P - 1)), u_i = x_i/|x_i|. Range: [-1/(P - 1), 1].
    Zero vectors are left out (P counts the others). NaN with fewer than two others.
    """
    unit_PD, counted_P = _directions(cloud_PD)
    weight_P = _weights(cloud_PD, keep_P) * counted_P
    own = _sum(weight_P, jnp.square(unit_PD).sum(axis=1))
    return _over_pairs(jnp.square(_sum(weight_P, unit_PD)).sum() - own, weight_P.sum())


@public_metric(about_mean=False)
def mean_cosine(x: ArrayLike) -> Scalar:
    """Mean cosine over all pairs of different points, not centered.

    A cosine in [-1/(points - 1), 1]; zero vectors are left out; NaN for fewer than two others.
    Source: the anisotropy of Ethayarajh 2019 and Godey et al. 2024, who sample pairs; exact here.
    """
    return weighted_mean_cosine(x)


class MeanCosine(NamedTuple):
    drift: Scalar
    residual: Scalar


def mean_cosine_parts(cloud_PD: Points, keep_P: Weights = None) -> MeanCosine:
    """Mean cosine as the sum of a part of the common mean vector and a residual.

    With m = E x, d_i = x_i - m and a_i = 1/|x_i|, the cosine of a pair is a_i a_j <m + d_i, m + d_j>.
    Of its average over all pairs of different points
        drift    = |m|^2 (A^2 - A2) / (P (P - 1)),                         A = sum a_i, A2 = sum a_i^2
        residual = (2 A <m, S1> - 2 <m, S2> + |S1|^2 - sum a_i^2 |d_i|^2) / (P (P - 1)),
    S1 = sum a_i d_i, S2 = sum a_i^2 d_i. They add up to `mean_cosine`. Range: drift >= 0; residual
    either sign, good to 1e-5 of itself also at |m| = 1000 spreads. Zero vectors are left out, also
    of m. NaN with fewer than two others.
    """
    weight_P, cloud_PD = _weights(cloud_PD, keep_P), scale_to_unit(cloud_PD)
    norm_P = norms(cloud_PD)
    counted_P = norm_P != 0
    weight_P = weight_P * counted_P
    count = weight_P.sum()
    # the origin is near the mean, and the same for every choice of points: only the small shift
    # depends on the choice
    origin_D = cloud_PD.sum(axis=0) / counted_P.sum()
    c_PD = jnp.where(counted_P[:, None], cloud_PD - origin_D[None], 0.0)
    inverse_P = jnp.where(counted_P, 1.0 / jnp.where(counted_P, norm_P, 1.0), 0.0)
    beyond_P = jnp.where(counted_P, inverse_P - counted_P.sum() / norm_P.sum(), 0.0)

    shift_D = _sum(weight_P, c_PD) / count
    mean_D = origin_D + shift_D
    a, a2 = _sum(weight_P, inverse_P), _sum(weight_P, jnp.square(inverse_P))
    # since sum d_i = 0, S1 stays the same when a constant is subtracted from all a_i, and far from
    # the origin it then keeps its digits
    s1_D = _sum(weight_P * beyond_P, c_PD) - _sum(weight_P, beyond_P) * shift_D
    t2_D = _sum(weight_P * jnp.square(inverse_P), c_PD)
    s2_D = t2_D - a2 * shift_D
    self_pairs = _sum(weight_P, jnp.square(inverse_P) * jnp.square(c_PD).sum(axis=1))
    self_pairs = self_pairs - 2.0 * (shift_D * t2_D).sum() + a2 * jnp.square(shift_D).sum()

    drift_pairs = jnp.square(mean_D).sum() * (jnp.square(a) - a2)
    residual_pairs = (
        2.0 * (a * (mean_D * s1_D).sum() - (mean_D * s2_D).sum())
        + jnp.square(s1_D).sum()
        - self_pairs
    )
    return MeanCosine(_over_pairs(drift_pairs, count), _over_pairs(residual_pairs, count))


def along_cluster(cloud_PD: Points, cluster_P: Int[AnyArray, " P"] | None) -> Float[Array, " P"]:
    """<x_i, S_i>, S_i the sum of the points of the cluster of i, itself included.

    Over whole clusters it sums to E |sum_i s_i x_i|^2 for random signs s of clusters. `cluster_P`
    are numbers below P; None, or all below 0: each point is a cluster. Points below 0 beside others
    must be 0.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    if cluster_P is None:
        return jnp.square(cloud_PD).sum(axis=1)

    def add_up(cloud_PD: Array) -> Array:
        number_P = jnp.maximum(cluster_P, 0)
        sum_PD = jax.ops.segment_sum(cloud_PD, number_P, num_segments=len(cloud_PD))
        return (cloud_PD * sum_PD[number_P]).sum(axis=1)

    cluster_P = jnp.asarray(cluster_P)
    return jax.lax.cond(
        (cluster_P >= 0).any(), add_up, lambda x_PD: jnp.square(x_PD).sum(axis=1), cloud_PD
    )


def mean_cosine_flipped(
    cloud_PD: Points, cluster_P: Int[AnyArray, " P"] | None, keep_P: Weights = None
) -> Scalar:
    """Mean cosine expected where each cluster's vectors are multiplied by one random sign.

    Cosines within a cluster stay: (sum over pairs of one cluster of their cosine) / (P (P - 1)).
    `keep_P` keeps whole clusters. Zero vectors are left out. NaN with fewer than two others.
    """
    unit_PD, counted_P = _directions(cloud_PD)
    weight_P = _weights(cloud_PD, keep_P) * counted_P
    cluster_pairs_P = along_cluster(unit_PD, cluster_P) - jnp.square(unit_PD).sum(axis=1)
    return _over_pairs(_sum(weight_P, cluster_pairs_P), weight_P.sum())


def drift_flipped(
    cloud_PD: Points, cluster_P: Int[AnyArray, " P"] | None, keep_P: Weights = None
) -> Scalar:
    """Root mean square `drift` where each cluster's vectors are multiplied by one random sign.

    It is sqrt(sum_c |sum_{i in c} x_i|^2) / P. `keep_P` keeps whole clusters. NaN without a point.
    """
    weight_P = _weights(cloud_PD, keep_P)
    square = jnp.maximum(_sum(weight_P, along_cluster(cloud_PD, cluster_P)), 0.0)  # rounding
    return root(square) / weight_P.sum()


def relative_drift_flipped(
    cloud_PD: Points, cluster_P: Int[AnyArray, " P"] | None, keep_P: Weights = None
) -> Scalar:
    """`drift_flipped` over the root mean square norm, which signs leave as it is; [0, 1]."""
    weight_P, x_PD = _weights(cloud_PD, keep_P), scale_to_unit(cloud_PD)
    square = _mean(weight_P, jnp.square(x_PD).sum(axis=1))
    return drift_flipped(x_PD, cluster_P, keep_P) / root(square)


def cross_cosine(
    a_PD: Points,
    b_QD: Float[AnyArray, "Q D"],
    keep_P: Weights = None,
    keep_Q: Float[AnyArray, " Q"] | None = None,
) -> Scalar:
    """Mean cosine of all pairs between two clouds, <E a/|a|, E b/|b|>, in [-1, 1].

    Zero vectors are left out. NaN if a cloud has no other.
    """
    unit_a_PD, counted_P = _directions(a_PD)
    unit_b_QD, counted_Q = _directions(b_QD)
    weight_P, weight_Q = _weights(a_PD, keep_P) * counted_P, _weights(b_QD, keep_Q) * counted_Q
    return (_mean(weight_P, unit_a_PD) * _mean(weight_Q, unit_b_QD)).sum()


def cosine(u_D: Float[AnyArray, " D"], v_D: Float[AnyArray, " D"]) -> Scalar:
    """Cosine <u, v> / (|u| |v|) of two vectors. NaN for a zero vector, which has no direction."""
    u_D, v_D = jnp.asarray(u_D, jnp.float32), jnp.asarray(v_D, jnp.float32)
    return (u_D / jnp.linalg.norm(u_D) * (v_D / jnp.linalg.norm(v_D))).sum()


def mean_vector(cloud_PD: Points, keep_P: Weights = None) -> Float[Array, " D"]:
    """Mean vector E x, in float32. NaN if no point is kept."""
    return _mean(_weights(cloud_PD, keep_P), jnp.asarray(cloud_PD, jnp.float32))


def weighted_drift(cloud_PD: Points, keep_P: Weights = None) -> Scalar:
    """Compute `drift` of the kept points; NaN if none is."""
    return norms(mean_vector(cloud_PD, keep_P))


@public_metric(about_mean=False, any_size=False)
def drift(x: ArrayLike) -> Scalar:
    """Norm of the mean vector, |E x|.

    A number in the units of x, in [0, `mean_norm`]. Source: Godey et al. 2024.
    """
    return weighted_drift(x)


def weighted_relative_drift(cloud_PD: Points, keep_P: Weights = None) -> Scalar:
    """Compute `relative_drift` of the kept points; about 1/sqrt(P) for P that are independent."""
    weight_P, x_PD = _weights(cloud_PD, keep_P), scale_to_unit(cloud_PD)
    return norms(_mean(weight_P, x_PD)) / root(_mean(weight_P, jnp.square(x_PD).sum(axis=1)))


@public_metric(about_mean=False)
def relative_drift(x: ArrayLike) -> Scalar:
    """Norm of the mean vector over the root mean square norm, |E x| / sqrt(E |x|^2).

    A share in [0, 1]: its square is the share of the mean in the second moment. NaN where all
    points are 0. Source: this project, to compare drifts of layers and models.
    """
    return weighted_relative_drift(x)


def fluctuation(cloud_PD: Points, keep_P: Weights = None) -> Scalar:
    """Root mean square distance from the mean, sqrt(E |x - E x|^2). NaN if no point is kept."""
    # centered first, so that a large drift costs no digits
    weight_P, x_PD = _weights(cloud_PD, keep_P), centered(cloud_PD)
    shift = jnp.square(_mean(weight_P, x_PD)).sum()
    return root(jnp.maximum(_mean(weight_P, jnp.square(x_PD).sum(axis=1)) - shift, 0.0))


def weighted_mean_norm(cloud_PD: Points, keep_P: Weights = None) -> Scalar:
    """Compute `mean_norm` of the kept points; NaN if none is."""
    return _mean(_weights(cloud_PD, keep_P), norms(jnp.asarray(cloud_PD, jnp.float32)))


@public_metric(about_mean=False, any_size=False)
def mean_norm(x: ArrayLike) -> Scalar:
    """Mean norm, E |x|: the scale that a drift is compared with.

    A number in the units of x, 0 or above.
    """
    return weighted_mean_norm(x)


def log_partition_isotropy(
    cloud_PD: Points, keep_RP: Float[AnyArray, "R P"] | None = None
) -> Float[Array, " R"]:
    """Logarithm of the partition function's isotropy, ln I, I = min_c Z(c) / max_c Z(c).

    Z(c) = sum_i exp <c, x_i>, c over the unit eigenvectors of X^T X and their opposites. R values,
    by weights 1 or 0 of the points (None: all): of all points that count, then without each fold,
    along the directions of the first. Points that never count must be 0. Range: (-inf, 0]; it
    depends on the scale of x; at large scale only the farthest matters. Equal eigenvalues have no
    directions of their own. NaN if not finite.
    """
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    keep_RP = jnp.ones((1, len(cloud_PD))) if keep_RP is None else jnp.asarray(keep_RP)
    member_JP = fold_members(keep_RP)
    score_PE = product(cloud_PD, eigh(product(cloud_PD.T, cloud_PD))[1])
    # a sum for every fold, each with its own largest term: without it the others would underflow
    both_PE = jnp.concatenate([score_PE, -score_PE], axis=1)
    largest_JE = jax.lax.map(
        lambda member_P: jnp.where(member_P[:, None] > 0, both_PE, -jnp.inf).max(axis=0), member_JP
    )
    finite_JE = jnp.where(jnp.isfinite(largest_JE), largest_JE, 0.0)  # no point in a fold
    own_PE = jnp.exp(both_PE - product(member_JP.T, finite_JE))
    log_z_JE = largest_JE + jnp.log(product(member_JP, only(own_PE, keep_RP[0] > 0)))
    log_z_JE = jnp.where(largest_JE == -jnp.inf, -jnp.inf, log_z_JE)
    left_RJ = fold_weights(len(member_JP))
    log_z_RE = jax.nn.logsumexp(log_z_JE[None], axis=1, b=left_RJ[:, :, None])
    return -largest(-log_z_RE) - largest(log_z_RE)


def _directions(cloud_PD: Float[Array, "P D"]) -> tuple[Float[Array, "P D"], Bool[Array, " P"]]:
    """Compute x_i/|x_i|, zeros for zero vectors, and which points have a direction."""
    cloud_PD = scale_to_unit(cloud_PD)
    norm_P = norms(cloud_PD)
    nonzero_P = norm_P != 0  # true for NaN, which must not vanish from the mean
    return cloud_PD / jnp.where(nonzero_P, norm_P, 1.0)[:, None], nonzero_P


def _weights(
    cloud_PD: Float[Array, "P D"], keep_P: Float[Array, " P"] | None
) -> Float[Array, " P"]:
    return jnp.ones(cloud_PD.shape[0]) if keep_P is None else keep_P


def _sum(weight_P: Float[Array, " P"], x_P: Float[Array, "P ..."]) -> Float[Array, "..."]:
    blocked = weight_P.size - weight_P.size % NORMS_AT_ONCE
    if blocked <= NORMS_AT_ONCE:
        return product(weight_P, x_P)
    weight_XP, x_XP = (
        x_part_P[:blocked].reshape(-1, NORMS_AT_ONCE, *x_part_P.shape[1:])
        for x_part_P in (weight_P, x_P)
    )
    blocks = jnp.einsum("bp,bp...->b...", weight_XP, x_XP, precision=Precision.HIGHEST).sum(axis=0)
    return blocks + product(weight_P[blocked:], x_P[blocked:])


def _mean(weight_P: Float[Array, " P"], x_P: Float[Array, "P ..."]) -> Float[Array, "..."]:
    return _sum(weight_P, x_P) / weight_P.sum()


def _over_pairs(total: Scalar, points: Scalar) -> Scalar:
    return jnp.where(points > 1, total / (points * (points - 1.0)), jnp.nan)


SIGNS = (
    "flipped, {} where each cluster's vectors are multiplied by one random sign, says what a cloud "
    "without a mean has; without clusters each point has a sign of its own"
)
ROOT_MEAN_SQUARE = {"nulls": (FLIPPED,), "null_words": SIGNS.format("the root mean square")}
SIMILARITY_QUANTITIES = {
    "mean_cosine": correlation(
        "mean cosine of pairs",
        "(|sum_i x_i/|x_i||^2 - P) / (P (P - 1)), all pairs of the P x_i that are not 0",
        INHERENT,
        nulls=(FLIPPED,),
        null_words=SIGNS.format("the expected value"),
        read=weighted_mean_cosine,
    ),
    "mean_cosine_drift": magnitude(
        "mean cosine, part of the drift",
        "|E x|^2 mean over pairs of 1/(|x_i| |x_j|), mean and pairs of the x_i that are not 0",
        null_words="the excess of mean_cosine over flipped says how far it is from chance",
        read=lambda *cloud: mean_cosine_parts(*cloud).drift,
    ),
    "mean_cosine_residual": Quantity(
        "mean cosine, residual",
        "mean_cosine - mean_cosine_drift",
        read=lambda *cloud: mean_cosine_parts(*cloud).residual,
    ),
    "drift": norm(
        "norm of the mean vector (drift)",
        "|E x|",
        INHERENT,
        symbol="|E x|",
        **ROOT_MEAN_SQUARE,
        read=weighted_drift,
    ),
    "relative_drift": share(
        "relative drift", "|E x| / sqrt(E |x|^2)", **ROOT_MEAN_SQUARE, read=weighted_relative_drift
    ),
    "mean_norm": norm(
        "mean norm",
        "E |x|",
        INHERENT,
        symbol="E |x|",
        null_words="flipped leaves it as it is",
        read=weighted_mean_norm,
    ),
    "log_partition_isotropy": Quantity(
        "log of the partition function's isotropy",
        "ln(min_c Z(c) / max_c Z(c)), Z(c) = sum_i exp(c.x_i), c = +- the eigenvectors of X^T X",
        "Mu and Viswanath 2018; both signs: this project",
        range=(-math.inf, 0.0),
    ),
}


# {quantity: its null model, a function of the cloud, the clusters of its points, and weights}
FLIPPED_READERS = {
    "mean_cosine": mean_cosine_flipped,
    "drift": drift_flipped,
    "relative_drift": relative_drift_flipped,
}
# {name without the longest vectors: quantity}
SIMILARITY_WITHOUT_LONGEST = {f"{name}_without_longest": name for name in ("mean_cosine", "drift")}
SIMILARITY_QUANTITIES |= {
    without: without_longest(SIMILARITY_QUANTITIES[name])
    for without, name in SIMILARITY_WITHOUT_LONGEST.items()
}


def measure_similarity(cloud: Cloud) -> dict[str, Values]:
    """Measure a cloud, and its expected values under random signs."""
    cloud_PD = cloud.points_PD
    cluster_P = cloud.places.window_P

    def read(names: Iterable[str], left_P: Array) -> dict[str, Values]:
        """Read some quantities of the points left, with all points and without each fold."""
        left_PD = only(cloud_PD, left_P)
        flipped = [name for name in names if name in FLIPPED_READERS]

        def read_kept(keep_P: Array) -> dict[str, Values]:
            weight_P = keep_P * left_P
            measured = {name: SIMILARITY_QUANTITIES[name].read(left_PD, weight_P) for name in names}
            signs = {name: FLIPPED_READERS[name](left_PD, cluster_P, weight_P) for name in flipped}
            return {MEASURED: measured, FLIPPED: signs}

        return cloud.over_folds(read_kept)

    valid_P, without = cloud.labels.valid_P, SIMILARITY_WITHOUT_LONGEST
    others = [
        name
        for name, quantity in SIMILARITY_QUANTITIES.items()
        if quantity.read and name not in without.values()
    ]
    values = read(others, valid_P)
    # all points, then without the longest: compiled once
    left_3P = jnp.concatenate([valid_P[None], remaining(cloud)])
    some_3 = jax.lax.map(lambda left_P: read(without.values(), left_P), left_3P)
    partition = log_partition_isotropy(cloud_PD, cloud.labels.keep_RP)
    values[MEASURED]["log_partition_isotropy"] = partition
    for sample, by_name in values.items():
        by_name |= {name: some_3[sample][name][0] for name in without.values()}
        by_name |= {new: some_3[sample][name][1:] for new, name in without.items()}
    return values


SIMILARITY = Family("cloud", measure_similarity, SIMILARITY_QUANTITIES)
