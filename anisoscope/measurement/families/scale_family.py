"""Family scale: the intrinsic dimension as a function of distance."""

from anisoscope.measurement.families.dimension_family import FACCO, FEW, NULLS, mask_few_points
from anisoscope.measurement.quantity import NOT_NEGATIVE, Family, Quantity, Values
from anisoscope.measurement.resampling import Cloud, over_sections
from anisoscope.metrics import scale

QUANTITIES = {
    "gride": Quantity(
        read=scale.gride_curve,
        dims=("layer", "neighbors"),
        resampling="sections",
        long_name="intrinsic dimension (GRIDE)",
        formula=f"maximum likelihood from r_2k/r_k, k = `neighbors`{FEW}",
        source="Denti et al. 2022, The generalized ratios intrinsic dimension estimator",
        range=NOT_NEGATIVE,
    ),
    "decimation": Quantity(
        dims=("layer", "factor"),
        long_name="intrinsic dimension of a thinned cloud",
        formula=f"twonn of every f-th point, mean over the f disjoint subsets, f = `factor`{FEW}",
        source=f"{FACCO}, where subsets are drawn at random; by order neighbors of one cluster are thinned evenly",
        range=NOT_NEGATIVE,
    ),
    "levina_bickel": Quantity(
        read=scale.levina_bickel,
        resampling="sections",
        long_name="intrinsic dimension (Levina-Bickel, 20 neighbors)",
        formula=f"inverse of the mean over points of the mean over j < 20 of ln(r_20/r_j){FEW}",
        source="Levina and Bickel 2004, averaged as MacKay and Ghahramani 2005",
        range=NOT_NEGATIVE,
    ),
    "local_dimension": Quantity(
        read=scale.local_quantiles,
        dims=("layer", "quantile"),
        resampling="sections",
        long_name="local dimension (20 neighbors), quantile over points",
        formula="quantile over distinct points of (20 - 2) / sum_{j < 20} ln(r_20/r_j), interpolated in 1/d"
        + FEW,
        source="Levina and Bickel 2004",
        range=NOT_NEGATIVE,
    ),
}
RESAMPLED = {name: quantity.read for name, quantity in QUANTITIES.items() if quantity.read}


def compute(cloud: Cloud) -> Values:
    """Measure a cloud, (R,), with its scales before the replicates."""
    values = over_sections(
        lambda neighbors: {name: read(neighbors) for name, read in RESAMPLED.items()},
        cloud.searched,
    )
    values["decimation"] = scale.decimation(cloud.points_PD, cloud.searched.whole)
    return mask_few_points(values, cloud.searched.whole)


FAMILY = Family(
    input_kind="cloud",
    compute=compute,
    quantities=QUANTITIES,
    nulls=NULLS,
    neighbors=2 * scale.SCALES[-1],
    coordinates={"neighbors": scale.SCALES, "factor": scale.FACTORS, "quantile": scale.QUANTILES},
)
