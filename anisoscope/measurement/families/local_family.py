"""Family local: whether a cloud is isotropic up close, in neighborhoods about their own means."""

from anisoscope.measurement.families.dimension_family import FEW, NULLS, mask_few_points
from anisoscope.measurement.quantity import AT_LEAST_1, SHARE, Family, Quantity, Values
from anisoscope.measurement.resampling import Cloud, Searched, over_sections, sections
from anisoscope.metrics import local_spectrum
from anisoscope.metrics.local_spectrum import COUNT

CAI = "after Cai et al. 2021, Isotropy in the Contextual Embedding Space; spectrum in place of cosines: this project"
COVARIANCE = f"lambda_i of the covariance of point i and its {COUNT} nearest, about their mean{FEW}"
WORDS = (
    "gaussian says what the spectrum of the whole cloud makes of neighborhoods: a cloud that is "
    "stretched and not bent has none of its own"
)

QUANTITIES = {
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


def compute(cloud: Cloud) -> Values:
    """Measure a cloud, (R,), and each of its sections, in which neighborhoods are wider."""
    points_PD, parts = cloud.points_PD, cloud.searched.parts
    points = Searched(points_PD, None if parts is None else sections(points_PD, parts))
    values = over_sections(
        lambda *arrays: dict(zip(QUANTITIES, local_spectrum.local_isotropy(*arrays), strict=True)),
        points,
        cloud.searched,
    )
    return mask_few_points(values, cloud.searched.whole)


FAMILY = Family(
    input_kind="cloud", compute=compute, quantities=QUANTITIES, nulls=NULLS, neighbors=COUNT
)
