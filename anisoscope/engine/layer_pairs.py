"""Compare every layer of one model with every layer of another, on the same points.

Letter: M layers of another model.
"""

import functools

import jax
from jax import Array

from anisoscope.metrics.alignment import ALIGNED, align_prepared
from anisoscope.metrics.comparison import (
    SIMILARITIES,
    Prepared,
    compare_pair,
    name_pair,
    prepare_comparison,
)
from anisoscope.metrics.quantity import LAYERS, MEASURED, PERMUTED, Values
from anisoscope.metrics.resampling import Labels, map_samples

BETWEEN_MODELS = {
    kind: name_pair(quantity, LAYERS, "of layers of two models")
    for kind, quantity in (SIMILARITIES | ALIGNED).items()
}


@functools.partial(jax.jit, static_argnames=("aligned",))
@jax.default_matmul_precision("highest")
def compare_every_layer(
    first_NPD: Array,
    second_MPE: Array,
    permuted_NPD: Array | None,
    labels: Labels,
    aligned: bool = False,
) -> dict[str, Values]:
    """Compare every layer of one model with every layer of another, on the same points.

    Args:
        first_NPD: Clouds of the first model.
        second_MPE: Clouds of the second model.
        permuted_NPD: The null model: clouds of the first model with its points in another order;
            None for none.
        labels: Which points count, and which are resampled together.
        aligned: Compute the kinds of ALIGNED too, with a decomposition for each pair of layers.

    Returns:
        {"measured" or "permuted": {kind: (layer, other layer, R)}}.
    """
    second_M = jax.lax.map(lambda cloud_PD: prepare_comparison(cloud_PD, labels), second_MPE)

    def compare_layer(first_PD: Array) -> Values:
        first = prepare_comparison(first_PD, labels)

        def compare(second: Prepared) -> Values:
            values = compare_pair(first, second, labels)
            if aligned:
                found = align_prepared(first.ready, second.ready, labels.keep_RP)
                values |= dict(zip(ALIGNED, found, strict=True))
            return values

        return jax.lax.map(compare, second_M)

    samples = {MEASURED: first_NPD}
    samples |= {} if permuted_NPD is None else {PERMUTED: permuted_NPD}
    return map_samples(lambda clouds_NPD: jax.lax.map(compare_layer, clouds_NPD), samples)
