"""Families dimension, scale and estimators: the intrinsic dimension of a cloud, and ranks above noise.

All are NaN where too few points are distinct, but for the published rule of LLM-Microscope.
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.families.leading_family import remaining, without_longest
from anisoscope.measurement.quantity import (
    HERE,
    NOT_NEGATIVE,
    SHAPE_OF_LEARNING,
    Family,
    Quantity,
    Values,
    jackknifed,
)
from anisoscope.measurement.resampling import (
    Cloud,
    Searched,
    over_neighborhoods,
    over_sections,
    sections,
)
from anisoscope.metrics import dimension, estimators, scale
from anisoscope.metrics.neighbors import Neighbors
from anisoscope.metrics.spectrum import spectrum
from anisoscope.metrics.subclouds import SPARE, neighbors_among

FACCO = "Facco et al. 2017"
NULLS = ("gaussian", "shuffled", "untrained")
FEW = f"; NaN below {dimension.LEAST} distinct points, or half of a cloud of fewer than {2 * dimension.LEAST}"
PUBLISHED = "twonn_microscope"  # as its authors compute it, of any number of points
NOISE = "s^2 the noise whose Marchenko-Pastur median the median eigenvalue is; NaN of fewer points than dimensions"

_dimension = functools.partial(Quantity, resampling="sections", range=NOT_NEGATIVE)
_count = functools.partial(Quantity, units="points", range=NOT_NEGATIVE)
_rank = functools.partial(jackknifed, range=NOT_NEGATIVE)

DIMENSION = {
    "twonn": _dimension(
        "intrinsic dimension (TwoNN, 90 % fit)",
        f"slope through the origin of -ln(1 - i/n) on ln(r2/r1), smallest 90 % of the n distinct points{FEW}",
        FACCO,
        dimension.twonn,
    ),
    "twonn_mle": _dimension(
        "intrinsic dimension (TwoNN, maximum likelihood)",
        f"(n - 1) / sum ln(r2/r1) over the n distinct points{FEW}",
        f"{FACCO}, in DADApy's unbiased form",
        dimension.twonn_mle,
    ),
    "twonn_bayes": _dimension(
        "intrinsic dimension (TwoNN, posterior mean)",
        f"(2 + n) / (5 + sum ln(r2/r1)), prior Gamma(2, 5){FEW}",
        f"{FACCO}, with DADApy's prior",
        lambda neighbors: dimension.twonn_bayes(neighbors).mean,
    ),
    "twonn_bayes_std": _dimension(
        "intrinsic dimension (TwoNN, posterior deviation)",
        f"sqrt(2 + n) / (5 + sum ln(r2/r1)); takes the ratios for independent, which they are not{FEW}",
        f"{FACCO}, with DADApy's prior",
        lambda neighbors: dimension.twonn_bayes(neighbors).std,
    ),
    PUBLISHED: _dimension(
        "intrinsic dimension (LLM-Microscope's 20 % rule)",
        "slope through the origin of -ln(1 - (u+j)/(n+u)) on ln(r2/r1), smallest 20 %, u dropped points counted in F",
        SHAPE_OF_LEARNING,
        lambda neighbors: dimension.twonn_microscope(neighbors).dimension,
    ),
    "duplicate_points": _count(
        "copies of an earlier point",
        "points equal to an earlier one, or but for rounding (chains of distances below 2e-6 |x|); left out of every "
        "dimension but LLM-Microscope's",
        HERE,
        Neighbors.duplicates,
    ),
    "twonn_dropped": _count(
        "distinct points without a ratio",
        "distinct points without two finite neighbors; left out of all but LLM-Microscope's",
        HERE,
        Neighbors.dropped,
    ),
    "microscope_useless": _count(
        "useless points (LLM-Microscope)",
        "r1 < 1e-8 mean|x - E x|, copies being neighbors",
        SHAPE_OF_LEARNING,
        lambda neighbors: dimension.twonn_microscope(neighbors).useless,
    ),
    "microscope_dropped": _count(
        "dropped points (LLM-Microscope)",
        "useless points and those with r2/r1 <= 1 + 1e-8; still counted in F",
        SHAPE_OF_LEARNING,
        lambda neighbors: dimension.twonn_microscope(neighbors).dropped,
    ),
}
READERS = {name: quantity.read for name, quantity in DIMENSION.items() if quantity.resampling}
COUNTS = {name: quantity.read for name, quantity in DIMENSION.items() if not quantity.resampling}
WITHOUT = "twonn_without_longest"
DIMENSION[WITHOUT] = without_longest(DIMENSION["twonn"])
SCALE = {
    "gride": _dimension(
        "intrinsic dimension (GRIDE)",
        f"maximum likelihood from r_2k/r_k, k = `neighbors`{FEW}",
        "Denti et al. 2022, The generalized ratios intrinsic dimension estimator",
        scale.gride_curve,
        dims=("layer", "neighbors"),
    ),
    "decimation": Quantity(
        "intrinsic dimension of a thinned cloud",
        f"twonn of every f-th point, mean over the f disjoint subsets, f = `factor`{FEW}",
        f"{FACCO}, where subsets are drawn at random; by order neighbors of one cluster are thinned evenly",
        range=NOT_NEGATIVE,
        dims=("layer", "factor"),
    ),
    "levina_bickel": _dimension(
        "intrinsic dimension (Levina-Bickel, 20 neighbors)",
        f"inverse of the mean over points of the mean over j < 20 of ln(r_20/r_j){FEW}",
        "Levina and Bickel 2004, averaged as MacKay and Ghahramani 2005",
        scale.levina_bickel,
    ),
    "local_dimension": _dimension(
        "local dimension (20 neighbors), quantile over points",
        "quantile over distinct points of (20 - 2) / sum_{j < 20} ln(r_20/r_j), interpolated in 1/d"
        + FEW,
        "Levina and Bickel 2004",
        scale.local_quantiles,
        dims=("layer", "quantile"),
    ),
}
ESTIMATORS = {
    "correlation_dimension": _dimension(
        "correlation dimension",
        f"ln(C(r2)/C(r1)) / ln(r2/r1), C(r) the share of pairs nearer than r, r1 and r2 the medians of the distances "
        f"to the {estimators.NEAR}th and {estimators.FAR}th neighbor{FEW}",
        "Grassberger and Procaccia 1983, radii as scikit-dimension's CorrInt",
    ),
    "ph_dimension": _dimension(
        "dimension of the minimum spanning tree",
        f"1/(1 - s), s the slope of ln of the tree's length on ln n, n = P/8, P/4, P/2, P distinct points{FEW}",
        "Steele 1988; Schweinhart 2020; sizes and fit: this project",
    ),
    "marchenko_pastur_rank": _rank(
        "principal directions above the Marchenko-Pastur edge",
        f"number of eigenvalues above s^2 (1 + sqrt(D/P))^2, {NOISE}",
        "Marchenko and Pastur 1967",
        estimators.marchenko_pastur_rank,
    ),
    "gavish_donoho_rank": _rank(
        "principal directions above Gavish and Donoho's threshold",
        f"number of singular values above the optimal hard threshold of unknown noise, {NOISE}",
        "Gavish and Donoho 2014",
        estimators.gavish_donoho_rank,
    ),
}


def mask_few_points(values: Values, neighbors: Neighbors) -> Values:
    """Replace values and resamples by NaN where too few points of the whole cloud are distinct."""
    enough = dimension.has_enough_points(neighbors)
    return {name: jnp.where(enough, value, jnp.nan) for name, value in values.items()}


def measure_dimension(cloud: Cloud) -> Values:
    """Measure a cloud, (R,); counts are of the whole cloud."""
    whole, parts = cloud.searched
    values = over_sections(
        lambda neighbors: {name: read(neighbors) for name, read in READERS.items()}, cloud.searched
    )
    values = mask_few_points(values, whole) | {PUBLISHED: values[PUBLISHED]}
    values |= {name: read(whole) for name, read in COUNTS.items()}

    def measure_remaining(left_P: Array) -> Values:
        """Read TwoNN of the points that remain, from the neighbors searched among all points."""
        whole_left, parts_left = neighbors_among(cloud.points_PD, whole, left_P), None
        if parts is not None:
            arrays = (
                sections(cloud.points_PD, parts),
                parts,
                sections(left_P[:, None], parts)[..., 0],
            )
            parts_left = jax.lax.map(lambda part: neighbors_among(*part), arrays)
        searched = Searched(whole_left, parts_left)
        values = over_sections(lambda neighbors: {WITHOUT: dimension.twonn(neighbors)}, searched)
        return mask_few_points(values, whole_left)

    return values | jax.lax.map(measure_remaining, remaining(cloud))


def measure_scale(cloud: Cloud) -> Values:
    """Measure a cloud, (R,), with its scales before the replicates."""
    readers = {name: quantity.read for name, quantity in SCALE.items() if quantity.read}
    values = over_sections(
        lambda neighbors: {name: read(neighbors) for name, read in readers.items()}, cloud.searched
    )
    values["decimation"] = scale.decimation(cloud.points_PD, cloud.searched.whole)
    return mask_few_points(values, cloud.searched.whole)


def measure_estimators(cloud: Cloud) -> Values:
    """Measure a cloud, (R,).

    Ranks without a fold are those of the eigenvalues without it, to first order.
    """

    def read(cloud_PD: Array, neighbors: Neighbors) -> Values:
        return {
            "correlation_dimension": estimators.correlation_dimension(cloud_PD, neighbors),
            "ph_dimension": estimators.ph_dimension(cloud_PD),
        }

    values = mask_few_points(over_neighborhoods(read, cloud), cloud.searched.whole)
    ranks = {name: quantity.read for name, quantity in ESTIMATORS.items() if quantity.read}
    points, width = cloud.points_PD.shape
    if points < width:
        return values | dict.fromkeys(ranks, jnp.full(1 + cloud.folds * (cloud.folds > 1), jnp.nan))
    eigenvalues_RE = spectrum(cloud.points_PD, cloud.folds).eigenvalues_E
    return values | {
        name: jax.vmap(lambda value_E, rank=rank: rank(value_E, points))(eigenvalues_RE)
        for name, rank in ranks.items()
    }


FAMILIES = {
    "dimension": Family("cloud", measure_dimension, DIMENSION, NULLS, neighbors=SPARE),
    "scale": Family(
        "cloud",
        measure_scale,
        SCALE,
        NULLS,
        neighbors=2 * scale.SCALES[-1],
        coordinates={
            "neighbors": scale.SCALES,
            "factor": scale.FACTORS,
            "quantile": scale.QUANTILES,
        },
    ),
    "estimators": Family(
        "cloud", measure_estimators, ESTIMATORS, NULLS, neighbors=estimators.FAR, distances=3
    ),
}
