"""Family alignment: layers compared by distances (RSA) and by the best rotation (Procrustes)."""

import jax.numpy as jnp

from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.quantity import (
    COSINE,
    LAYERS,
    MEASURED,
    SHARE,
    Family,
    Values,
    jackknifed,
)
from anisoscope.measurement.resampling import Clouds
from anisoscope.metrics.alignment import Alignment, layers_alignment
from anisoscope.metrics.comparison import prepare_clouds

QUANTITIES = {
    "rsa_layers": jackknifed(
        dims=LAYERS,
        range=COSINE,
        long_name="representational similarity of two layers",
        formula="Pearson's correlation of |x_i - x_j|^2 and |y_i - y_j|^2 over all pairs of points",
        source="Kriegeskorte et al. 2008; distances and correlation as rsatoolbox's euclidean and corr",
    ),
    "procrustes_layers": jackknifed(
        dims=LAYERS,
        range=SHARE,
        long_name="orthogonal Procrustes similarity of two layers",
        formula="max over rotations Q of <X Q, Y> / (|X|_F |Y|_F) = |X^T Y|_* / (|X|_F |Y|_F), centered",
        source="Schoenemann 1966; Williams et al. 2021, Generalized shape metrics",
    ),
}


def compute(clouds: Clouds) -> dict[str, Values]:
    """Measure pairs of layers, (layer, other layer, R).

    The null model has clouds of other windows.
    """
    own = prepare_clouds(clouds.points_NPD, clouds.folds)

    def named(alignment: Alignment) -> Values:
        return {
            f"{name}_layers": jnp.moveaxis(value, 0, -1)
            for name, value in alignment._asdict().items()
        }

    by_cloud = {MEASURED: named(layers_alignment(own, clouds.folds))}
    if clouds.permuted is not None:
        null_N = prepare_clouds(clouds.permuted(jnp.array(0)), clouds.folds)
        by_cloud[PERMUTED] = named(layers_alignment(null_N, clouds.folds, own))
    return by_cloud


FAMILY = Family(input_kind="layers", compute=compute, quantities=QUANTITIES, nulls=(PERMUTED,))
