"""Family estimators: dimensions from pair counts, spanning trees and ranks above noise."""

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.families.dimension_family import FEW, NULLS, mask_few_points
from anisoscope.measurement.quantity import NOT_NEGATIVE, Family, Quantity, Values, jackknifed
from anisoscope.measurement.resampling import Cloud, sections
from anisoscope.metrics import estimators
from anisoscope.metrics.neighbors import Neighbors
from anisoscope.metrics.spectrum import spectrum

NOISE = "s^2 the noise whose Marchenko-Pastur median the median eigenvalue is; NaN of fewer points than dimensions"


QUANTITIES = {
    "correlation_dimension": Quantity(
        "correlation dimension",
        f"ln(C(r2)/C(r1)) / ln(r2/r1), C(r) the share of pairs nearer than r, r1 and r2 the medians of the distances "
        f"to the {estimators.NEAR}th and {estimators.FAR}th neighbor{FEW}",
        "Grassberger and Procaccia 1983, radii as scikit-dimension's CorrInt",
        range=NOT_NEGATIVE,
        resampling="sections",
    ),
    "ph_dimension": Quantity(
        "dimension of the minimum spanning tree",
        f"1/(1 - s), s the slope of ln of the tree's length on ln n, n = P/8, P/4, P/2, P distinct points{FEW}",
        "Steele 1988; Schweinhart 2020; sizes and fit: this project",
        range=NOT_NEGATIVE,
        resampling="sections",
    ),
    "marchenko_pastur_rank": jackknifed(
        "principal directions above the Marchenko-Pastur edge",
        f"number of eigenvalues above s^2 (1 + sqrt(D/P))^2, {NOISE}",
        "Marchenko and Pastur 1967",
        range=NOT_NEGATIVE,
    ),
    "gavish_donoho_rank": jackknifed(
        "principal directions above Gavish and Donoho's threshold",
        f"number of singular values above the optimal hard threshold of unknown noise, {NOISE}",
        "Gavish and Donoho 2014",
        range=NOT_NEGATIVE,
    ),
}


def compute(cloud: Cloud) -> Values:
    """Measure a cloud, (R,).

    Ranks without a fold are those of the eigenvalues without it, to first order.
    """

    def read(cloud_PD: Array, neighbors: Neighbors) -> Values:
        return {
            "correlation_dimension": estimators.correlation_dimension(cloud_PD, neighbors),
            "ph_dimension": estimators.ph_dimension(cloud_PD),
        }

    values = {
        name: value[None] for name, value in read(cloud.points_PD, cloud.searched.whole).items()
    }
    if cloud.searched.parts is not None:
        arrays = sections(cloud.points_PD, cloud.searched.parts), cloud.searched.parts
        parts = jax.lax.map(lambda part: read(*part), arrays)
        values = {name: jnp.concatenate([value, parts[name]]) for name, value in values.items()}
    values = mask_few_points(values, cloud.searched.whole)
    points, width = cloud.points_PD.shape
    if points < width:
        return values | dict.fromkeys(RANKS, jnp.full(1 + cloud.folds * (cloud.folds > 1), jnp.nan))
    eigenvalues_RE = spectrum(cloud.points_PD, cloud.folds).eigenvalues_E
    return values | {
        name: jax.vmap(lambda value_E, rank=rank: rank(value_E, points))(eigenvalues_RE)
        for name, rank in RANKS.items()
    }


RANKS = {
    "marchenko_pastur_rank": estimators.marchenko_pastur_rank,
    "gavish_donoho_rank": estimators.gavish_donoho_rank,
}
FAMILY = Family(
    input_kind="cloud",
    compute=compute,
    quantities=QUANTITIES,
    nulls=NULLS,
    neighbors=estimators.FAR,
    distances=3,
)
