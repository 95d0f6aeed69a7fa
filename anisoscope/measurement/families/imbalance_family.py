"""Family imbalance: how well nearest neighbors in a layer predict those in another. S are sections."""

import jax
import jax.numpy as jnp

from anisoscope.measurement.families.comparison_family import NEIGHBORS, search_nearest
from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.quantity import LAYERS, MEASURED, Family, Quantity, Values
from anisoscope.measurement.resampling import Clouds, Searched, sections
from anisoscope.metrics.imbalance import layers_imbalance

QUANTITIES = {
    "information_imbalance_layers": Quantity(
        dims=LAYERS,
        range=(0.0, 2.0),
        resampling="sections",
        long_name="information imbalance from a layer to another",
        formula="2/n times the mean rank in `other_layer` of the nearest in `layer`, among the n distinct points; "
        "1 where they know nothing of one another, near 0 where nearness in `layer` tells that in `other_layer`",
        source="Glielmo et al. 2022, where copies are neighbors too: of layers with copies theirs is lower; between "
        "layers: arXiv 2405.15471",
    )
}


def compute(clouds: Clouds) -> dict[str, Values]:
    """Measure pairs of layers, (layer, other layer, R).

    The null model has the neighbors of other windows.
    """

    def measure(nearest_N: Searched) -> Values:
        values = layers_imbalance(nearest_N.whole, clouds.points_NPD)[..., None]
        if nearest_N.parts is not None:
            parts = jax.tree.map(lambda x: jnp.swapaxes(x, 0, 1), nearest_N.parts)
            sections_NSPD = jax.vmap(lambda cloud_PD: sections(cloud_PD, parts))(clouds.points_NPD)
            resampled = jax.lax.map(
                lambda section: layers_imbalance(*section),
                (parts, jnp.swapaxes(sections_NSPD, 0, 1)),
            )
            values = jnp.concatenate([values, jnp.moveaxis(resampled, 0, -1)], axis=-1)
        return dict.fromkeys(QUANTITIES, values)

    by_cloud = {MEASURED: measure(clouds.nearest_N)}
    if clouds.permuted is not None:
        null_NPD = clouds.permuted(jnp.array(0))
        by_cloud[PERMUTED] = measure(
            clouds.over(lambda cloud_PD: search_nearest(cloud_PD, clouds.folds), null_NPD)
        )
    return by_cloud


FAMILY = Family(
    input_kind="layers",
    compute=compute,
    quantities=QUANTITIES,
    nulls=(PERMUTED,),
    neighbors=NEIGHBORS,
)
