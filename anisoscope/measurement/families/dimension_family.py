"""Families of neighbors: dimension, scale, estimators (also ranks above noise), hubness, local.

All but the published rule of LLM-Microscope are NaN where too few points are distinct.
G are groupings of the points, S parts of them.
"""

import functools
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.families.leading_family import remaining, without_longest
from anisoscope.measurement.quantity import (
    AT_LEAST_1,
    SHAPE_OF_LEARNING,
    Family,
    Quantity,
    Values,
    count,
    magnitude,
    share,
)
from anisoscope.measurement.resampling import Cloud, over_parts, over_sections
from anisoscope.metrics import dimension, estimators, scale
from anisoscope.metrics.neighborhoods import (
    COUNT,
    NEAREST,
    hubs,
    mean_isotropy,
    neighborhood_isotropy,
)
from anisoscope.metrics.neighbors import SPARE, Neighbors, neighbors_among
from anisoscope.metrics.spectrum import spectrum

DIMENSION_NULLS = ("gaussian", "shuffled", "untrained")
NAN_OF_FEW = (
    f"; NaN below {dimension.LEAST} distinct points, or half of a cloud of fewer than "
    f"{2 * dimension.LEAST}"
)
NOISE_VARIANCE = (
    "s^2 the variance of noise whose Marchenko-Pastur median is the median eigenvalue; NaN for "
    "fewer points than dimensions"
)
PUBLISHED = "twonn_microscope"  # as its authors compute it, for any number of points
TWONN_WITHOUT_LONGEST = "twonn_without_longest"

_dimension = functools.partial(magnitude, resampling="sections")
CAI = (
    "after Cai et al. 2021, Isotropy in the Contextual Embedding Space; spectrum in place of "
    "cosines: this project"
)
BENT = (
    "gaussian shows what neighborhoods owe to the spectrum of the whole cloud: a cloud that is "
    "stretched and not bent has no excess"
)
HUBS = "Radovanovic, Nanopoulos and Ivanovic 2010, Hubs in Space"

DIMENSION_READERS = {
    "twonn": dimension.twonn,
    "twonn_mle": dimension.twonn_mle,
    "twonn_bayes": lambda neighbors: dimension.twonn_bayes(neighbors).mean,
    "twonn_bayes_std": lambda neighbors: dimension.twonn_bayes(neighbors).std,
    PUBLISHED: lambda neighbors: dimension.twonn_microscope(neighbors).dimension,
}
COUNTS = {
    "duplicate_points": Neighbors.duplicates,
    "twonn_dropped": Neighbors.dropped,
    "microscope_useless": lambda neighbors: dimension.twonn_microscope(neighbors).useless,
    "microscope_dropped": lambda neighbors: dimension.twonn_microscope(neighbors).dropped,
}
DIMENSION = {
    "twonn": _dimension(
        "intrinsic dimension (TwoNN, 90 % fit)",
        "slope through the origin of -ln(1 - i/n) on ln(r2/r1), smallest 90 % of the n distinct "
        f"points{NAN_OF_FEW}",
        "Facco et al. 2017",
    ),
    "twonn_mle": _dimension(
        "intrinsic dimension (TwoNN, maximum likelihood)",
        f"(n - 1) / sum ln(r2/r1) over the n distinct points{NAN_OF_FEW}",
        "Facco et al. 2017, in DADApy's unbiased form",
    ),
    "twonn_bayes": _dimension(
        "intrinsic dimension (TwoNN, posterior mean)",
        f"(2 + n) / (5 + sum ln(r2/r1)), prior Gamma(2, 5){NAN_OF_FEW}",
        "Facco et al. 2017, with DADApy's prior",
    ),
    "twonn_bayes_std": _dimension(
        "intrinsic dimension (TwoNN, posterior deviation)",
        "sqrt(2 + n) / (5 + sum ln(r2/r1)); treats the ratios as independent, which they "
        f"are not{NAN_OF_FEW}",
        "Facco et al. 2017, with DADApy's prior",
    ),
    PUBLISHED: _dimension(
        "intrinsic dimension (LLM-Microscope's 20 % rule)",
        "slope through the origin of -ln(1 - (u+j)/(n+u)) on ln(r2/r1), smallest 20 %, u dropped "
        "points counted in F",
        SHAPE_OF_LEARNING,
    ),
    "duplicate_points": count(
        "copies of an earlier point",
        "points equal to an earlier one up to rounding (chains of distances below 2e-6 |x|); "
        "left out of every dimension but LLM-Microscope's",
    ),
    "twonn_dropped": count(
        "distinct points without a ratio",
        "distinct points without two finite neighbors; left out of all but LLM-Microscope's",
    ),
    "microscope_useless": count(
        "useless points (LLM-Microscope)",
        "r1 < 1e-8 mean|x - E x|, copies being neighbors",
        SHAPE_OF_LEARNING,
    ),
    "microscope_dropped": count(
        "dropped points (LLM-Microscope)",
        "useless points and those with r2/r1 <= 1 + 1e-8; still counted in F",
        SHAPE_OF_LEARNING,
    ),
}
DIMENSION[TWONN_WITHOUT_LONGEST] = without_longest(DIMENSION["twonn"])

SCALE_READERS = {
    "gride": scale.gride_curve,
    "levina_bickel": scale.levina_bickel,
    "local_dimension": scale.local_quantiles,
}
SCALE = {
    "gride": _dimension(
        "intrinsic dimension (GRIDE)",
        f"maximum likelihood from r_2k/r_k, k = `neighbors`{NAN_OF_FEW}",
        "Denti et al. 2022, The generalized ratios intrinsic dimension estimator",
        dims=("layer", "neighbors"),
    ),
    "decimation": magnitude(
        "intrinsic dimension of a thinned cloud",
        f"twonn of every f-th point, mean over the f disjoint subsets, f = `factor`{NAN_OF_FEW}",
        "Facco et al. 2017, where subsets are drawn at random; by order neighbors of one cluster "
        "are thinned evenly",
        dims=("layer", "factor"),
        resampling="",
    ),
    "levina_bickel": _dimension(
        "intrinsic dimension (Levina-Bickel, 20 neighbors)",
        f"inverse of the mean over points of the mean over j < 20 of ln(r_20/r_j){NAN_OF_FEW}",
        "Levina and Bickel 2004, averaged as MacKay and Ghahramani 2005",
    ),
    "local_dimension": _dimension(
        "local dimension (20 neighbors), quantile over points",
        "quantile over distinct points of (20 - 2) / sum_{j < 20} ln(r_20/r_j), interpolated in "
        f"1/d{NAN_OF_FEW}",
        "Levina and Bickel 2004",
        dims=("layer", "quantile"),
    ),
}
RANKS = {
    "marchenko_pastur_rank": estimators.marchenko_pastur_rank,
    "gavish_donoho_rank": estimators.gavish_donoho_rank,
}
ESTIMATORS = {
    "correlation_dimension": _dimension(
        "correlation dimension",
        "ln(C(r2)/C(r1)) / ln(r2/r1), C(r) the share of pairs nearer than r, r1 and r2 the medians "
        f"of the distances to the {estimators.NEARER}th and {estimators.FARTHER}th neighbor{NAN_OF_FEW}",
        "Grassberger and Procaccia 1983, radii as scikit-dimension's CorrInt",
    ),
    "ph_dimension": _dimension(
        "dimension of the minimum spanning tree",
        "1/(1 - s), s the slope of ln of the tree's length on ln n, n = P/8, P/4, P/2, P distinct "
        f"points{NAN_OF_FEW}",
        "Steele 1988; Schweinhart 2020; sizes and fit: this project",
    ),
    "marchenko_pastur_rank": magnitude(
        "principal directions above the Marchenko-Pastur edge",
        f"number of eigenvalues above s^2 (1 + sqrt(D/P))^2, {NOISE_VARIANCE}",
        "Marchenko and Pastur 1967",
    ),
    "gavish_donoho_rank": magnitude(
        "principal directions above Gavish and Donoho's threshold",
        f"number of singular values above the optimal hard threshold of unknown noise, {NOISE_VARIANCE}",
        "Gavish and Donoho 2014",
    ),
}

COUNTED = (
    f"N the number of distinct points with a point among their {NEAREST} nearest, over the "
    "distinct points"
)
COVARIANCE = (
    f"lambda_i of the covariance of point i and its {COUNT} nearest, about their mean{NAN_OF_FEW}"
)
HUBNESS = {
    "hub_skewness": Quantity(
        "skewness of the occurrences as a neighbor",
        f"E (N - E N)^3 / sd(N)^3, {COUNTED}",
        HUBS,
        resampling="sections",
    ),
    "antihub_share": share(
        "share of points that are nobody's neighbor",
        f"share with N = 0, {COUNTED}",
        HUBS,
        resampling="share_sections",
    ),
    # the largest hub of a section does not show how that of the whole varies
    "largest_hub": magnitude(
        "occurrences of the largest hub", f"max N / {NEAREST}, {COUNTED}", HUBS, resampling=""
    ),
}
LOCAL_QUANTITIES = {
    "local_anisotropy": share(
        f"anisotropy of neighborhoods ({COUNT} neighbors)",
        f"mean over distinct points i of max(lambda_i) / sum(lambda_i), {COVARIANCE}",
    ),
    "local_participation_ratio": Quantity(
        f"participation ratio of neighborhoods ({COUNT} neighbors)",
        f"mean over distinct points i of (sum lambda_i)^2 / sum(lambda_i^2), {COVARIANCE}",
        range=AT_LEAST_1,
    ),
}
LOCAL_QUANTITIES = {
    name: replace(entry, source=CAI, resampling="sections", null_words=BENT)
    for name, entry in LOCAL_QUANTITIES.items()
}


def mask_few_points(values: Values, neighbors: Neighbors) -> Values:
    """Replace values and resamples by NaN where too few points of the whole cloud are distinct."""
    enough = dimension.has_enough_points(neighbors)
    return {name: jnp.where(enough, value, jnp.nan) for name, value in values.items()}


def take_whole(searched: Neighbors) -> Neighbors:
    """Take the neighbors in the whole cloud."""
    return jax.tree.map(lambda x_G: x_G[0], searched)


def measure_dimension(cloud: Cloud) -> Values:
    """Measure a cloud, (R,); counts are of the whole cloud."""
    labels, whole = cloud.labels, take_whole(cloud.searched)
    section_P = jnp.asarray(labels.part_SP[1:]).argmax(axis=0) if len(labels.part_SP) > 1 else None

    def read(member_P: Array, neighbors: Neighbors, *left: Neighbors) -> Values:
        values = {name: reader(neighbors) for name, reader in DIMENSION_READERS.items()}
        return values | {
            TWONN_WITHOUT_LONGEST: jnp.stack([dimension.twonn(found) for found in left])
        }

    def keep_left(left_P: Array) -> Neighbors:
        """Find neighbors among the points that remain, from those searched among all points."""

        def among(part: tuple[Neighbors, Array]) -> Neighbors:
            return neighbors_among(cloud.points_PD, part[0], left_P, part[1])

        if section_P is None:
            return jax.tree.map(lambda x_G: x_G[None], among((whole, 0)))
        return jax.lax.map(among, (cloud.searched, jnp.stack([0 * section_P, section_P])))

    left_2G = jax.lax.map(keep_left, remaining(cloud))
    left = tuple(jax.tree.map(lambda x_2, z=z: x_2[z], left_2G) for z in range(2))
    values = over_parts(read, labels, cloud.searched, *left)
    without_2 = [
        mask_few_points({TWONN_WITHOUT_LONGEST: value}, take_whole(found))[TWONN_WITHOUT_LONGEST]
        for value, found in zip(values.pop(TWONN_WITHOUT_LONGEST), left, strict=True)
    ]
    values = mask_few_points(values, whole) | {PUBLISHED: values[PUBLISHED]}
    values |= {TWONN_WITHOUT_LONGEST: jnp.stack(without_2)}
    return values | {name: read(whole) for name, read in COUNTS.items()}


def measure_scale(cloud: Cloud) -> Values:
    """Measure a cloud, (R,), with its scales before the replicates."""
    whole = take_whole(cloud.searched)
    values = over_sections(
        lambda neighbors: {name: read(neighbors) for name, read in SCALE_READERS.items()},
        cloud.labels,
        cloud.searched,
    )
    values["decimation"] = scale.decimation(cloud.points_PD, whole)
    return mask_few_points(values, whole)


def measure_estimators(cloud: Cloud) -> Values:
    """Measure a cloud, (R,).

    Ranks without a fold are those of the eigenvalues without it, to first order.
    """
    labels, whole = cloud.labels, take_whole(cloud.searched)
    part_SP = jnp.asarray(labels.part_SP)
    sections = max(len(part_SP) - 1, 1)
    # parts of both groupings, as many of each: the whole, and the sections
    part_GSP = jnp.zeros((1, sections, part_SP.shape[1]), bool).at[0, 0].set(part_SP[0])
    if len(part_SP) > 1:
        part_GSP = jnp.concatenate([part_GSP, part_SP[None, 1:]])
    pairs_GS = jax.lax.map(
        lambda both: estimators.correlation_dimension(cloud.points_PD, *both),
        (cloud.searched, part_GSP),
    )
    values = {
        "correlation_dimension": jnp.concatenate([pairs_GS[0, :1], pairs_GS[1:].ravel()]),
        "ph_dimension": estimators.ph_dimension(cloud.points_PD, whole.original_P, part_SP),
    }
    values = mask_few_points(values, whole)
    if len(part_SP[0]) < cloud.points_PD.shape[1]:
        return values | dict.fromkeys(RANKS, jnp.full(len(labels.keep_RP), jnp.nan))
    eigenvalues_RE = spectrum(cloud.points_PD, labels.keep_RP).eigenvalues_E
    return values | {
        name: jax.vmap(
            lambda value_E, n=n, rank=rank: rank(value_E, 0, jnp.asarray(cloud.constants)[n])
        )(eigenvalues_RE)
        for n, (name, rank) in enumerate(RANKS.items())
    }


def measure_hubness(cloud: Cloud) -> Values:
    """Measure a cloud, (R,); the largest hub has no replicates."""
    values = over_sections(
        lambda neighbors: dict(zip(HUBNESS, hubs(neighbors), strict=True)),
        cloud.labels,
        cloud.searched,
    )
    values = mask_few_points(values, take_whole(cloud.searched))
    return values | {"largest_hub": values["largest_hub"][0]}


def measure_local(cloud: Cloud) -> Values:
    """Measure a cloud, (R,), and each of its sections, in which neighborhoods are wider."""
    labels = cloud.labels
    value_GP = jax.lax.map(
        lambda found: neighborhood_isotropy(cloud.points_PD, found, points=labels.points),
        cloud.searched,
    )

    def read(member_P: Array, neighbors: Neighbors, *value_P: Any) -> Values:
        del member_P
        return dict(zip(LOCAL_QUANTITIES, mean_isotropy(value_P[0], neighbors), strict=True))

    values = over_parts(read, labels, cloud.searched, value_GP)
    return mask_few_points(values, take_whole(cloud.searched))


FAMILIES = {
    "dimension": Family(measure_dimension, DIMENSION, DIMENSION_NULLS, neighbors=SPARE),
    "scale": Family(
        measure_scale,
        SCALE,
        DIMENSION_NULLS,
        neighbors=2 * scale.SCALES[-1],
        coordinates={
            "neighbors": scale.SCALES,
            "factor": scale.FACTORS,
            "quantile": scale.QUANTILES,
        },
    ),
    "estimators": Family(
        measure_estimators,
        ESTIMATORS,
        DIMENSION_NULLS,
        neighbors=estimators.FARTHER,
        constants=lambda points, width, *_: estimators.noise_factors(width, points),
    ),
    "hubness": Family(measure_hubness, HUBNESS, DIMENSION_NULLS, neighbors=NEAREST),
    "local": Family(measure_local, LOCAL_QUANTITIES, DIMENSION_NULLS, neighbors=COUNT),
}
