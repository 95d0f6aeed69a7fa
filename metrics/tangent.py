"""Tangent proxies of a layer, and how much of a gradient lies in them.

Here E are the columns of an orthonormal frame (its rank), U control frames, O other points, Y
rounds, X any columns. All but semi-NMF, `variance_share` and `equal_energy_frames` are
reconstructions after Bernas et al. 2026, whose formulas we could not read.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Key

from anisoscope.metrics.cloud import AnyArray, Points, Scalar, Weights, centered, product
from anisoscope.metrics.copies import copies
from anisoscope.metrics.eigen import eigh

DENOMINATOR = (
    1e-9  # added to a denominator of semi-NMF; rows are first scaled to a mean square of 1
)
SINGULAR = 1e-6  # eigenvalues of Z^T Z below this share of the largest are 0 in its pseudo-inverse
LEAST_COVARIANCE = (
    1e-5  # share of a covariance: float32 leaves up to 1e-7 where nothing should be left
)
# below this share of the largest a variance is rounding: neighbors do not vary in that direction
FLAT_PROGRESS = 1e-5
MEAN_ROUNDING = 4 * float(jnp.finfo(jnp.float32).eps)  # of the mean of equal vectors, relative


class Factors(NamedTuple):
    """A ~ Z C with Z >= 0."""

    weight_PE: Float[Array, "P E"]
    concept_ED: Float[Array, "E D"]
    residual_Y: Float[Array, " Y"]  # |A - Z C|^2 / |A|^2 after each round


def semi_nmf(points_PD: Points, start_PE: Float[AnyArray, "P E"], rounds: int) -> Factors:
    """Semi-nonnegative factors of points, A ~ Z C with Z >= 0, from Z = `start_PE` > 0.

    Each round: C <- pinv(Z^T Z) Z^T A, then Z <- Z sqrt(((A C^T)+ + Z (C C^T)-) / ((A C^T)- +
    Z (C C^T)+)), with + and - the positive and negative parts; last, C once more. Neither step
    raises |A - Z C|; A is not centered. Residuals: [0, 1], NaN where all points are 0. Source:
    Ding, Li and Jordan 2010, Convex and Semi-Nonnegative Matrix Factorizations.
    """
    raw_PD = jnp.asarray(points_PD, jnp.float32)
    scale = jnp.sqrt(jnp.square(raw_PD).mean())
    x_PD = raw_PD / scale
    total = jnp.square(x_PD).sum()

    def concepts(weight_PE: Array) -> tuple[Array, Array]:
        """Compute the best concepts for these weights, and the residual of the points."""
        product_ED = product(weight_PE.T, x_PD)
        value_E, vector_EE = eigh(product(weight_PE.T, weight_PE))
        inverse_E = jnp.where(value_E > SINGULAR * value_E[-1], 1.0 / value_E, 0.0)
        concept_ED = product(vector_EE, inverse_E[:, None] * product(vector_EE.T, product_ED))
        return concept_ED, jnp.maximum(1.0 - (concept_ED * product_ED).sum() / total, 0.0)

    def improve(weight_PE: Array, concept_ED: Array) -> Array:
        cross_PE, gram_EE = product(x_PD, concept_ED.T), product(concept_ED, concept_ED.T)
        up_PE = jnp.maximum(cross_PE, 0.0) + product(weight_PE, jnp.maximum(-gram_EE, 0.0))
        down_PE = jnp.maximum(-cross_PE, 0.0) + product(weight_PE, jnp.maximum(gram_EE, 0.0))
        return weight_PE * jnp.sqrt(up_PE / (down_PE + DENOMINATOR))

    def step(carry: tuple[Array, Array], _: None) -> tuple[tuple[Array, Array], Array]:
        weight_PE = improve(*carry)
        concept_ED, residual = concepts(weight_PE)
        return (weight_PE, concept_ED), residual

    weight_PE = jnp.asarray(start_PE, jnp.float32)
    last, residual_Y = jax.lax.scan(step, (weight_PE, concepts(weight_PE)[0]), None, length=rounds)
    return Factors(last[0], last[1] * scale, residual_Y)


def initial_weights(points_PD: Points, key: Key[Array, ""], rank: int) -> Float[Array, "P E"]:
    """Weights that semi-NMF starts from: 1 for the nearest of `rank` random points, plus 0.2.

    Copies are drawn after all distinct points, since columns that start equal stay equal.
    Ties go to the first drawn. More ranks than points: ValueError. Source: Ding et al. 2010 begin
    with the clusters of k-means; this is its first assignment.
    """
    points_PD = jnp.asarray(points_PD, jnp.float32)
    if rank > len(points_PD):
        raise ValueError(
            f"rank is {rank}, and there are {len(points_PD)} points; pass at most that many"
        )
    random_P = jax.random.permutation(key, len(points_PD))
    order_P = jnp.zeros_like(random_P).at[random_P].set(jnp.arange(len(random_P)))
    original_P = copies(points_PD).original_P
    earliest_P = jnp.full_like(order_P, len(order_P)).at[original_P].min(order_P)
    copy_P = earliest_P[original_P] < order_P  # a copy of a point that is drawn before it
    center_ED = points_PD[random_P[jnp.argsort(copy_P[random_P])[:rank]]]
    distance_PE = jnp.square(center_ED).sum(axis=1)[None] - 2.0 * product(points_PD, center_ED.T)
    return jax.nn.one_hot(distance_PE.argmin(axis=1), rank) + 0.2


def orthonormal(concept_ED: Float[AnyArray, "E D"]) -> Float[Array, "D E"]:
    """Orthonormal columns that span the rows, Q of the QR decomposition of C^T."""
    return jnp.linalg.qr(jnp.asarray(concept_ED, jnp.float32).T)[0]


def principal_directions(points_PD: Points, rank: int) -> Float[Array, "D E"]:
    """First principal directions, as orthonormal columns in order; NaN if not finite."""
    x_PD = centered(points_PD)
    return eigh(product(x_PD.T, x_PD))[1][:, ::-1][:, :rank]


def energy_share(
    frame_DE: Float[AnyArray, "D E"], gradient_PD: Points, keep_P: Weights = None
) -> Scalar:
    """Share of the rows' squared norm in the span of the frame: e(Q) = |G Q|^2 / |G|^2, uncentered.

    Weights 1 or 0 of the rows (None: all). Range: [0, 1]; E/D if isotropic. NaN if all are 0.
    """
    gradient_PD = jnp.asarray(gradient_PD, jnp.float32)
    keep_P = jnp.ones(len(gradient_PD)) if keep_P is None else keep_P
    inside_P = jnp.square(product(gradient_PD, frame_DE)).sum(axis=1)
    return product(keep_P, inside_P) / product(keep_P, jnp.square(gradient_PD).sum(axis=1))


def variance_share(
    frame_DE: Float[AnyArray, "D E"], points_PD: Points, keep_P: Weights = None
) -> Scalar:
    """Share of the points' variance that lies in the span of the frame: v(Q) = tr(Q^T C Q) / tr C.

    C is the covariance of the kept points about their own mean; a gradient that is drawn from it
    has e(Q) = v(Q) on average. NaN if all kept points are equal, up to rounding.
    """
    x_PD = centered(points_PD)
    keep_P = jnp.ones(len(x_PD)) if keep_P is None else keep_P
    score_PE, count = product(x_PD, frame_DE), keep_P.sum()
    inside = product(keep_P, jnp.square(score_PE).sum(axis=1)) / count
    inside -= jnp.square(product(keep_P, score_PE) / count).sum()
    square = product(keep_P, jnp.square(x_PD).sum(axis=1)) / count
    total = square - jnp.square(product(keep_P, x_PD) / count).sum()
    return jnp.where(total < LEAST_COVARIANCE * square, jnp.nan, inside / total)


def random_frames(
    frame_DE: Float[AnyArray, "D E"], key: Key[Array, ""], count: int
) -> Float[Array, "U D E"]:
    """Random frames of the same rank in the complement: Q_N = qr((I - Q Q^T) Z), Z normal.

    2 E <= D, or ValueError. The mean of e(Q_N) over all such frames is (1 - e(Q)) E / (D - E).
    """
    frame_DE = jnp.asarray(frame_DE, jnp.float32)
    _check_room(frame_DE, 2)

    def draw(key: Array) -> Array:
        return jnp.linalg.qr(_outside(frame_DE, jax.random.normal(key, frame_DE.shape)))[0]

    return jax.lax.map(draw, jax.random.split(key, count))


def ratio(proxy_energy: Float[AnyArray, ""] | float, control_U: Float[AnyArray, " U"]) -> Scalar:
    """Ratio of e(Q) to the mean of e(Q_N), >= 0."""
    return jnp.asarray(proxy_energy) / jnp.asarray(control_U).mean()


def p_value(proxy_energy: Float[AnyArray, ""] | float, control_U: Float[AnyArray, " U"]) -> Scalar:
    """Share of controls with at least the energy of the proxy: (1 + their number) / (1 + U).

    NaN if any energy is NaN. Controls and proxy are not exchangeable: where G is isotropic, p is
    not uniform; for rank D/4 it is 1/21 in a share 0.10 of the cases.
    """
    proxy_energy, control_U = jnp.asarray(proxy_energy), jnp.asarray(control_U)
    p = (1.0 + (control_U >= proxy_energy).sum()) / (1.0 + control_U.size)
    return jnp.where(jnp.isnan(proxy_energy) | jnp.isnan(control_U).any(), jnp.nan, p)


def covariance(points_PD: Points, keep_P: Weights = None) -> Float[Array, "D D"]:
    """Covariance of the kept points about their own mean; NaN if none is kept."""
    x_PD = centered(points_PD)
    keep_P = jnp.ones(len(x_PD)) if keep_P is None else keep_P
    mean_D = product(keep_P, x_PD) / keep_P.sum()
    return product((keep_P[:, None] * x_PD).T, x_PD) / keep_P.sum() - mean_D[:, None] * mean_D[None]


def isoscore_outside(
    frame_DE: Float[AnyArray, "D E"], covariance_DD: Float[AnyArray, "D D"]
) -> Scalar:
    """IsoScore* of the complement of the frame, in its D - E dimensions, without shrinkage.

    (tr(C')^2/|C'|_F^2 - 1)/(D - E - 1), C' = B^T C B for any orthonormal basis B of the complement;
    [0, 1]. NaN if D - E = 1, or tr C' is below LEAST_COVARIANCE of tr C, which may be rounding.
    """
    covariance_DD, (width, rank) = jnp.asarray(covariance_DD), frame_DE.shape
    covariance_DD = covariance_DD / jnp.trace(covariance_DD)  # squares of small gradients underflow
    left_DD = _outside(frame_DE, _outside(frame_DE, covariance_DD).T)
    trace = jnp.trace(left_DD)
    participation = jnp.square(trace) / jnp.square(left_DD).sum()
    if width - rank == 1:
        return jnp.full_like(trace, jnp.nan)
    return jnp.where(
        trace < LEAST_COVARIANCE, jnp.nan, (participation - 1.0) / (width - rank - 1.0)
    )


def equal_energy_frames(
    frame_DE: Float[AnyArray, "D E"],
    moment_DD: Float[AnyArray, "D D"],
    key: Key[Array, ""],
    count: int,
) -> Float[Array, "U D E"]:
    """Random frames with the rank and energy of another: controls for the removal of that energy.

    `moment_DD` are the second moments M of the rows; 3 E <= D, or ValueError. Each is cos t V R +
    sin t N: V the E eigenvectors of M with most energy (least, where the frame has less than N), R
    a random rotation, N random columns in the complement of both. V^T M N = 0, so that cos^2 t =
    (e(Q) - e(N)) / (e(V) - e(N)). NaN if M is not finite.
    """
    frame_DE, rank = jnp.asarray(frame_DE), frame_DE.shape[1]
    _check_room(frame_DE, 3)
    moment_DD = jnp.asarray(moment_DD) / jnp.trace(jnp.asarray(moment_DD))
    vector_DD = eigh(moment_DD)[1]
    ends_2DE = jnp.stack([vector_DD[:, -rank:], vector_DD[:, :rank]])
    both_DE = jnp.concatenate(ends_2DE, axis=1)

    def share(basis_DE: Array) -> Array:
        return (basis_DE * product(moment_DD, basis_DE)).sum()

    target, ends_2 = share(frame_DE), jax.vmap(share)(ends_2DE)

    def draw(key: Array) -> Array:
        turn, far = jax.random.split(key)
        turn_EE = jnp.linalg.qr(jax.random.normal(turn, (rank, rank)))[0]
        far_DE = jnp.linalg.qr(_outside(both_DE, jax.random.normal(far, frame_DE.shape)))[0]
        far_share = share(far_DE)
        end = jnp.where(target >= far_share, 0, 1)
        square = jnp.clip((target - far_share) / (ends_2[end] - far_share), 0.0, 1.0)
        return jnp.sqrt(square) * product(ends_2DE[end], turn_EE) + jnp.sqrt(1.0 - square) * far_DE

    return jax.lax.map(draw, jax.random.split(key, count))


class Local(NamedTuple):
    """Results for every point in the frame of its own neighborhood, E = 1 … rank."""

    inside_PE: Float[Array, "P E"]  # |Q_i^T g_i|^2
    share_PE: Float[Array, "P E"]  # tr(Q_i^T C Q_i) / tr C
    known_PE: Bool[Array, "P E"]  # whether the neighborhood varies in so many directions


def local_tangent(
    points_PD: Points,
    gradient_PD: Points,
    among_OD: Float[AnyArray, "O D"],
    neighbors: int,
    rank: int,
) -> Local:
    """Parts of gradients in the local tangents of their points: principal directions of neighbors.

    Q_i has the first 1 … rank principal directions, about their mean, of the `neighbors` (more than
    rank) of point i among the others. C is the covariance of the points. e is then the mean of
    |Q_i^T g_i|^2 over that of |g_i|^2, of the points that have E directions: copies of a point span
    none. Directions in which the neighbors do not vary are left out.
    """
    origin_1D = jnp.asarray(points_PD, jnp.float32).mean(axis=0, keepdims=True)
    points_PD, among_OD = points_PD - origin_1D, jnp.asarray(among_OD, jnp.float32) - origin_1D
    distance_PO = jnp.square(among_OD).sum(axis=1)[None] - 2.0 * product(points_PD, among_OD.T)
    nearest_PC = jax.lax.top_k(-distance_PO, neighbors)[1]
    covariance_DD = covariance(points_PD)

    def read_point(point: tuple[Array, Array]) -> tuple[Array, Array, Array]:
        nearest_C, gradient_D = point
        near_CD = centered(among_OD[nearest_C])
        rounding = neighbors * MEAN_ROUNDING**2 * jnp.square(among_OD[nearest_C]).sum(axis=1).max()
        # fewer neighbors than dimensions: the smaller matrix
        value_C, vector_CC = eigh(product(near_CD, near_CD.T))
        first_EC, value_E = vector_CC[:, ::-1][:, :rank].T, value_C[::-1][:rank]
        known_E = value_E > jnp.maximum(FLAT_PROGRESS * value_E[0], rounding)
        length_E = jnp.where(known_E, jnp.sqrt(jnp.abs(value_E)), jnp.inf)
        frame_ED = product(first_EC, near_CD) / length_E[:, None]
        variance_E = (frame_ED * product(frame_ED, covariance_DD)).sum(axis=1)
        share_E = variance_E / jnp.trace(covariance_DD)
        inside_E = jnp.square(product(frame_ED, gradient_D))
        return jnp.cumsum(inside_E), jnp.cumsum(share_E), known_E

    return Local(*jax.lax.map(read_point, (nearest_PC, jnp.asarray(gradient_PD))))


def _check_room(frame_DE: Array, frames: int) -> None:
    width, rank = frame_DE.shape
    if frames * rank > width:
        raise ValueError(
            f"{frames} frames of rank {rank} need {frames * rank} dimensions, and the width is {width}; lower the rank"
        )


def _outside(frame_DE: Array, x_DX: Array) -> Array:
    """Subtract from the columns their part in the frame; twice, since float32 leaves some of it."""
    for _ in range(2):
        x_DX = x_DX - product(frame_DE, product(frame_DE.T, x_DX))
    return x_DX
