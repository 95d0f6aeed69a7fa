"""Families alignment, imbalance and linearity: each layer compared with others.

Their null model compares a layer with other windows of the other one. S are parts: the
whole, or sections; G are groupings by them.
"""

import functools
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.families.comparison_family import (
    ALIGNMENT,
    NEIGHBORS,
    search_nearest,
)
from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.quantity import (
    AT_MOST_1,
    LAYERS,
    MEASURED,
    Family,
    Quantity,
    Values,
    share,
)
from anisoscope.measurement.resampling import (
    LayerClouds,
    Searched,
    map_samples,
)
from anisoscope.metrics import cloud_pairs
from anisoscope.metrics.comparison import map_pairs, prepare_clouds

LINEAR_SOURCE = (
    "Razzhigaev et al. 2024, Your Transformer is Secretly Linear; LLM-Microscope, arXiv 2502.15007; "
    f"without the directions of X below {cloud_pairs.LEAST_DIRECTION:g} of its largest, columns of one "
    "size: this project"
)
LEFT = "(P - 1) / (P - 1 - r), r the rank of the layer before: 0 on average for unrelated points"
FIT = "1 - min_A |X A - Y|_F^2, X the layer before and Y"
NORMED = "both centered and of norm 1; none for layer 0"

IMBALANCE = {
    "information_imbalance_layers": Quantity(
        "information imbalance from a layer to another",
        "2/n times the mean rank in `other_layer` of the nearest in `layer`, among the n distinct "
        "points; 1 for unrelated layers, near 0 where nearness in `layer` predicts nearness in "
        "`other_layer`",
        "Glielmo et al. 2022, where copies are neighbors too: for layers with copies theirs is "
        "lower; between layers: arXiv 2405.15471",
        range=(0.0, 2.0),
        dims=LAYERS,
        resampling="sections",
    )
}
LINEARITY = {
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
LINEARITY = {name: replace(entry, from_layer_1=True) for name, entry in LINEARITY.items()}


def measure_alignment(clouds: LayerClouds) -> dict[str, Values]:
    """Measure pairs of layers, (layer, other layer, R)."""
    keep_RP, samples = clouds.labels.keep_RP, {MEASURED: clouds.points_NPD} | clouds.nulls
    prepared = map_samples(lambda x_NPD: prepare_clouds(x_NPD, keep_RP), samples)
    align = functools.partial(cloud_pairs.align_prepared, keep_RP=keep_RP)
    found = map_samples(lambda x_N: map_pairs(align, x_N, prepared[MEASURED]), prepared)
    return {name: dict(zip(ALIGNMENT, values, strict=True)) for name, values in found.items()}


def measure_imbalance(clouds: LayerClouds) -> dict[str, Values]:
    """Measure pairs of layers, (layer, other layer, R).

    The null model has the neighbors of other windows.
    """
    labels = clouds.labels
    part_SP = jnp.asarray(labels.part_SP)

    def measure(nearest_N: Searched) -> Values:
        def rank(number: int, parts: Array) -> Array:
            nearest = jax.tree.map(lambda x_NG: x_NG[:, number], nearest_N)
            return cloud_pairs.layers_imbalance(nearest, clouds.points_NPD, parts)

        values = [rank(0, part_SP[:1])]
        if len(part_SP) > 1:
            values.append(rank(1, part_SP[1:]))
        return dict.fromkeys(IMBALANCE, jnp.concatenate(values, axis=-1))

    def find_neighbors(x_NPD: Array) -> Searched:
        return jax.lax.map(lambda cloud_PD: search_nearest(cloud_PD, labels), x_NPD)

    return map_samples(
        measure, {MEASURED: clouds.nearest_N} | map_samples(find_neighbors, clouds.nulls)
    )


def measure_linearity(clouds: LayerClouds) -> dict[str, Values]:
    """Measure each layer, (layer, R); the null model takes the previous layer of other windows."""
    clouds_NPD = clouds.points_NPD
    keep_RP = jnp.asarray(clouds.labels.keep_RP)

    def measure_layer(layer: tuple[Array, Array, Array]) -> Values:
        by_PD, before_PD, layer_PD = layer
        basis, values = cloud_pairs.column_basis(by_PD, keep_RP[0] > 0), {}
        for name, y_PD in (("linearity", layer_PD), ("linearity_update", layer_PD - before_PD)):
            fit = cloud_pairs.explain_variance(basis, y_PD, keep_RP)
            values |= {name: fit.score, f"{name}_adjusted": fit.adjusted}
        return values

    def measure_layers(by_NPD: Array) -> Values:
        scores = jax.lax.map(measure_layer, (by_NPD[:-1], clouds_NPD[:-1], clouds_NPD[1:]))
        return {
            name: jnp.pad(value, ((1, 0), (0, 0)), constant_values=jnp.nan)
            for name, value in scores.items()
        }

    return map_samples(measure_layers, {MEASURED: clouds_NPD} | clouds.nulls)


FAMILIES = {
    "alignment": Family(measure_alignment, ALIGNMENT, (PERMUTED,)),
    "imbalance": Family(measure_imbalance, IMBALANCE, (PERMUTED,), neighbors=NEIGHBORS),
    "linearity": Family(measure_linearity, LINEARITY, (PERMUTED,)),
}
