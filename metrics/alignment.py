"""Alignment of two representations of the same points, by distances and by the best rotation."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import AnyArray, leave_out, product
from anisoscope.metrics.comparison import (
    PreparedCloud,
    energy,
    map_pairs,
    prepare_cloud,
    select_layer,
)

ROUNDING = 2e-6  # of the square of the mean squared distance: less variance is none


class Alignment(NamedTuple):
    rsa: Float[Array, "..."]
    procrustes: Float[Array, "..."]


def alignments(
    x_PD: Float[AnyArray, "P D"], y_PE: Float[AnyArray, "P E"], folds: int = 1
) -> Alignment:
    """Representational similarity (rsa) and orthogonal Procrustes similarity of two clouds.

    rsa: Pearson's correlation, over all pairs of points, of |x_i - x_j|^2 and |y_i - y_j|^2,
    without a P x P matrix: with n_i = |x_i|^2 and m_i = |y_i|^2 about the means, S and T their
    sums, the products of both distances add up to 2 P sum n_i m_i + 2 S T + 4 |X'Y|_F^2 over all
    ordered pairs. procrustes: |X'Y|_* / (|X|_F |Y|_F) = max over rotations Q of <X Q, Y> / (|X|_F
    |Y|_F), X and Y centered: 1 - d^2/2 of the distance d between clouds of norm 1.

    Shapes: P points of widths D and E -> R = 1 + folds values, or one where folds is 1: of the
    whole, then without the j-th of `folds` equal runs of points; of procrustes to first order, with
    the rotation of the whole. Range: rsa [-1, 1], procrustes [0, 1]; both 1 for clouds that differ
    by a rotation, a scale and a shift. Independent clouds have an rsa of about 0, and a procrustes
    far above 0 unless P is far above D and E. All points of a cloud equal, or a coordinate that is
    not finite: NaN; all distances equal: NaN for rsa. Source: Kriegeskorte et al. 2008, with
    rsatoolbox's squared Euclidean distances and "corr"; Schoenemann 1966, as Williams et al. 2021,
    Generalized shape metrics. The closed form is ours.
    """
    return Alignment(*_compare(prepare_cloud(x_PD, folds), prepare_cloud(y_PE, folds), folds))


def layers_alignment(
    x_N: PreparedCloud, folds: int = 1, other_N: PreparedCloud | None = None
) -> Alignment:
    """`alignments` of every pair of N clouds: symmetric, (R, N, N) each.

    The clouds are prepared by `comparison.prepare_clouds` with as many folds. With `other_N`: of
    layer n of `x_N` and layer m >= n of `other_N`, as in `comparison.layers_cka`.
    """
    y_N = x_N if other_N is None else other_N
    values_NN2R = map_pairs(
        lambda n, m: _compare(select_layer(x_N, n), select_layer(y_N, m), folds), len(x_N.energy_2R)
    )
    return Alignment(*jnp.moveaxis(values_NN2R, (2, 3), (0, 1)))


def _compare(x: PreparedCloud, y: PreparedCloud, folds: int) -> Float[Array, "2 R"]:
    keep_RP = jnp.repeat(leave_out(folds), len(x.x_PD) // folds, axis=1)
    count_R = keep_RP.sum(axis=1)
    (mean_x_RD, square_x_RP), (mean_y_RE, square_y_RP) = (
        _about_mean(z.x_PD, keep_RP) for z in (x, y)
    )
    sum_x_R, sum_y_R = square_x_RP.sum(axis=1), square_y_RP.sum(axis=1)

    def covariance(n_RP: Array, m_RP: Array, product_R: Array) -> Array:
        """Compute the covariance of two distances over ordered pairs of different points.

        The result is multiplied by the number of pairs.
        """
        sum_n_R, sum_m_R = n_RP.sum(axis=1), m_RP.sum(axis=1)
        mean_R = (
            4 * count_R * sum_n_R * sum_m_R / (count_R - 1)
        )  # of both, times the number of pairs
        return (
            2 * count_R * (n_RP * m_RP).sum(axis=1) + 2 * sum_n_R * sum_m_R + 4 * product_R - mean_R
        )

    shared_R = covariance(square_x_RP, square_y_RP, energy(x.x_PD, y.x_PD, folds)[0])
    self_x_R, self_y_R = (
        covariance(n, n, z.energy_2R[0]) for n, z in ((square_x_RP, x), (square_y_RP, y))
    )
    # equal distances leave a variance of rounding alone
    least_x_R, least_y_R = (
        ROUNDING * 4 * count_R * jnp.square(sum_R) / (count_R - 1) for sum_R in (sum_x_R, sum_y_R)
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
    return jnp.stack([rsa_R, procrustes_R])


def _about_mean(x_PD: Float[Array, "P D"], keep_RP: Float[Array, "R P"]) -> tuple[Array, Array]:
    """Compute the mean of the kept points and their squared distances from it; 0 for the others."""
    mean_RD = product(keep_RP, x_PD) / keep_RP.sum(axis=1)[:, None]
    square_P, square_R = jnp.square(x_PD).sum(axis=1), jnp.square(mean_RD).sum(axis=1)
    return mean_RD, keep_RP * (square_P[None] - 2 * product(mean_RD, x_PD.T) + square_R[:, None])
