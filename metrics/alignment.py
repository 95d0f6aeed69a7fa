"""Family alignment: layers compared by their distances, and by the best rotation."""

import functools
from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import AnyArray, Points, Scalar, product
from anisoscope.metrics.comparison import (
    PreparedCloud,
    cross_energy,
    map_pairs,
    name_pair,
    prepare_cloud,
    prepare_clouds,
)
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.public_metric import public_metric
from anisoscope.metrics.quantity import (
    LAYERS,
    MEASURED,
    PERMUTED,
    Family,
    Values,
    correlation,
    share,
)
from anisoscope.metrics.resampling import LayerClouds, map_samples

# share of the squared mean of squared distances: less variance counts as none
LEAST_VARIANCE = 2e-6


class Alignment(NamedTuple):
    rsa: Float[Array, "..."]
    procrustes: Float[Array, "..."]


def alignments(
    x_PD: Points, y_PE: Float[AnyArray, "P E"], keep_RP: Float[AnyArray, "R P"] | None = None
) -> Alignment:
    """Representational similarity (rsa) and orthogonal Procrustes similarity of two clouds.

    rsa: Pearson's correlation over all pairs of |x_i - x_j|^2 and |y_i - y_j|^2, in [-1, 1]. With
    n_i = |x_i|^2 and m_i = |y_i|^2 about the means, S and T their sums, the products of both
    distances add up to 2 P sum n_i m_i + 2 S T + 4 |X'Y|_F^2 over ordered pairs. procrustes:
    |X'Y|_* / (|X|_F |Y|_F), in [0, 1]. R values, by weights 1 or 0 of the points (None: all): for
    all that count, then without each fold; procrustes keeps the rotation of the whole. NaN if all
    points of a cloud are equal, or not finite; of rsa also if all distances are equal.
    """
    keep_RP = jnp.ones((1, len(x_PD))) if keep_RP is None else jnp.asarray(keep_RP)
    return align_prepared(prepare_cloud(x_PD, keep_RP), prepare_cloud(y_PE, keep_RP), keep_RP)


@public_metric()
def rsa(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Correlation, over all pairs of points, of their squared distances in x and in y.

    A correlation in [-1, 1], 1 up to rotation, scale and shift; about 0 for independent clouds. NaN
    where all points, or all distances, of x or of y are equal. Source: Kriegeskorte et al. 2008;
    distances and correlation as in rsatoolbox (euclidean, corr).
    """
    return alignments(x, y).rsa[0]


@public_metric()
def procrustes(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Cosine of x and y after the best rotation: |X^T Y|_* / (|X|_F |Y|_F), X and Y centered.

    A number in [0, 1], 1 up to rotation, scale and shift; far above 0 for independent clouds unless
    points far outnumber widths. NaN where all points of x or of y are equal. Source: Schoenemann
    1966; as a similarity in Williams et al. 2021.
    """
    return alignments(x, y).procrustes[0]


def align_prepared(
    x: PreparedCloud, y: PreparedCloud, keep_RP: Float[AnyArray, "R P"]
) -> Alignment:
    """Compute `alignments` of two clouds that are prepared with the same weights."""
    count_R = keep_RP.sum(axis=1)
    (mean_x_RD, square_x_RP), (mean_y_RE, square_y_RP) = (
        _about_mean(z.x_PD, keep_RP) for z in (x, y)
    )
    sum_x_R, sum_y_R = square_x_RP.sum(axis=1), square_y_RP.sum(axis=1)

    def covariance(n_RP: Array, m_RP: Array, product_R: Array) -> Array:
        """Compute the covariance of two distances, times the number of ordered pairs."""
        sum_n_R, sum_m_R = n_RP.sum(axis=1), m_RP.sum(axis=1)
        mean_R = 4 * count_R * sum_n_R * sum_m_R / (count_R - 1)  # the product of both means
        return (
            2 * count_R * (n_RP * m_RP).sum(axis=1) + 2 * sum_n_R * sum_m_R + 4 * product_R - mean_R
        )

    shared_R = covariance(square_x_RP, square_y_RP, cross_energy(x.x_PD, y.x_PD, keep_RP)[0])
    self_x_R, self_y_R = (
        covariance(n, n, z.energy_2R[0]) for n, z in ((square_x_RP, x), (square_y_RP, y))
    )
    # where distances are equal, only rounding varies
    least_x_R, least_y_R = (
        LEAST_VARIANCE * 4 * count_R * jnp.square(sum_R) / (count_R - 1)
        for sum_R in (sum_x_R, sum_y_R)
    )
    known_R = (self_x_R > least_x_R) & (self_y_R > least_y_R) & (count_R > 2)
    rsa_R = jnp.clip(shared_R / jnp.sqrt(self_x_R * self_y_R), -1.0, 1.0)
    rsa_R = jnp.where(known_R, rsa_R, jnp.nan)

    product_DE = product(x.x_PD.T, y.x_PD)
    finite = jnp.isfinite(product_DE).all()
    left_DE, _, right_EE = jnp.linalg.svd(jnp.where(finite, product_DE, 0.0), full_matrices=False)
    rotation_DE = jnp.where(finite, product(left_DE, right_EE), jnp.nan)
    rotated_P = (product(x.x_PD, rotation_DE) * y.x_PD).sum(axis=1)
    mean_product_R = (product(mean_x_RD, rotation_DE) * mean_y_RE).sum(axis=1)
    nuclear_R = product(keep_RP, rotated_P) - count_R * mean_product_R
    procrustes_R = jnp.clip(nuclear_R / jnp.sqrt(sum_x_R * sum_y_R), -1.0, 1.0)
    return Alignment(rsa_R, procrustes_R)


def _about_mean(x_PD: Float[Array, "P D"], keep_RP: Float[Array, "R P"]) -> tuple[Array, Array]:
    """Compute the mean of the kept points and their squared distances from it; 0 for the others."""
    mean_RD = product(keep_RP, x_PD) / keep_RP.sum(axis=1)[:, None]
    square_P, square_R = jnp.square(x_PD).sum(axis=1), jnp.square(mean_RD).sum(axis=1)
    return mean_RD, keep_RP * (square_P[None] - 2 * product(mean_RD, x_PD.T) + square_R[:, None])


ALIGNED = {
    "rsa": correlation(
        "representational similarity",
        "Pearson's correlation of |x_i - x_j|^2 and |y_i - y_j|^2 over all pairs of points",
        "Kriegeskorte et al. 2008; distances and correlation as in rsatoolbox (euclidean, corr)",
    ),
    "procrustes": share(
        "orthogonal Procrustes similarity",
        "max over rotations Q of <X Q, Y> / (|X|_F |Y|_F) = |X^T Y|_* / (|X|_F |Y|_F), centered",
        "Schoenemann 1966; Williams et al. 2021, Generalized shape metrics",
    ),
}
ALIGNMENT_QUANTITIES = {
    f"{kind}_layers": name_pair(quantity, LAYERS, "of two layers")
    for kind, quantity in ALIGNED.items()
}


def measure_alignment(clouds: LayerClouds) -> dict[str, Values]:
    """Measure pairs of layers, (layer, other layer, R)."""
    keep_RP, samples = clouds.labels.keep_RP, {MEASURED: clouds.points_NPD} | clouds.nulls
    prepared = map_samples(lambda x_NPD: prepare_clouds(x_NPD, keep_RP), samples)
    align = functools.partial(align_prepared, keep_RP=keep_RP)
    found = map_samples(lambda x_N: map_pairs(align, x_N, prepared[MEASURED]), prepared)
    return {
        name: dict(zip(ALIGNMENT_QUANTITIES, values, strict=True)) for name, values in found.items()
    }


ALIGNMENT = Family("layers", measure_alignment, ALIGNMENT_QUANTITIES, (PERMUTED,))
