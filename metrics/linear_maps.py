"""Family linearity: how well the layer before, mapped linearly, predicts a layer."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from anisoscope.metrics.cloud import (
    AnyArray,
    Points,
    Scalar,
    centered,
    largest,
    nan_unless,
    product,
    scale_to_unit,
)
from anisoscope.metrics.convert import ArrayLike
from anisoscope.metrics.eigen import eigh
from anisoscope.metrics.public_metric import public_metric
from anisoscope.metrics.quantity import (
    AT_MOST_1,
    MEASURED,
    PERMUTED,
    Family,
    Quantity,
    Values,
    share,
)
from anisoscope.metrics.resampling import LayerClouds, map_samples

# singular values below this share of the largest, with coordinates scaled alike, are rounding
LEAST_DIRECTION = 1e-5


class Linear(NamedTuple):
    score: Float[Array, " R"]
    adjusted: Float[Array, " R"]


class Basis(NamedTuple):
    basis_PD: Float[Array, "P D"]  # zeros in place of directions that the cloud does not have
    rank: Scalar


def linear_fit(
    x_PD: Points, y_PE: Float[AnyArray, "P E"], keep_RP: Float[AnyArray, "R P"] | None = None
) -> Linear:
    """Share of the variance of y that the best linear map of x explains: 1 - min_A |X~ A - Y~|_F^2.

    X~ and Y~ are centered and of norm 1: the score is R^2 = |U'Y|^2 / |Y|^2, U an orthonormal basis
    of the columns of X. Unrelated points score r / (P - 1) on average, r the rank of x: `adjusted`
    is 1 - (1 - R^2) (P - 1) / (P - 1 - r). Both have R values, by weights 1 or 0 of points (None:
    all), with the map of all points. Range: score [0, 1]; adjusted up to 1, NaN for r + 1 points or
    fewer. NaN if all points are equal, or not finite.
    """
    valid_P = None if keep_RP is None else keep_RP[0] > 0
    return explain_variance(column_basis(x_PD, valid_P), y_PE, keep_RP)


@public_metric()
def linearity(x: ArrayLike, y: ArrayLike) -> Scalar:
    """Share of the variance of y that the best linear map of x explains, 1 - |X~ A - Y~|_F^2.

    A share in [0, 1]; for unrelated clouds about rank(x) / (points - 1). NaN where all points of
    x or of y are equal. Source: Razzhigaev et al. 2024, Your Transformer is Secretly Linear.
    """
    return linear_fit(x, y).score[0]


def column_basis(x_PD: Points, valid_P: Bool[AnyArray, " P"] | None = None) -> Basis:
    """Orthonormal basis of the columns of the centered cloud."""
    x_PD = scale_to_unit(centered(x_PD, valid_P))
    size_D = jnp.linalg.norm(x_PD, axis=0)
    x_PD = x_PD / jnp.where(size_D == 0, 1.0, size_D)[None]
    # small directions of the first pass are not orthogonal: X'X has lost their digits
    for _ in range(2):
        x_PD = product(x_PD, eigh(product(x_PD.T, x_PD))[1])
        size_D = jnp.linalg.norm(x_PD, axis=0)
        kept_D = size_D > LEAST_DIRECTION * largest(size_D)
        x_PD = jnp.where(
            kept_D[None], x_PD / jnp.where(kept_D, size_D, 1.0)[None], nan_unless(x_PD, 0.0)
        )
    return Basis(x_PD, nan_unless(x_PD[0, 0], kept_D.sum()))


def explain_variance(
    basis: Basis, y_PE: Float[AnyArray, "P E"], keep_RP: Float[AnyArray, "R P"] | None = None
) -> Linear:
    """`linear_fit` of y in the cloud x that has this basis, which several y can share."""
    keep_RP = jnp.ones((1, len(y_PE))) if keep_RP is None else jnp.asarray(keep_RP)
    y_PE = scale_to_unit(centered(y_PE, keep_RP[0] > 0))
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


LINEAR_SOURCE = (
    "Razzhigaev et al. 2024, Your Transformer is Secretly Linear; LLM-Microscope, arXiv 2502.15007; "
    f"without the directions of X below {LEAST_DIRECTION:g} of its largest, columns of one "
    "size: this project"
)
LEFT = "(P - 1) / (P - 1 - r), r the rank of the layer before: 0 on average for unrelated points"
FIT = "1 - min_A |X A - Y|_F^2, X the layer before and Y"
NORMED = "both centered and of norm 1; none for layer 0"
LINEARITY_QUANTITIES = {
    "linearity": share(
        "linearity of a layer in the one before", f"{FIT} the layer, {NORMED}", LINEAR_SOURCE
    ),
    "linearity_adjusted": Quantity(
        "linearity of a layer, less what chance gives",
        f"1 - (1 - linearity) {LEFT}",
        f"{LINEAR_SOURCE}; Ezekiel 1930",
        range=AT_MOST_1,
    ),
    "linearity_update": share(
        "linearity of what a block adds",
        f"{FIT} the layer less the one before, {NORMED}",
        LINEAR_SOURCE,
    ),
    "linearity_update_adjusted": Quantity(
        "linearity of what a block adds, less what chance gives",
        f"1 - (1 - linearity_update) {LEFT}",
        f"{LINEAR_SOURCE}; Ezekiel 1930",
        range=AT_MOST_1,
    ),
}
LINEARITY_QUANTITIES = {
    name: replace(entry, from_layer_1=True) for name, entry in LINEARITY_QUANTITIES.items()
}


def measure_linearity(clouds: LayerClouds) -> dict[str, Values]:
    """Measure each layer, (layer, R); the null model takes the previous layer of other windows."""
    clouds_NPD = clouds.points_NPD
    keep_RP = jnp.asarray(clouds.labels.keep_RP)

    def measure_layer(layer: tuple[Array, Array, Array]) -> Values:
        by_PD, before_PD, layer_PD = layer
        basis, values = column_basis(by_PD, keep_RP[0] > 0), {}
        for name, y_PD in (("linearity", layer_PD), ("linearity_update", layer_PD - before_PD)):
            fit = explain_variance(basis, y_PD, keep_RP)
            values |= {name: fit.score, f"{name}_adjusted": fit.adjusted}
        return values

    def measure_layers(by_NPD: Array) -> Values:
        scores = jax.lax.map(measure_layer, (by_NPD[:-1], clouds_NPD[:-1], clouds_NPD[1:]))
        return {
            name: jnp.pad(value, ((1, 0), (0, 0)), constant_values=jnp.nan)
            for name, value in scores.items()
        }

    return map_samples(measure_layers, {MEASURED: clouds_NPD} | clouds.nulls)


LINEARITY = Family("layers", measure_linearity, LINEARITY_QUANTITIES, (PERMUTED,))
