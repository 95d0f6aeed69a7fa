"""Families hubness and local: who is whose neighbor, and neighborhoods about their own means."""

from anisoscope.measurement.families.dimension_family import FEW, NULLS, mask_few_points
from anisoscope.measurement.quantity import (
    AT_LEAST_1,
    NOT_NEGATIVE,
    SHARE,
    Family,
    Quantity,
    Values,
)
from anisoscope.measurement.resampling import Cloud, over_neighborhoods, over_sections
from anisoscope.metrics.hubness import COUNT as NEAREST
from anisoscope.metrics.hubness import hubs
from anisoscope.metrics.local_spectrum import COUNT, local_isotropy

HUBS = "Radovanovic, Nanopoulos and Ivanovic 2010, Hubs in Space"
COUNTED = f"N of how many distinct points a point is one of the {NEAREST} nearest, over the distinct points"
CAI = "after Cai et al. 2021, Isotropy in the Contextual Embedding Space; spectrum in place of cosines: this project"
COVARIANCE = f"lambda_i of the covariance of point i and its {COUNT} nearest, about their mean{FEW}"
WORDS = (
    "gaussian says what the spectrum of the whole cloud makes of neighborhoods: a cloud that is "
    "stretched and not bent has none of its own"
)

HUBNESS = {
    "hub_skewness": Quantity(
        "skewness of the occurrences as a neighbor",
        f"E (N - E N)^3 / sd(N)^3, {COUNTED}",
        HUBS,
        resampling="sections",
    ),
    "antihub_share": Quantity(
        "share of points that are nobody's neighbor",
        f"share with N = 0, {COUNTED}",
        HUBS,
        range=SHARE,
        resampling="share_sections",
    ),
    # no replicates: the largest hub of a section does not show how that of the whole varies
    "largest_hub": Quantity(
        "occurrences of the largest hub", f"max N / {NEAREST}, {COUNTED}", HUBS, range=NOT_NEGATIVE
    ),
}
LOCAL = {
    "local_anisotropy": Quantity(
        f"anisotropy of neighborhoods ({COUNT} neighbors)",
        f"mean over distinct points i of max(lambda_i) / sum(lambda_i), {COVARIANCE}",
        CAI,
        range=SHARE,
        resampling="sections",
        null_words=WORDS,
    ),
    "local_participation_ratio": Quantity(
        f"participation ratio of neighborhoods ({COUNT} neighbors)",
        f"mean over distinct points i of (sum lambda_i)^2 / sum(lambda_i^2), {COVARIANCE}",
        CAI,
        range=AT_LEAST_1,
        resampling="sections",
        null_words=WORDS,
    ),
}


def measure_hubness(cloud: Cloud) -> Values:
    """Measure a cloud, (R,); the largest hub has no replicates."""
    values = over_sections(
        lambda neighbors: dict(zip(HUBNESS, hubs(neighbors), strict=True)), cloud.searched
    )
    values = mask_few_points(values, cloud.searched.whole)
    return values | {"largest_hub": values["largest_hub"][0]}


def measure_local(cloud: Cloud) -> Values:
    """Measure a cloud, (R,), and each of its sections, in which neighborhoods are wider."""
    values = over_neighborhoods(
        lambda *arrays: dict(zip(LOCAL, local_isotropy(*arrays), strict=True)), cloud
    )
    return mask_few_points(values, cloud.searched.whole)


FAMILIES = {
    "hubness": Family("cloud", measure_hubness, HUBNESS, NULLS, neighbors=NEAREST),
    "local": Family("cloud", measure_local, LOCAL, NULLS, neighbors=COUNT),
}
