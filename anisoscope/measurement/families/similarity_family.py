"""Family similarity: cosines, norms and the partition function of vectors that are not centered."""

import math
from collections.abc import Iterable

import jax
from jax import Array

from anisoscope.measurement.families import leading_family
from anisoscope.measurement.null_models import FLIPPED
from anisoscope.measurement.quantity import (
    INHERENT,
    MEASURED,
    Family,
    Quantity,
    Values,
    correlation,
    magnitude,
    norm,
    share,
)
from anisoscope.measurement.resampling import Cloud
from anisoscope.metrics import similarity

SIGNS = (
    "flipped, {} where each cluster's vectors are multiplied by one random sign, says what a cloud "
    "without a mean has; without clusters each point has a sign of its own"
)
ROOT_MEAN_SQUARE = {"nulls": (FLIPPED,), "null_words": SIGNS.format("the root mean square")}
SIMILARITY = {
    "mean_cosine": correlation(
        "mean cosine of pairs",
        "(|sum_i x_i/|x_i||^2 - P) / (P (P - 1)), all pairs of the P x_i that are not 0",
        INHERENT,
        nulls=(FLIPPED,),
        null_words=SIGNS.format("the expected value"),
    ),
    "mean_cosine_drift": magnitude(
        "mean cosine, part of the drift",
        "|E x|^2 mean over pairs of 1/(|x_i| |x_j|), mean and pairs of the x_i that are not 0",
        null_words="the excess of mean_cosine over flipped says how far it is from chance",
    ),
    "mean_cosine_residual": Quantity("mean cosine, residual", "mean_cosine - mean_cosine_drift"),
    "drift": norm(
        "norm of the mean vector (drift)", "|E x|", INHERENT, symbol="|E x|", **ROOT_MEAN_SQUARE
    ),
    "relative_drift": share("relative drift", "|E x| / sqrt(E |x|^2)", **ROOT_MEAN_SQUARE),
    "mean_norm": norm(
        "mean norm", "E |x|", INHERENT, symbol="E |x|", null_words="flipped leaves it as it is"
    ),
    "log_partition_isotropy": Quantity(
        "log of the partition function's isotropy",
        "ln(min_c Z(c) / max_c Z(c)), Z(c) = sum_i exp(c.x_i), c = +- the eigenvectors of X^T X",
        "Mu and Viswanath 2018; both signs: this project",
        range=(-math.inf, 0.0),
    ),
}
SIMILARITY_READERS = {  # each reads the cloud, and weights 1 or 0 of its points
    "mean_cosine": similarity.mean_cosine,
    "mean_cosine_drift": lambda *cloud: similarity.mean_cosine_parts(*cloud).drift,
    "mean_cosine_residual": lambda *cloud: similarity.mean_cosine_parts(*cloud).residual,
    "drift": similarity.drift,
    "relative_drift": similarity.relative_drift,
    "mean_norm": similarity.mean_norm,
}
# {quantity: its null model, a function of the cloud, the clusters of its points, and weights}
FLIPPED_READERS = {
    "mean_cosine": similarity.mean_cosine_flipped,
    "drift": similarity.drift_flipped,
    "relative_drift": similarity.relative_drift_flipped,
}
# {name without the longest vectors: quantity}
SIMILARITY_WITHOUT_LONGEST = {f"{name}_without_longest": name for name in ("mean_cosine", "drift")}
SIMILARITY |= {
    without: leading_family.without_longest(SIMILARITY[name])
    for without, name in SIMILARITY_WITHOUT_LONGEST.items()
}


def measure_similarity(cloud: Cloud) -> dict[str, Values]:
    """Measure a cloud, and its expected values under random signs."""
    cloud_PD = cloud.points_PD
    cluster_P = None if cloud.places is None else cloud.places.window_P

    def read(x_PD: Array, names: Iterable[str], keep_P: Array) -> dict[str, Values]:
        flipped = [name for name in names if name in FLIPPED_READERS]
        return {
            MEASURED: {name: SIMILARITY_READERS[name](x_PD, keep_P) for name in names},
            FLIPPED: {name: FLIPPED_READERS[name](x_PD, cluster_P, keep_P) for name in flipped},
        }

    def read_left(left_P: Array) -> dict[str, Values]:
        left_PD, names = cloud_PD * left_P[:, None], SIMILARITY_WITHOUT_LONGEST.values()
        return cloud.over_folds(lambda keep_P: read(left_PD, names, keep_P * left_P))

    values = cloud.over_folds(lambda keep_P: read(cloud_PD, SIMILARITY_READERS, keep_P))
    left = jax.lax.map(read_left, leading_family.remaining(cloud))
    partition = similarity.log_partition_isotropy(cloud_PD, cloud.labels.keep_RP)
    values[MEASURED]["log_partition_isotropy"] = partition
    return {
        sample: values[sample]
        | {without: left[sample][name] for without, name in SIMILARITY_WITHOUT_LONGEST.items()}
        for sample in values
    }


FAMILIES = {"similarity": Family(measure_similarity, SIMILARITY)}
