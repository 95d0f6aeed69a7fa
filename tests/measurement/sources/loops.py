"""The panel's values again, of a cloud or a head and all of its resamples, by slow loops in float64."""

import numpy as np

from anisoscope.data import frequency
from anisoscope.measurement.families import entries as families
from anisoscope.measurement.families.frequency import OF_TYPES
from tests import (
    reference,
    reference_frequency,
    reference_leading,
    reference_scale,
    reference_similarity,
    reference_spectrum,
)
from tests.measurement.sources.activated import (
    CONTEXT,
    COORDINATES,
    FOLDS,
    KINDS_OF_TOKENS,
    MEASURED,
    QUANTITIES,
    TOKENS,
)

SLOW = ("dimension", "scale", "similarity")
SPECTRAL = {
    "anisotropy": reference_spectrum.anisotropy,
    "anisotropy_uncentred": reference_spectrum.anisotropy_uncentred,
    "participation_ratio": reference_spectrum.participation_ratio,
    "participation_ratio_corrected": reference_spectrum.participation_ratio_corrected,
    "effective_rank": reference_spectrum.effective_rank,
    "rankme": reference_spectrum.rankme,
    "stable_rank": reference_spectrum.stable_rank,
    "isoscore": reference_spectrum.isoscore,
    "isoscore_star": reference_spectrum.isoscore_shrunk,
    "alpha_req": lambda cloud: reference_spectrum.alpha_req(cloud)[0],
    "alpha_req_r2": lambda cloud: reference_spectrum.alpha_req(cloud)[1],
}
STATISTICS = (
    *("score_mean", "score_std", "score_std_within", "attention_entropy", "attention_max", "attention_min"),
    *("attention_first", "attention_most"),
)


def by_fold(x):
    return x.reshape(FOLDS, -1, *x.shape[1:])


def jackknife(x):
    """The whole of it, then all but one fold after another."""
    return [x, *(np.concatenate(np.delete(by_fold(x), fold, axis=0)) for fold in range(FOLDS))]


def cut(x):
    """The whole of it, then its sections."""
    return [x, *by_fold(x)]


def slow_cloud(cloud):
    """Of the whole cloud and every resample, in float64."""
    values = {name: [] for name in MEASURED if QUANTITIES[name].resampling and families.family_of(name) in SLOW}
    values = {name: value for name, value in values.items() if not name.endswith("_without")}  # of `slow_leading`
    values |= {
        name: [] for name in ("coordinate_share", "coordinate_kurtosis", "activation_kurtosis", "coordinate_peak")
    }
    for part in jackknife(cloud):
        shares = [reference_spectrum.coordinate_share(part, top) for top in COORDINATES["top"]]
        values["coordinate_share"].append(shares)
        values["coordinate_kurtosis"].append(reference_spectrum.coordinate_kurtosis(part))
        values["activation_kurtosis"].append(reference_spectrum.activation_kurtosis(part))
        values["coordinate_peak"].append(reference_spectrum.coordinate_peaks(part).mean())
        values["log_partition_isotropy"].append(reference_similarity.log_partition_isotropy(part, cloud))
        drift, residual = reference_similarity.mean_cosine_parts(part)
        values["mean_cosine"].append(reference.mean_cosine(part))
        values["mean_cosine_drift"].append(drift)
        values["mean_cosine_residual"].append(residual)
        values["drift"].append(reference.drift(part))
        values["mean_norm"].append(reference.mean_norm(part))
    for part in cut(cloud):
        x = reference.log_ratios(part)
        distances = reference_scale.distances(part)
        values["twonn"].append(reference.twonn(part))
        values["twonn_mle"].append(reference.twonn_mle(part))
        values["twonn_bayes"].append((2 + len(x)) / (5 + x.sum()))
        values["twonn_bayes_deviation"].append(np.sqrt(2 + len(x)) / (5 + x.sum()))
        values["twonn_microscope"].append(reference.twonn_microscope(part)[0])
        fits = [2 * first <= distances.shape[1] for first in COORDINATES["neighbours"]]
        curve = [
            reference_scale.gride(distances, first) if fit else np.nan
            for first, fit in zip(COORDINATES["neighbours"], fits, strict=True)
        ]
        values["gride"].append(curve)
        nearest = min(20, distances.shape[1])
        values["levina_bickel"].append(reference_scale.levina_bickel(distances, nearest))
        inverse = 1 / reference_scale.local_dimensions(distances, nearest)
        values["local_dimension"].append([1 / np.quantile(inverse, 1 - q) for q in COORDINATES["quantile"]])
    if len(reference.log_ratios(cloud)) < min(64, len(cloud) / 2):
        for name in ("twonn", "twonn_mle", "twonn_bayes", "twonn_bayes_deviation", "gride", "levina_bickel"):
            values[name] = np.full_like(values[name], np.nan)
        values["local_dimension"] = np.full_like(values["local_dimension"], np.nan)
    _, useless, dropped = reference.twonn_microscope(cloud)
    single = {"massive_activation": reference_spectrum.coordinate_peaks(cloud).max()}
    single |= {"duplicate_points": reference.duplicate_points(cloud), "twonn_dropped": reference.twonn_dropped(cloud)}
    single |= {"microscope_useless": useless, "microscope_dropped": dropped}
    single["decimation"] = [
        reference_scale.decimation(cloud, factor) if np.isfinite(values["twonn"][0]) else np.nan
        for factor in COORDINATES["factor"]
    ]
    return {name: np.moveaxis(np.array(value), 0, -1) for name, value in values.items() if len(value)} | single


def slow_spectra(cloud):
    """Of the whole cloud, and without its top coordinates; replicates follow to first order only, by the spectrum."""
    order = np.argsort(-reference.float64(cloud).var(0))
    without = [np.delete(cloud, order[:top], axis=1) for top in COORDINATES["top"]]
    values = {name: read(cloud) for name, read in SPECTRAL.items()}
    return values | {"anisotropy_left_out": [reference_spectrum.anisotropy(part) for part in without]}


def slow_leading(cloud, picks):
    """Of the whole cloud and every resample, in float64; who is long and the first direction are those of the whole."""
    window, first = picks // CONTEXT, picks % CONTEXT == 0
    points, long = np.arange(len(cloud)), reference_leading.longest(cloud, max(1, len(cloud) // 100))
    kept = [np.isin(points, part) for part in jackknife(points)]
    values = {name: [] for name in ("first_share", "first_share_by_norm", "longest_share")}
    for keep in kept:
        values["first_share"].append(reference_leading.share_between(cloud[keep], first[keep]))
        values["first_share_by_norm"].append(reference_leading.share_by_norm(cloud[keep], first[keep]))
        values["longest_share"].append(reference_leading.share_between(cloud[keep], long[keep]))
    left = [~reference_leading.longest_of_each(cloud, window), ~long]
    without = [reference_leading.first_direction(cloud, one, kept)[0] for one in left]
    _, kurtosis, between = reference_leading.first_direction(cloud, np.ones_like(first), kept, picks % CONTEXT)
    more = {"anisotropy_without": without, "leading_kurtosis": kurtosis, "leading_by_position": between}
    for name, read in (("mean_cosine", reference.mean_cosine), ("drift", reference.drift)):
        more[f"{name}_without"] = [[read(cloud[keep & one]) for keep in kept] for one in left]
    sections = [np.isin(points, part) for part in cut(points)]
    twonn = [[reference.twonn(cloud[part & one]) for part in sections] for one in left]
    enough = [[len(reference.log_ratios(cloud[one])) >= min(64, len(cloud) / 2)] for one in left]
    more["twonn_without"] = np.where(enough, twonn, np.nan)
    entropy = np.array([reference_leading.entropy(cloud[window == number]) for number in range(max(window) + 1)])
    more["window_entropy"] = [entropy[np.unique(window[keep])].mean() for keep in kept]
    if not first.any():
        values |= dict.fromkeys(("first_share", "first_share_by_norm"), np.full(len(kept), np.nan))
    return {name: np.array(value) for name, value in (values | more).items()} | {
        "norm_ratio": reference_leading.norm_ratio(cloud)
    }


def slow_frequency(cloud, tokens, picks):
    """Of the whole cloud and every resample, in float64; which types are frequent is decided on the whole."""
    points = np.arange(len(cloud))
    kept = [np.isin(points, part) for part in jackknife(points)]
    values = {name: [] for name in MEASURED if families.family_of(name) == "frequency"}
    bins = frequency.bins(frequency.log_frequency(TOKENS // 8, 1, KINDS_OF_TOKENS))[tokens.ravel()[picks] // 8]
    kinds = reference_frequency.frequent(tokens.ravel()[picks] // 8, 20)
    distances = [reference_frequency.distances(cloud, kinds, len(cloud) // 20, keep) for keep in kept]
    norms = [np.linalg.norm(cloud, axis=1)] * len(kept)
    binned = {"norm_by_frequency": norms, "centroid_distance_by_frequency": distances}
    for name, rows in binned.items():
        read = zip(rows, kept, strict=True)
        found = [reference_frequency.mean_by_bin(row, bins, len(frequency.BINS), keep) for row, keep in read]
        values[name] = np.transpose(found)
    for length in frequency.LENGTHS:
        types = frequency.types(tokens // 8, length, KINDS_OF_TOKENS).ravel()[picks]
        logs = np.where(types < 0, 0, frequency.log_frequency(TOKENS // 8, length, KINDS_OF_TOKENS)[types])
        number, most = reference_frequency.frequent(types, 20), len(cloud) // 20
        found = [reference_frequency.of_types(cloud, number, logs, most, keep) for keep in kept]
        for name, value in zip(OF_TYPES, np.transpose(found), strict=True):
            values[name].append(value)
        values["frequent_points"].append((number < most).sum())
        values["frequent_types"].append(len(set(number) - {most}))
    return values


def slow_head(q, k, picks, visible):
    values = {name: [] for name in MEASURED if families.family_of(name) == "attention" and QUANTITIES[name].resampling}
    q_clouds, k_clouds = (jackknife(x.reshape(-1, x.shape[-1])[picks]) for x in (q, k))
    for q_part, k_part, q_cloud, k_cloud in zip(jackknife(q), jackknife(k), q_clouds, k_clouds, strict=True):
        for name, value in zip(STATISTICS, reference.attention_statistics(q_part, k_part, visible), strict=True):
            values[name].append(value)
        values["query_drift"].append(reference.drift(q_cloud))
        values["key_drift"].append(reference.drift(k_cloud))
        values["query_fluctuation"].append(reference.fluctuation(q_cloud))
        values["key_fluctuation"].append(reference.fluctuation(k_cloud))
        of_means, share = reference.scores_and_means(q_part, k_part, visible, q_cloud, k_cloud)
        values["score_of_means"].append(of_means)
        values["score_share_of_means"].append(share)
        means = (reference.float64(x).mean(0) for x in (q_cloud, k_cloud))
        values["query_key_alignment"].append(reference.cosine(*means))
        values["query_cosine"].append(reference.mean_cosine(q_cloud))
        values["key_cosine"].append(reference.mean_cosine(k_cloud))
        values["query_key_cosine"].append(reference.cross_cosine(q_cloud, k_cloud))
    return values
