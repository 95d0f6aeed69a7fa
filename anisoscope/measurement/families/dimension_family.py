"""Family dimension: the intrinsic dimension from the two nearest neighbors of every point."""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.families import leading_family
from anisoscope.measurement.quantity import (
    HERE,
    NOT_NEGATIVE,
    SHAPE_OF_LEARNING,
    Family,
    Quantity,
    Values,
)
from anisoscope.measurement.resampling import Cloud, Searched, over_sections, sections
from anisoscope.metrics import dimension
from anisoscope.metrics.neighbors import Neighbors
from anisoscope.metrics.subclouds import SPARE, neighbors_among

FACCO = "Facco et al. 2017"
NULLS = ("gaussian", "shuffled", "untrained")

FEW = f"; NaN below {dimension.LEAST} distinct points, or half of a cloud of fewer than {2 * dimension.LEAST}"
PUBLISHED = "twonn_microscope"  # as its authors compute it, of any number of points


def mask_few_points(values: Values, neighbors: Neighbors) -> Values:
    """Replace values and resamples by NaN where too few points of the whole cloud are distinct."""
    return {
        name: jnp.where(dimension.has_enough_points(neighbors), value, jnp.nan)
        for name, value in values.items()
    }


_dimension = functools.partial(Quantity, resampling="sections", range=NOT_NEGATIVE)
_count = functools.partial(Quantity, units="points", range=NOT_NEGATIVE)

QUANTITIES = {
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
RESAMPLED = {name: quantity.read for name, quantity in QUANTITIES.items() if quantity.resampling}
WITHOUT, WITHOUT_QUANTITY = leading_family.without_longest("twonn", QUANTITIES["twonn"])
COUNTS = {name: quantity.read for name, quantity in QUANTITIES.items() if not quantity.resampling}
QUANTITIES[WITHOUT] = WITHOUT_QUANTITY


def compute(cloud: Cloud) -> Values:
    """Measure a cloud, (R,); counts are of the whole cloud."""
    values = over_sections(
        lambda neighbors: {name: read(neighbors) for name, read in RESAMPLED.items()},
        cloud.searched,
    )
    values = mask_few_points(values, cloud.searched.whole) | {PUBLISHED: values[PUBLISHED]}
    values |= {name: read(cloud.searched.whole) for name, read in COUNTS.items()}
    return values | jax.lax.map(
        lambda left_P: measure_remaining(cloud, left_P), leading_family.remaining(cloud)
    )


def measure_remaining(cloud: Cloud, left_P: Array) -> Values:
    """Measure TwoNN on the points that remain, from the neighbors searched among all points."""
    whole, parts = cloud.searched
    whole = neighbors_among(cloud.points_PD, whole, left_P)
    if parts is not None:
        arrays = sections(cloud.points_PD, parts), parts, sections(left_P[:, None], parts)[..., 0]
        parts = jax.lax.map(lambda part: neighbors_among(*part), arrays)
    values = over_sections(
        lambda neighbors: {WITHOUT: WITHOUT_QUANTITY.read(neighbors)}, Searched(whole, parts)
    )
    return mask_few_points(values, whole)


FAMILY = Family(
    input_kind="cloud", compute=compute, quantities=QUANTITIES, nulls=NULLS, neighbors=SPARE
)
