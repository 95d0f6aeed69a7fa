"""Family hubness: how unevenly points occur among the nearest neighbors of other points."""

from anisoscope.measurement.families.dimension_family import NULLS, mask_few_points
from anisoscope.measurement.quantity import NOT_NEGATIVE, SHARE, Family, Quantity, Values
from anisoscope.measurement.resampling import Cloud, over_sections
from anisoscope.metrics import hubness

HUBS = "Radovanovic, Nanopoulos and Ivanovic 2010, Hubs in Space"
COUNTED = f"N of how many distinct points a point is one of the {hubness.COUNT} nearest, over the distinct points"


QUANTITIES = {
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
        "occurrences of the largest hub",
        f"max N / {hubness.COUNT}, {COUNTED}",
        HUBS,
        range=NOT_NEGATIVE,
    ),
}


def compute(cloud: Cloud) -> Values:
    """Measure a cloud, (R,); the largest hub has no replicates."""
    values = over_sections(
        lambda neighbors: dict(zip(QUANTITIES, hubness.hubs(neighbors), strict=True)),
        cloud.searched,
    )
    values = mask_few_points(values, cloud.searched.whole)
    return values | {"largest_hub": values["largest_hub"][0]}


FAMILY = Family(
    input_kind="cloud", compute=compute, quantities=QUANTITIES, nulls=NULLS, neighbors=hubness.COUNT
)
