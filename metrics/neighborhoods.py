"""Families hubness and local: how unevenly points occur among neighbors, how evenly these spread.

X are the points of a neighborhood, a point and its nearest neighbors; G are groupings of all points.
"""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from anisoscope.metrics.cloud import Points, Scalar, map_blocks, product
from anisoscope.metrics.dimension import NAN_OF_FEW, mask_few_points, take_whole
from anisoscope.metrics.lapack import make_sequential
from anisoscope.metrics.neighbors import Neighbors
from anisoscope.metrics.quantity import (
    AT_LEAST_1,
    POINT_NULLS,
    Family,
    Quantity,
    Values,
    magnitude,
    share,
)
from anisoscope.metrics.resampling import Cloud, over_parts, over_sections

NEAREST = 10  # nearest neighbors


class Hubs(NamedTuple):
    skewness: Scalar
    never: Scalar
    most: Scalar


def occurrences(neighbors: Neighbors, count: int = NEAREST) -> Float[Array, " P"]:
    """N_k: the number of distinct points with a point among their k nearest; 0 for later copies."""
    neighbors.check_searched(count)
    near_PC = jnp.isfinite(neighbors.distance_PC[:, :count]) & neighbors.first_P[:, None]
    return (
        jnp.zeros(len(near_PC)).at[neighbors.index_PC[:, :count]].add(near_PC.astype(jnp.float32))
    )


def hubs(neighbors: Neighbors, count: int = NEAREST) -> Hubs:
    """Spread of the N_k of the n distinct points, whose mean is k.

    skewness: E (N_k - k)^3 / (E (N_k - k)^2)^(3/2), NaN where all N_k are equal. never: share of
    the points with N_k = 0. most: largest N_k over k, [0, (n - 1)/k]. Neighbors searched to `count`
    at least, or ValueError.
    """
    count_P, first_P = occurrences(neighbors, count), neighbors.first_P
    points = first_P.sum()
    deviation_P = jnp.where(first_P, count_P - count_P.sum() / points, 0.0)
    variance, third = jnp.square(deviation_P).sum() / points, (deviation_P**3).sum() / points
    never = (first_P & (count_P == 0)).sum() / points
    return Hubs(third / variance**1.5, never, count_P.max() / count)


COUNT = 20  # nearest neighbors
# neighborhoods whose coordinates exist at once
NEIGHBORHOODS_AT_ONCE, NEIGHBORHOODS_ON_ACCELERATORS = 64, 4096


class LocalIsotropy(NamedTuple):
    anisotropy: Float[Array, "*P"]
    participation_ratio: Float[Array, "*P"]


def local_isotropy(cloud_PD: Points, neighbors: Neighbors, count: int = COUNT) -> LocalIsotropy:
    """Anisotropy and participation ratio of neighborhoods, each about its own mean.

    They are the means over the distinct points i of max(lambda_i) / sum(lambda_i), [1/count, 1],
    and of (sum lambda_i)^2 / sum(lambda_i^2), [1, count], lambda_i the eigenvalues of the
    covariance of i and its `count` nearest distinct points. Few points look less isotropic
    than they are. NaN where no point has `count` distinct others; fewer neighbors searched:
    ValueError.
    """
    return mean_isotropy(neighborhood_isotropy(cloud_PD, neighbors, count), neighbors)


def mean_isotropy(value_P: LocalIsotropy, neighbors: Neighbors) -> LocalIsotropy:
    """Average over the distinct points whose neighborhood has a value."""
    used_P = neighbors.first_P & ~jnp.isnan(value_P.anisotropy)
    return LocalIsotropy(*(jnp.where(used_P, x_P, 0.0).sum() / used_P.sum() for x_P in value_P))


def neighborhood_isotropy(
    cloud_PD: Points,
    neighbors: Neighbors,
    count: int = COUNT,
    points: Int[Array, ""] | None = None,
) -> LocalIsotropy:
    """Compute the terms of `local_isotropy` at every point, or at the first `points`; else NaN."""
    neighbors.check_searched(count)
    cloud_PD = jnp.asarray(cloud_PD, jnp.float32)
    far_P = neighbors.distance_PC[:, count - 1]
    used_P = neighbors.first_P & jnp.isfinite(far_P) & (far_P > 0)

    size_P = jnp.where(used_P, far_P, 1.0)
    index_PC = neighbors.index_PC[:, :count]

    def shares(i: Array) -> Array:
        near_XD = cloud_PD[jnp.append(index_PC[i], i)] - cloud_PD[i][None]
        near_XD = near_XD / size_P[i]  # squares fit into float32 at any scale
        near_XD = near_XD - near_XD.mean(axis=0, keepdims=True)
        decompose = make_sequential(lambda gram_XX: jnp.linalg.eigvalsh(gram_XX))
        value_X = decompose(product(near_XD, near_XD.T))
        return value_X / value_X.sum()

    most = (
        NEIGHBORHOODS_AT_ONCE if jax.default_backend() == "cpu" else NEIGHBORHOODS_ON_ACCELERATORS
    )
    block = min(most, len(cloud_PD))
    share_PX = map_blocks(jax.vmap(shares), len(cloud_PD), block, points)
    values = share_PX[:, -1], 1.0 / jnp.square(share_PX).sum(axis=1)
    return LocalIsotropy(*(jnp.where(used_P, x_P, jnp.nan) for x_P in values))


CAI = (
    "after Cai et al. 2021, Isotropy in the Contextual Embedding Space; spectrum in place of "
    "cosines: this project"
)
BENT = (
    "gaussian shows what neighborhoods owe to the spectrum of the whole cloud: a cloud that is "
    "stretched and not bent has no excess"
)
HUBS = "Radovanovic, Nanopoulos and Ivanovic 2010, Hubs in Space"
COUNTED = (
    f"N the number of distinct points with a point among their {NEAREST} nearest, over the "
    "distinct points"
)
COVARIANCE = (
    f"lambda_i of the covariance of point i and its {COUNT} nearest, about their mean{NAN_OF_FEW}"
)
HUB_QUANTITIES = {
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


def measure_hubness(cloud: Cloud) -> Values:
    """Measure a cloud, (R,); the largest hub has no replicates."""
    values = over_sections(
        lambda neighbors: dict(zip(HUB_QUANTITIES, hubs(neighbors), strict=True)),
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

    def read(member_P: Array, neighbors: Neighbors, *value_P: LocalIsotropy) -> Values:
        del member_P
        return dict(zip(LOCAL_QUANTITIES, mean_isotropy(value_P[0], neighbors), strict=True))

    values = over_parts(read, labels, cloud.searched, value_GP)
    return mask_few_points(values, take_whole(cloud.searched))


HUBNESS = Family("cloud", measure_hubness, HUB_QUANTITIES, POINT_NULLS, neighbors=NEAREST)
LOCAL = Family("cloud", measure_local, LOCAL_QUANTITIES, POINT_NULLS, neighbors=COUNT)
