"""Family linearity: how much of a layer is a linear function of the previous layer.

The same is measured of a block's update, the difference of both layers.
"""

import math

import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.quantity import MEASURED, SHARE, Family, Values, jackknifed
from anisoscope.measurement.resampling import Clouds, leave_out
from anisoscope.metrics import linearity

LINEAR = (
    "Razzhigaev et al. 2024, Your Transformer is Secretly Linear; LLM-Microscope, arXiv 2502.15007; without the "
    f"directions of X below {linearity.SMALLEST:g} of its largest, columns of one size: this project"
)
ADJUSTED = "1 - (1 - {}) (P - 1) / (P - 1 - r), r the rank of the layer before: 0 on average of unrelated points"
AT_MOST_1 = (-math.inf, 1.0)


FIT = "1 - min_A |X A - Y|_F^2, X the layer before and Y {}, both centered and of norm 1; none of layer 0"
QUANTITIES = {
    "linearity": jackknifed(
        "linearity of a layer in the one before", FIT.format("the layer"), LINEAR, range=SHARE
    ),
    "linearity_adjusted": jackknifed(
        "linearity of a layer, less what chance gives",
        ADJUSTED.format("linearity"),
        f"{LINEAR}; Ezekiel 1930",
        range=AT_MOST_1,
    ),
    "linearity_update": jackknifed(
        "linearity of what a block adds",
        FIT.format("the layer less the one before"),
        LINEAR,
        range=SHARE,
    ),
    "linearity_update_adjusted": jackknifed(
        "linearity of what a block adds, less what chance gives",
        ADJUSTED.format("linearity_update"),
        f"{LINEAR}; Ezekiel 1930",
        range=AT_MOST_1,
    ),
}


def compute(clouds: Clouds) -> dict[str, Values]:
    """Measure each layer, (layer, R); the null model takes the previous layer of other windows."""
    clouds_NPD, permuted = clouds.points_NPD, clouds.permuted
    keep_RP = leave_out(clouds.folds, clouds_NPD.shape[1])

    def measure_layer(layer: tuple[Array, Array, Array]) -> Values:
        by_PD, before_PD, layer_PD = layer
        basis, values = linearity.basis(by_PD), {}
        for name, y_PD in (("linearity", layer_PD), ("linearity_update", layer_PD - before_PD)):
            fit = linearity.explain_variance(basis, y_PD, keep_RP)
            values |= {name: fit.score, f"{name}_adjusted": fit.adjusted}
        return values

    def measure_layers(by_NPD: Array) -> Values:
        scores = clouds.over(measure_layer, (by_NPD[:-1], clouds_NPD[:-1], clouds_NPD[1:]))
        return {
            name: jnp.pad(value, ((1, 0), (0, 0)), constant_values=jnp.nan)
            for name, value in scores.items()
        }

    by_cloud = {MEASURED: measure_layers(clouds_NPD)}
    return (
        by_cloud
        if permuted is None
        else by_cloud | {PERMUTED: measure_layers(permuted(jnp.array(0)))}
    )


FAMILY = Family(input_kind="layers", compute=compute, quantities=QUANTITIES, nulls=(PERMUTED,))
