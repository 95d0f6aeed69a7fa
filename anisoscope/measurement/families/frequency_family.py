"""Family frequency: how a cloud depends on the frequency of the characters at its points."""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.data.unigrams import BINS, LENGTHS
from anisoscope.measurement.quantity import (
    Family,
    Values,
    correlation,
    count,
    magnitude,
    norm,
    share,
)
from anisoscope.measurement.resampling import Cloud, Types
from anisoscope.metrics import frequency
from anisoscope.metrics.frequency import FEWEST_TYPES, FREQUENCY_SOURCE, LEAST_OF_TYPE

FREQUENT = (
    f"over the points whose last n characters (n: `ngram`) occur at {LEAST_OF_TYPE} points of the cloud or "
    "more, and in the training split"
)
DISTANCE = "d = |x - mean of the other points of the same n characters|"
UNRELATED = (
    f"NaN for fewer than {FEWEST_TYPES} types; below 0 in a Gaussian cloud too, since the centroid of "
    "few points lies farther off"
)
BIN_QUANTITIES = ("norm_by_frequency", "centroid_distance_by_frequency")
FREQUENCY = {
    "frequency_correlation": correlation(
        "correlation of log frequency and distance to the own centroid",
        f"Pearson's r of ln f and d {FREQUENT}; {DISTANCE}, f the frequency in the training split; "
        f"{UNRELATED}",
        FREQUENCY_SOURCE,
    ),
    "frequency_correlation_over_types": correlation(
        "correlation of log frequency and distance to the own centroid, over types",
        f"Pearson's r of ln f and each type's mean of d {FREQUENT}; {DISTANCE}; {UNRELATED}",
        FREQUENCY_SOURCE,
    ),
    "centroid_distance": norm(
        "distance to the own centroid",
        f"E d {FREQUENT}; {DISTANCE}",
        FREQUENCY_SOURCE,
        symbol="E |x − c|",
    ),
    "variance_share_between_types": share(
        "share of the variance between types",
        f"sum_k n_k |m_k - m|^2 / sum_i |x_i - m|^2 {FREQUENT}, m_k the mean of type k; by chance "
        "(K - 1)/(n - 1) of K types of n points",
    ),
    "norm_by_frequency": norm(
        "mean norm by the frequency of the character",
        "E |x| over the points of each quarter: characters in the order of their frequency in the "
        "training split, each quarter about as many positions of it",
        symbol="E |x|",
    ),
    "centroid_distance_by_frequency": norm(
        "distance to the own centroid by the frequency of the character",
        "E d over the points of each quarter, as in norm_by_frequency, whose character occurs at "
        f"{LEAST_OF_TYPE} points of the cloud or more, d = |x - mean of the other points of the same "
        "character|",
        FREQUENCY_SOURCE,
        symbol="E |x − c|",
    ),
    "frequent_points": count("points of frequent types", f"number of points, {FREQUENT}"),
    "frequent_types": magnitude(
        "frequent types",
        f"number of different last n characters {FREQUENT}",
        units="types",
        resampling="",
    ),
}
FREQUENCY = {
    name: replace(entry, dims=("layer", "ngram" if name not in BIN_QUANTITIES else "frequency"))
    for name, entry in FREQUENCY.items()
}
TYPE_QUANTITIES = (  # in the order of metrics.frequency.TypeStatistics
    "centroid_distance",
    "frequency_correlation",
    "frequency_correlation_over_types",
    "variance_share_between_types",
)


def measure_frequency(cloud: Cloud) -> Values:
    """Measure a cloud; NaN, and a count of 0 points, where the types of the points are unknown."""
    cloud_PD, keep_RP, types = cloud.points_PD, cloud.labels.keep_RP, cloud.types
    folds = max(len(keep_RP) - 1, 1)  # of equal size, one after another, as texts are cut
    if types is None:
        none_LP = jnp.full((len(LENGTHS), len(cloud_PD)), -1)
        types = Types(none_LP, jnp.full(none_LP.shape, -jnp.inf), none_LP[0])

    def measure_length(arrays: tuple[Array, Array]) -> Values:
        type_P, log_frequency_P = arrays
        number_P = frequency.number_frequent_types(
            jnp.where(jnp.isfinite(log_frequency_P), type_P, -1)
        )
        statistics = frequency.type_statistics(cloud_PD, number_P, log_frequency_P, folds)
        few = len(cloud_PD) // LEAST_OF_TYPE  # the type number of every point of a rare type
        return dict(zip(TYPE_QUANTITIES, statistics[:4], strict=True)) | {
            "distances": statistics.distances,
            "frequent_points": (number_P < few).sum(dtype=jnp.int32),
            "frequent_types": jnp.where(number_P < few, number_P + 1, 0).max().astype(jnp.float32),
        }

    values = jax.lax.map(measure_length, (types.type_LP, types.log_frequency_LP))
    distance_RP = values.pop("distances")[0]  # for single characters, like the bins
    norm_P = jnp.linalg.norm(cloud_PD, axis=1)

    def by_bin(keep_P: Array, distance_P: Array) -> Values:
        # only points of frequent types have a distance
        read = ((norm_P, keep_P), (distance_P, keep_P * ~jnp.isnan(distance_P)))
        return {
            name: frequency.mean_by_bin(value_P, types.bin_P, len(BINS), kept_P)
            for name, (value_P, kept_P) in zip(BIN_QUANTITIES, read, strict=True)
        }

    binned = jax.vmap(by_bin)(jnp.asarray(keep_RP), distance_RP)
    return values | {name: value_RB.T for name, value_RB in binned.items()}


FAMILIES = {
    "frequency": Family(
        measure_frequency,
        FREQUENCY,
        ("gaussian", "shuffled", "untrained"),
        reads_types=True,
        coordinates={"ngram": LENGTHS, "frequency": BINS},
    )
}
