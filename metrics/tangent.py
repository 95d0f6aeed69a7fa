"""Tangent proxies of a layer, and how much of a gradient lies in them.

Arrays carry the letters of `models`, and P points, K columns of an orthonormal frame (its rank), R resamples,
C control frames. What is a reconstruction after Bernas et al. 2026 says so: their formulas were not readable here.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Key

from anisoscope.metrics.cloud import AnyArray, centred, eigh
from anisoscope.metrics.neighbours import originals

EPSILON = 1e-9  # added to a denominator of semi-NMF; rows are scaled to a mean square of 1 before
SINGULAR = 1e-6  # eigenvalues of Z^T Z below this share of the largest are 0 in its pseudo-inverse
RESIDUE = 1e-5  # of a covariance: float32 leaves up to 1e-7 of it where nothing should be left
FLAT = 1e-5  # a variance below this share of the largest is rounding: neighbours do not vary in that direction


class Factors(NamedTuple):
    """A ~ Z C with Z >= 0."""

    weight_PK: Float[Array, "P K"]
    concept_KD: Float[Array, "K D"]
    residual_S: Float[Array, " S"]  # |A - Z C|^2 / |A|^2 after each round


def semi_nmf(points_PD: Float[AnyArray, "P D"], start_PK: Float[AnyArray, "P K"], rounds: int) -> Factors:
    """Semi-nonnegative factors of points: A ~ Z C, Z >= 0, by multiplicative updates from Z = `start_PK` > 0.

    Each of `rounds` S: C <- pinv(Z^T Z) Z^T A, then Z <- Z sqrt(((A C^T)+ + Z (C C^T)-) / ((A C^T)- + Z (C C^T)+)),
    with + and - the positive and negative parts; last, C once more. Neither step raises |A - Z C|. Shapes: as named.
    Units: C has those of A, Z none. Range of the residual: [0, 1]. All points 0: a residual of NaN.
    Source: Ding, Li and Jordan 2010, Convex and Semi-Nonnegative Matrix Factorizations; the points are not centred.
    """
    raw_PD = jnp.asarray(points_PD, jnp.float32)
    scale = jnp.sqrt(jnp.square(raw_PD).mean())
    x_PD = raw_PD / scale
    total = jnp.square(x_PD).sum()

    def concepts(weight_PK: Array) -> tuple[Array, Array]:
        """The best for these weights, and what they leave of the points."""
        product_KD = _product(weight_PK.T, x_PD)
        value_K, vector_KK = eigh(_product(weight_PK.T, weight_PK))
        inverse_K = jnp.where(value_K > SINGULAR * value_K[-1], 1.0 / value_K, 0.0)
        concept_KD = _product(vector_KK, inverse_K[:, None] * _product(vector_KK.T, product_KD))
        return concept_KD, jnp.maximum(1.0 - (concept_KD * product_KD).sum() / total, 0.0)

    def improve(weight_PK: Array, concept_KD: Array) -> Array:
        cross_PK, gram_KK = _product(x_PD, concept_KD.T), _product(concept_KD, concept_KD.T)
        up_PK = jnp.maximum(cross_PK, 0.0) + _product(weight_PK, jnp.maximum(-gram_KK, 0.0))
        down_PK = jnp.maximum(-cross_PK, 0.0) + _product(weight_PK, jnp.maximum(gram_KK, 0.0))
        return weight_PK * jnp.sqrt(up_PK / (down_PK + EPSILON))

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        weight_PK = improve(*carry)
        concept_KD, residual = concepts(weight_PK)
        return (weight_PK, concept_KD), residual

    weight_PK = jnp.asarray(start_PK, jnp.float32)
    last, residual_S = jax.lax.scan(step, (weight_PK, concepts(weight_PK)[0]), None, length=rounds)
    return Factors(last[0], last[1] * scale, residual_S)


def start(points_PD: Float[AnyArray, "P D"], key: Key[Array, ""], rank: int) -> Float[Array, "P K"]:
    """Weights for semi-NMF to begin with: 1 for the nearest of `rank` points drawn at random, and 0.2 added to all.

    Shapes: (P, D) -> (P, K). Copies are drawn after all points that differ: columns that begin as the same stay the
    same. Ties go to the first drawn. Range: 0.2 or 1.2. More ranks than points: ValueError. Source: Ding et al. 2010
    begin with the clusters of k-means and add 0.2; this is k-means' first assignment.
    """
    points_PD = jnp.asarray(points_PD, jnp.float32)
    if rank > len(points_PD):
        raise ValueError(f"{rank} concepts of {len(points_PD)} points")
    drawn_P = jax.random.permutation(key, len(points_PD))
    order_P = jnp.zeros_like(drawn_P).at[drawn_P].set(jnp.arange(len(drawn_P)))
    original_P, _ = originals(points_PD)
    earliest_P = jnp.full_like(order_P, len(order_P)).at[original_P].min(order_P)
    copy_P = earliest_P[original_P] < order_P  # of one that is drawn before it
    chosen_KD = points_PD[drawn_P[jnp.argsort(copy_P[drawn_P])[:rank]]]
    distance_PK = jnp.square(chosen_KD).sum(axis=1)[None] - 2.0 * _product(points_PD, chosen_KD.T)
    return jax.nn.one_hot(distance_PK.argmin(axis=1), rank) + 0.2


def orthonormal(concept_KD: Float[AnyArray, "K D"]) -> Float[Array, "D K"]:
    """Orthonormal columns that span the rows: Q of the QR decomposition of C^T, to 1e-5.

    Shapes: (K, D), K <= D -> (D, K). Rows that depend on each other: columns beyond their span are filled up. Source:
    reconstruction after Bernas et al. 2026, whose semi-NMF concepts are orthonormalised so.
    """
    return jnp.linalg.qr(jnp.asarray(concept_KD, jnp.float32).T)[0]


def principal(points_PD: Float[AnyArray, "P D"], rank: int) -> Float[Array, "D K"]:
    """The first principal directions of the points about their mean, as orthonormal columns, the first one first.

    Shapes: (P, D), rank <= D -> (D, K). No frame of this rank has a larger `variance_share` of these points. A
    coordinate that is not finite: NaN. Source: principal components; as a tangent proxy, reconstruction after Bernas
    et al. 2026.
    """
    x_PD = centred(points_PD)
    return eigh(_product(x_PD.T, x_PD))[1][:, ::-1][:, :rank]


def energy(
    frame_DK: Float[AnyArray, "D K"], gradient_PD: Float[AnyArray, "P D"], keep_P: Float[AnyArray, " P"] | None = None
) -> Float[Array, ""]:
    """Share of the squared norm of the rows that lies in the span of the frame: e(Q) = |G Q|^2 / |G|^2, uncentred.

    Shapes: orthonormal columns, P rows of width D, weights 1 or 0 (None: all) -> scalar. Units: none. Range: [0, 1];
    K/D for isotropic rows, 1 where they lie in the span. All rows 0: NaN. Source: Bernas et al. 2026 (reconstruction).
    """
    gradient_PD = jnp.asarray(gradient_PD, jnp.float32)
    keep_P = _all(gradient_PD) if keep_P is None else keep_P
    inside_P = jnp.square(_product(gradient_PD, frame_DK)).sum(axis=1)
    return _product(keep_P, inside_P) / _product(keep_P, jnp.square(gradient_PD).sum(axis=1))


def variance_share(
    frame_DK: Float[AnyArray, "D K"], points_PD: Float[AnyArray, "P D"], keep_P: Float[AnyArray, " P"] | None = None
) -> Float[Array, ""]:
    """Share of the points' variance that lies in the span of the frame: v(Q) = tr(Q^T C Q) / tr C.

    C is the covariance of the kept points about their own mean. Shapes and range as of `energy`. A gradient that is
    drawn from C whatever the point has e(Q) = v(Q) on average, for every Q. All kept points equal, or so near to each
    other beside the mean of all that rounding may be what is left: NaN. Units: none. Source: this project.
    """
    x_PD = centred(points_PD)
    keep_P = _all(x_PD) if keep_P is None else keep_P
    score_PK, count = _product(x_PD, frame_DK), keep_P.sum()
    inside = _product(keep_P, jnp.square(score_PK).sum(axis=1)) / count
    inside -= jnp.square(_product(keep_P, score_PK) / count).sum()
    square = _product(keep_P, jnp.square(x_PD).sum(axis=1)) / count
    total = square - jnp.square(_product(keep_P, x_PD) / count).sum()
    return jnp.where(total < RESIDUE * square, jnp.nan, inside / total)


def random_frames(frame_DK: Float[AnyArray, "D K"], key: Key[Array, ""], count: int) -> Float[Array, "C D K"]:
    """Random frames of the same rank in the complement: Q_N = qr((I - Q Q^T) Z), Z normal.

    Shapes: (D, K), 2 K <= D or ValueError -> (C, D, K). The mean of e(Q_N) over all such frames is
    (1 - e(Q)) K / (D - K): it says nothing of G that e(Q) does not. Source: Bernas et al. 2026, the normal controls;
    second-hand for their number.
    """
    frame_DK = jnp.asarray(frame_DK, jnp.float32)
    _check_room(frame_DK, 2)

    def draw(key: Array) -> Array:
        return jnp.linalg.qr(_outside(frame_DK, jax.random.normal(key, frame_DK.shape)))[0]

    return jax.lax.map(draw, jax.random.split(key, count))


def ratio(own: Float[AnyArray, ""] | float, control_C: Float[AnyArray, " C"]) -> Float[Array, ""]:
    """e(Q) over the mean of e(Q_N). Units: none. Range: >= 0. Source: Bernas et al. 2026 (reconstruction)."""
    return jnp.asarray(own) / jnp.asarray(control_C).mean()


def p_value(own: Float[AnyArray, ""] | float, control_C: Float[AnyArray, " C"]) -> Float[Array, ""]:
    """(1 + how many controls have at least the energy of the proxy) / (1 + their number). Range: [1/(1 + C), 1].

    A NaN among them: NaN. Controls in the complement and the proxy are not exchangeable, so that this is not uniform
    even where G is isotropic: of rank D/4 it is 1/21 in 0.10 of the cases. Nor does it know what the activations
    explain by themselves. Units: none. Source: Bernas et al. 2026 (reconstruction).
    """
    own, control_C = jnp.asarray(own), jnp.asarray(control_C)
    p = (1.0 + (control_C >= own).sum()) / (1.0 + control_C.size)
    return jnp.where(jnp.isnan(own) | jnp.isnan(control_C).any(), jnp.nan, p)


def covariance(points_PD: Float[AnyArray, "P D"], keep_P: Float[AnyArray, " P"] | None = None) -> Float[Array, "D D"]:
    """Covariance of the kept points about their own mean. Units: those of the points, squared. None kept: NaN."""
    x_PD = centred(points_PD)
    keep_P = _all(x_PD) if keep_P is None else keep_P
    mean_D = _product(keep_P, x_PD) / keep_P.sum()
    return _product((keep_P[:, None] * x_PD).T, x_PD) / keep_P.sum() - mean_D[:, None] * mean_D[None]


def isoscore_outside(frame_DK: Float[AnyArray, "D K"], covariance_DD: Float[AnyArray, "D D"]) -> Float[Array, ""]:
    """IsoScore* of what is left when the frame is removed, in the D - K dimensions of its complement, no shrinkage.

    (tr(C')^2/|C'|_F^2 - 1)/(D - K - 1), C' = B^T C B for any orthonormal basis B of the complement. Range: [0, 1];
    K = 0: that of all D dimensions. D - K = 1, or tr C' below RESIDUE of tr C, which may be rounding: NaN. Units: none.
    Source: Rudman and Eickhoff 2024 for the score; of a complement, reconstruction after Bernas et al. 2026, who do not
    say in how many dimensions.
    """
    covariance_DD, (width, rank) = jnp.asarray(covariance_DD), frame_DK.shape
    covariance_DD = covariance_DD / jnp.trace(covariance_DD)  # squares of small gradients underflow
    left_DD = _outside(frame_DK, _outside(frame_DK, covariance_DD).T)
    trace = jnp.trace(left_DD)
    participation = jnp.square(trace) / jnp.square(left_DD).sum()
    return jnp.where(trace < RESIDUE, jnp.nan, (participation - 1.0) / (width - rank - 1.0))


def equal_energy_frames(
    frame_DK: Float[AnyArray, "D K"], moment_DD: Float[AnyArray, "D D"], key: Key[Array, ""], count: int
) -> Float[Array, "C D K"]:
    """Random frames of the rank and the energy of another: what removing so much energy does, wherever it lies.

    Shapes: (D, K), the second moments M of the rows (any unit), 3 K <= D or ValueError -> (C, D, K). Each is
    cos t V R + sin t N: V the K eigenvectors of M with most energy (least, where the frame has less than N), R a random
    rotation, N random columns in the complement of both. V^T M N = 0, so that cos^2 t = (e(Q) - e(N)) / (e(V) - e(N))
    in closed form. An M that is not finite: NaN. Source: this project.
    """
    frame_DK, rank = jnp.asarray(frame_DK), frame_DK.shape[1]
    _check_room(frame_DK, 3)
    moment_DD = jnp.asarray(moment_DD) / jnp.trace(jnp.asarray(moment_DD))
    vector_DD = eigh(moment_DD)[1]
    ends_2DK = jnp.stack([vector_DD[:, -rank:], vector_DD[:, :rank]])
    both_DK = jnp.concatenate(ends_2DK, axis=1)

    def share(one_DK: Array) -> Array:
        return (one_DK * _product(moment_DD, one_DK)).sum()

    wanted, ends_2 = share(frame_DK), jax.vmap(share)(ends_2DK)

    def draw(key: Array) -> Array:
        turn, far = jax.random.split(key)
        turn_KK = jnp.linalg.qr(jax.random.normal(turn, (rank, rank)))[0]
        far_DK = jnp.linalg.qr(_outside(both_DK, jax.random.normal(far, frame_DK.shape)))[0]
        there = share(far_DK)
        end = jnp.where(wanted >= there, 0, 1)
        square = jnp.clip((wanted - there) / (ends_2[end] - there), 0.0, 1.0)
        return jnp.sqrt(square) * _product(ends_2DK[end], turn_KK) + jnp.sqrt(1.0 - square) * far_DK

    return jax.lax.map(draw, jax.random.split(key, count))


class Local(NamedTuple):
    """Of every point, in the frame of its own neighbourhood, K = 1 … rank."""

    inside_PK: Float[Array, "P K"]  # |Q_i^T g_i|^2
    share_PK: Float[Array, "P K"]  # tr(Q_i^T C Q_i) / tr C


def local_tangent(
    points_PD: Float[AnyArray, "P D"],
    gradient_PD: Float[AnyArray, "P D"],
    among_OD: Float[AnyArray, "O D"],
    neighbours: int,
    rank: int,
) -> Local:
    """A gradient in the local tangent of its own point: the principal directions of the nearest of other points.

    Shapes: P points, their gradients, O others among which `neighbours` are found, more than `rank` -> (P, rank) each,
    for frames of the first 1 … rank directions. The frame Q_i is that of the neighbours about their mean; C is the
    covariance of the P points. e is then the mean of |Q_i^T g_i|^2 over that of |g_i|^2, and what a gradient that
    follows C would have is the mean of share_P with weights |g_i|^2. Units: those of the gradient, squared; none.
    Range: >= 0; [0, 1]. Directions in which the neighbours do not vary are left out of the frame. Source:
    reconstruction after Bernas et al. 2026: a chart of first order.
    """
    origin_1D = jnp.asarray(points_PD, jnp.float32).mean(axis=0, keepdims=True)
    points_PD, among_OD = points_PD - origin_1D, jnp.asarray(among_OD, jnp.float32) - origin_1D
    distance_PO = jnp.square(among_OD).sum(axis=1)[None] - 2.0 * _product(points_PD, among_OD.T)
    nearest_PM = jax.lax.top_k(-distance_PO, neighbours)[1]
    covariance_DD = covariance(points_PD)

    def of_point(given: tuple[Array, Array]) -> tuple[Array, Array]:
        nearest_M, gradient_D = given
        near_MD = among_OD[nearest_M]
        near_MD = centred(near_MD)
        value_M, vector_MM = eigh(_product(near_MD, near_MD.T))  # fewer neighbours than dimensions: the smaller matrix
        first_KM, value_K = vector_MM[:, ::-1][:, :rank].T, value_M[::-1][:rank]
        length_K = jnp.where(value_K > FLAT * value_K[0], jnp.sqrt(jnp.abs(value_K)), jnp.inf)
        frame_KD = _product(first_KM, near_MD) / length_K[:, None]
        share_K = (frame_KD * _product(frame_KD, covariance_DD)).sum(axis=1) / jnp.trace(covariance_DD)
        return jnp.cumsum(jnp.square(_product(frame_KD, gradient_D))), jnp.cumsum(share_K)

    return Local(*jax.lax.map(of_point, (nearest_PM, jnp.asarray(gradient_PD))))


def _check_room(frame_DK: Array, frames: int) -> None:
    width, rank = frame_DK.shape
    if frames * rank > width:
        raise ValueError(f"{frames} frames of rank {rank} do not fit beside each other into {width} dimensions")


def _outside(frame_DK: Array, x_DE: Array) -> Array:
    """The columns without what lies in the frame; twice, since float32 leaves some of it."""
    for _ in range(2):
        x_DE = x_DE - _product(frame_DK, _product(frame_DK.T, x_DE))
    return x_DE


def _all(x_PD: Array) -> Array:
    return jnp.ones(len(x_PD))


def _product(a: Float[AnyArray, "..."], b: Float[AnyArray, "..."]) -> Float[Array, "..."]:
    return jnp.matmul(a, b, precision=Precision.HIGHEST)
