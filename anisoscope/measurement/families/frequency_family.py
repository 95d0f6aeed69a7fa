"""Family frequency: how a cloud depends on how frequent the characters are that its points stand
at.
"""

import functools

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.data.unigrams import BINS, LENGTHS
from anisoscope.measurement.quantity import (
    COSINE,
    HERE,
    NOT_NEGATIVE,
    SHARE,
    Family,
    Quantity,
    Values,
)
from anisoscope.measurement.resampling import Cloud, leave_out
from anisoscope.metrics import frequency
from anisoscope.metrics.frequency import FEWEST, LEAST, SOURCE

BY_LENGTH, BY_BIN = ("layer", "ngram"), ("layer", "frequency")
FREQUENT = (
    f"over the points whose last n characters (n: `ngram`) occur at {LEAST} points of the cloud or more, and in the "
    "training split"
)
DISTANCE = "d = |x - mean of the other points of the same n characters|"


_of_types = functools.partial(Quantity, dims=BY_LENGTH)

QUANTITIES = {
    "frequency_correlation": _of_types(
        "correlation of log frequency and distance to the own centroid",
        f"Pearson's r of ln f and d {FREQUENT}; {DISTANCE}, f the frequency in the training split; NaN of fewer than "
        f"{FEWEST} types; below 0 in a Gaussian cloud too, as the centroid of few points lies farther off",
        SOURCE,
        range=COSINE,
        resampling="jackknife",
    ),
    "frequency_correlation_of_types": _of_types(
        "correlation of log frequency and distance to the own centroid, over types",
        f"Pearson's r of ln f and each type's mean of d {FREQUENT}; {DISTANCE}; NaN of fewer than {FEWEST} types; "
        "below 0 in a Gaussian cloud too, as the centroid of few points lies farther off",
        SOURCE,
        range=COSINE,
        resampling="jackknife",
    ),
    "centroid_distance": _of_types(
        "distance to the own centroid",
        f"E d {FREQUENT}; {DISTANCE}",
        SOURCE,
        units="activation",
        symbol="E |x − c|",
        range=NOT_NEGATIVE,
        resampling="jackknife",
    ),
    "share_between_types": _of_types(
        "share of the variance between types",
        f"sum_k n_k |m_k - m|^2 / sum_i |x_i - m|^2 {FREQUENT}, m_k the mean of type k; by chance (K - 1)/(n - 1) of K "
        "types of n points",
        HERE,
        range=SHARE,
        resampling="jackknife",
    ),
    "norm_by_frequency": Quantity(
        dims=BY_BIN,
        long_name="mean norm by the frequency of the character",
        units="activation",
        formula="E |x| over the points of each quarter: characters in the order of their frequency in the training "
        "split, each quarter about as many positions of it",
        source=HERE,
        symbol="E |x|",
        range=NOT_NEGATIVE,
        resampling="jackknife",
    ),
    "centroid_distance_by_frequency": Quantity(
        dims=BY_BIN,
        long_name="distance to the own centroid by the frequency of the character",
        units="activation",
        formula=f"E d over the points of each quarter, as in norm_by_frequency, whose character occurs at {LEAST} "
        "points of the cloud or more, d = |x - mean of the other points of the same character|",
        source=SOURCE,
        symbol="E |x − c|",
        range=NOT_NEGATIVE,
        resampling="jackknife",
    ),
    "frequent_points": _of_types(
        "points of frequent types",
        f"number of points, {FREQUENT}",
        HERE,
        units="points",
        range=NOT_NEGATIVE,
    ),
    "frequent_types": _of_types(
        "frequent types",
        f"number of different last n characters {FREQUENT}",
        HERE,
        units="types",
        range=NOT_NEGATIVE,
    ),
}


def compute(cloud: Cloud) -> Values:
    """NaN, and no points, where types of the points are not known."""
    cloud_PD, folds, types, count = cloud.points_PD, cloud.folds, cloud.types, len(LENGTHS)
    if types is None:
        nothing = {name: jnp.full((count, 1 + folds * (folds > 1)), jnp.nan) for name in OF_TYPES}
        nothing |= {
            name: jnp.full((len(BINS), 1 + folds * (folds > 1)), jnp.nan) for name in OF_BINS
        }
        return nothing | {
            "frequent_points": jnp.zeros(count, jnp.int32),
            "frequent_types": jnp.zeros(count),
        }

    def of_length(of: tuple[Array, Array]) -> Values:
        type_P, log_frequency_P = of
        number_P = frequency.frequent(jnp.where(jnp.isfinite(log_frequency_P), type_P, -1))
        statistics = frequency.of_types(cloud_PD, number_P, log_frequency_P, folds)
        few = len(cloud_PD) // LEAST  # the number of every other point
        return dict(zip(OF_TYPES, statistics[:4], strict=True)) | {
            "distances": statistics.distances,
            "frequent_points": (number_P < few).sum(dtype=jnp.int32),
            "frequent_types": jnp.where(number_P < few, number_P + 1, 0).max().astype(jnp.float32),
        }

    values = jax.lax.map(of_length, (types.type_LP, types.log_frequency_LP))
    distance_RP = values.pop("distances")[0]  # of single characters, as bins are
    norm_P = jnp.linalg.norm(cloud_PD, axis=1)

    def by_bin(keep_P: Array, distance_P: Array) -> Values:
        # distances are those of some points
        read = ((norm_P, keep_P), (distance_P, keep_P * ~jnp.isnan(distance_P)))
        return {
            name: frequency.mean_by_bin(value_P, types.bin_P, len(BINS), kept_P)
            for name, (value_P, kept_P) in zip(OF_BINS, read, strict=True)
        }

    binned = jax.vmap(by_bin)(leave_out(folds, len(cloud_PD)), distance_RP)
    return values | {name: value_RB.T for name, value_RB in binned.items()}


OF_TYPES = (  # in the order of metrics.frequency.OfTypes
    "centroid_distance",
    "frequency_correlation",
    "frequency_correlation_of_types",
    "share_between_types",
)
OF_BINS = ("norm_by_frequency", "centroid_distance_by_frequency")

FAMILY = Family(
    of="cloud",
    compute=compute,
    quantities=QUANTITIES,
    nulls=("gaussian", "shuffled", "untrained"),
    of_text=True,
    coordinates={"ngram": LENGTHS, "frequency": BINS},
)
