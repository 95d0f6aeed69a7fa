"""Linearity: how much of a representation is a linear function of another of the same points."""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.metrics.cloud import AnyArray, centered, largest, product, scale_to_unit
from anisoscope.metrics.eigen import eigh

# of the largest singular value, after coordinates are scaled alike: below it is only rounding
SMALLEST = 1e-5


class Linear(NamedTuple):
    score: Float[Array, " R"]
    adjusted: Float[Array, " R"]


class Basis(NamedTuple):
    basis_PD: Float[Array, "P D"]  # zeros in place of directions that the cloud does not have
    rank: Float[Array, ""]


def linearity(
    x_PD: Float[AnyArray, "P D"],
    y_PE: Float[AnyArray, "P E"],
    keep_RP: Float[AnyArray, "R P"] | None = None,
) -> Linear:
    """Share of the variance of y that the best linear map of x explains: 1 - min_A |X~ A - Y~|_F^2.

    X~ and Y~ are centered and divided by their Frobenius norms: the score is R^2 = |U'Y|^2 / |Y|^2,
    U an orthonormal basis of the columns of X. With x of rank r, unrelated points score r / (P - 1)
    on average: `adjusted` is 1 - (1 - R^2) (P - 1) / (P - 1 - r), 0 for these. Shapes: P points of
    widths D and E, weights 1 or 0 of R choices of the points (None: all) -> R values each, with the
    map of all points, right to first order. Range: score [0, 1]; adjusted up to 1. r + 1 points or
    fewer: adjusted NaN. All points equal, or a coordinate that is not finite: NaN. Source:
    Razzhigaev et al. 2024, Your Transformer is Secretly Linear; the adjustment is Ezekiel's of
    1930. The published code keeps directions below SMALLEST of the largest, which are rounding, and
    scores what chance gives so many.
    """
    return explain_variance(basis(x_PD), y_PE, keep_RP)


def basis(x_PD: Float[AnyArray, "P D"]) -> Basis:
    """Orthonormal basis of the columns of the centered cloud."""
    x_PD = scale_to_unit(centered(x_PD))
    size_D = jnp.linalg.norm(x_PD, axis=0)
    x_PD = x_PD / jnp.where(size_D == 0, 1.0, size_D)[None]
    # the small ones of the first are not orthogonal: the squares of X'X have lost their digits
    for _ in range(2):
        x_PD = product(x_PD, eigh(product(x_PD.T, x_PD))[1])
        size_D = jnp.linalg.norm(x_PD, axis=0)
        kept_D = size_D > SMALLEST * largest(size_D)
        x_PD = jnp.where(kept_D[None], x_PD / jnp.where(kept_D, size_D, 1.0)[None], 0.0 * x_PD)
    return Basis(x_PD, kept_D.sum() + 0.0 * x_PD[0, 0])


def explain_variance(
    basis: Basis, y_PE: Float[AnyArray, "P E"], keep_RP: Float[AnyArray, "R P"] | None = None
) -> Linear:
    """`linearity` of a y in the cloud of this basis, which several y share."""
    y_PE = scale_to_unit(centered(y_PE))
    keep_RP = jnp.ones((1, len(y_PE))) if keep_RP is None else keep_RP
    fit_PE = product(basis.basis_PD, product(basis.basis_PD.T, y_PE))
    count_R = keep_RP.sum(axis=1)
    error_R = product(keep_RP, jnp.square(y_PE - fit_PE).sum(axis=1))
    shift_RE = product(keep_RP, y_PE)
    total_R = (
        product(keep_RP, jnp.square(y_PE).sum(axis=1)) - jnp.square(shift_RE).sum(axis=1) / count_R
    )
    score_R = jnp.where(basis.rank > 0, jnp.maximum(1.0 - error_R / total_R, 0.0), jnp.nan)
    free_R = count_R - 1 - basis.rank
    adjusted_R = 1.0 - (1.0 - score_R) * (count_R - 1) / jnp.where(free_R > 0, free_R, jnp.nan)
    return Linear(score_R, adjusted_R)
