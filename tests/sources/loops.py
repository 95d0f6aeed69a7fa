"""The panel's values again, of a cloud or a head and all of its resamples, by slow loops in
float64.
"""

import numpy as np

from anisoscope.data import unigrams
from anisoscope.metrics import frequency, registry
from anisoscope.metrics.frequency import TYPE_QUANTITIES
from tests import (
    reference,
    reference_frequency,
    reference_leading,
    reference_scale,
    reference_similarity,
    reference_spectrum,
)
from tests.sources.activated import CONTEXT, COORDINATES, FOLDS, KINDS_OF_TOKENS, MEASURED, TOKENS

SAME_NAME = (
    *("anisotropy", "anisotropy_uncentered", "participation_ratio", "effective_rank"),
    *("participation_ratio_corrected", "rankme_centered", "stable_rank", "isoscore"),
)
SPECTRAL = {name: getattr(reference_spectrum, name) for name in SAME_NAME} | {
    "isoscore_star": reference_spectrum.isoscore_star,
    "alpha_req": lambda cloud: reference_spectrum.alpha_req(cloud)[0],
    "alpha_req_r2": lambda cloud: reference_spectrum.alpha_req(cloud)[1],
}
STATISTICS = [
    "score_mean",
    "score_std",
    "score_std_within",
    "attention_entropy",
    "attention_max",
    "attention_min",
    "attention_first_token",
    "attention_most_attended",
]


def by_fold(x):
    return x.reshape(FOLDS, -1, *x.shape[1:])


def jackknife(x):
    """The whole of it, then all but one fold after another."""
    return [x, *(np.concatenate(np.delete(by_fold(x), fold, axis=0)) for fold in range(FOLDS))]


def cut(x):
    """The whole of it, then its sections."""
    return [x, *by_fold(x)]


def stacked(rows):
    """{name: array (…, R)} of what was read of each resample."""
    return {name: np.moveaxis(np.array([row[name] for row in rows]), 0, -1) for name in rows[0]}


def of_kept(part, cloud):
    drift, residual = reference_similarity.mean_cosine_parts(part)
    return {
        "top_coordinate_variance_share": [
            reference_spectrum.top_coordinate_variance_share(part, top)
            for top in COORDINATES["top"]
        ],
        "coordinate_kurtosis": reference_spectrum.coordinate_kurtosis(part),
        "activation_kurtosis": reference_spectrum.activation_kurtosis(part),
        "coordinate_peak": reference_spectrum.coordinate_peaks(part).mean(),
        "log_partition_isotropy": reference_similarity.log_partition_isotropy(part, cloud),
        "mean_cosine": reference.mean_cosine(part),
        "mean_cosine_drift": drift,
        "mean_cosine_residual": residual,
        "drift": reference.drift(part),
        "relative_drift": reference_similarity.relative_drift(part),
        "mean_norm": reference.mean_norm(part),
    }


def of_section(part):
    x, distances = reference.log_ratios(part), reference_scale.distances(part)
    nearest = min(20, distances.shape[1])
    inverse = 1 / reference_scale.local_dimensions(distances, nearest)
    fits = [(first, 2 * first <= distances.shape[1]) for first in COORDINATES["neighbors"]]
    return {
        "twonn": reference.twonn(part),
        "twonn_mle": reference.twonn_mle(part),
        "twonn_bayes": (2 + len(x)) / (5 + x.sum()),
        "twonn_bayes_std": np.sqrt(2 + len(x)) / (5 + x.sum()),
        "gride": [
            reference_scale.gride(distances, first) if fit else np.nan for first, fit in fits
        ],
        "levina_bickel": reference_scale.levina_bickel(distances, nearest),
        "local_dimension": [1 / np.quantile(inverse, 1 - q) for q in COORDINATES["quantile"]],
    }


def slow_cloud(cloud):
    """Of the whole cloud and every resample, in float64."""
    values = stacked([of_section(part) for part in cut(cloud)])
    if len(reference.log_ratios(cloud)) < min(64, len(cloud) / 2):
        values = {name: np.full_like(value, np.nan) for name, value in values.items()}
    values |= stacked([of_kept(part, cloud) for part in jackknife(cloud)])
    _, useless, dropped = reference.twonn_microscope(cloud)
    return values | {
        "twonn_microscope": np.array([reference.twonn_microscope(part)[0] for part in cut(cloud)]),
        "massive_activation": reference_spectrum.coordinate_peaks(cloud).max(),
        "duplicate_points": reference.duplicate_points(cloud),
        "twonn_dropped": reference.twonn_dropped(cloud),
        "microscope_useless": useless,
        "microscope_dropped": dropped,
        "decimation": [
            reference_scale.decimation(cloud, factor) if np.isfinite(values["twonn"][0]) else np.nan
            for factor in COORDINATES["factor"]
        ],
    }


def slow_spectra(cloud):
    """Of the whole cloud, and without its top coordinates; replicates follow to first order only,
    by the spectrum.
    """
    order = np.argsort(-reference.float64(cloud).var(0))
    without = [np.delete(cloud, order[:top], axis=1) for top in COORDINATES["top"]]
    values = {name: read(cloud) for name, read in SPECTRAL.items()}
    return values | {
        "anisotropy_without_top_coordinates": [
            reference_spectrum.anisotropy(part) if part.size else np.nan for part in without
        ]
    }


def slow_leading(cloud, picks):
    """Of the whole cloud and every resample, in float64; who is long and the first direction are
    those of the whole.
    """
    window, first = picks // CONTEXT, picks % CONTEXT == 0
    points = np.arange(len(cloud))
    long = reference_leading.longest(cloud, max(1, len(cloud) // 100))
    kept = [np.isin(points, part) for part in jackknife(points)]
    between, by_norm = reference_leading.share_between, reference_leading.share_by_norm
    values = {
        "first_token_variance_share": [between(cloud[keep], first[keep]) for keep in kept],
        "first_token_variance_share_by_norm": [by_norm(cloud[keep], first[keep]) for keep in kept],
        "longest_vectors_variance_share": [between(cloud[keep], long[keep]) for keep in kept],
    }
    left = [~reference_leading.longest_of_each(cloud, window), ~long]
    without = [reference_leading.first_direction(cloud, one, kept)[0] for one in left]
    everything, place = np.ones_like(first), picks % CONTEXT
    _, kurtosis, variance = reference_leading.first_direction(cloud, everything, kept, place)
    more = {
        "anisotropy_without_longest": without,
        "first_pc_kurtosis": kurtosis,
        "first_pc_variance_by_position": variance,
    }
    for name, read in (("mean_cosine", reference.mean_cosine), ("drift", reference.drift)):
        more[f"{name}_without_longest"] = [
            [read(cloud[keep & one]) for keep in kept] for one in left
        ]
    sections = [np.isin(points, part) for part in cut(points)]
    twonn = [[reference.twonn(cloud[part & one]) for part in sections] for one in left]
    enough = [[len(reference.log_ratios(cloud[one])) >= min(64, len(cloud) / 2)] for one in left]
    more["twonn_without_longest"] = np.where(enough, twonn, np.nan)
    windows = [cloud[window == number] for number in range(max(window) + 1)]
    entropy = np.array([*map(reference_leading.entropy, windows)])
    more["prompt_entropy"] = [entropy[np.unique(window[keep])].mean() for keep in kept]
    if not first.any():
        names = "first_token_variance_share", "first_token_variance_share_by_norm"
        values |= dict.fromkeys(names, np.full(len(kept), np.nan))
    return {name: np.array(value) for name, value in (values | more).items()} | {
        "norm_ratio": reference_leading.norm_ratio(cloud)
    }


def slow_frequency(cloud, tokens, picks):
    """Of the whole cloud and every resample, in float64; which types are frequent is decided on the
    whole.
    """
    points = np.arange(len(cloud))
    kept = [np.isin(points, part) for part in jackknife(points)]
    values = {name: [] for name in MEASURED if registry.find_family(name) == "frequency"}
    letters, most = tokens.ravel()[picks] // 8, len(cloud) // 20
    bins = unigrams.bins(unigrams.log_frequency(TOKENS // 8, 1, KINDS_OF_TOKENS))[letters]
    kinds, mean = reference_frequency.frequent(letters, 20), reference_frequency.mean_by_bin
    distances = [reference_frequency.distances(cloud, kinds, most, keep) for keep in kept]
    norms = [np.linalg.norm(cloud, axis=1)] * len(kept)
    binned = {"norm_by_frequency": norms, "centroid_distance_by_frequency": distances}
    for name, rows in binned.items():
        pairs = zip(rows, kept, strict=True)
        found = [mean(row, bins, len(frequency.BINS), keep) for row, keep in pairs]
        values[name] = np.transpose(found)
    for length in frequency.LENGTHS:
        types = unigrams.types(tokens // 8, length, KINDS_OF_TOKENS).ravel()[picks]
        logs = np.where(
            types < 0, 0, unigrams.log_frequency(TOKENS // 8, length, KINDS_OF_TOKENS)[types]
        )
        number = reference_frequency.frequent(types, 20)
        found = [reference_frequency.of_types(cloud, number, logs, most, keep) for keep in kept]
        for name, value in zip(TYPE_QUANTITIES, np.transpose(found), strict=True):
            values[name].append(value)
        values["frequent_points"].append((number < most).sum())
        values["frequent_types"].append(len(set(number) - {most}))
    return values


def slow_head(q, k, picks, visible):
    clouds = (jackknife(x.reshape(-1, x.shape[-1])[picks]) for x in (q, k))
    parts, rows = zip(jackknife(q), jackknife(k), *clouds, strict=True), []
    for q_part, k_part, q_cloud, k_cloud in parts:
        statistics = reference.attention_statistics(q_part, k_part, visible)
        row = dict(zip(STATISTICS, statistics, strict=True))
        for side, cloud in (("query", q_cloud), ("key", k_cloud)):
            row[f"{side}_drift"] = reference.drift(cloud)
            row[f"{side}_fluctuation"] = reference.fluctuation(cloud)
            row[f"{side}_cosine"] = reference.mean_cosine(cloud)
        of_means, share = reference.scores_and_means(q_part, k_part, visible, q_cloud, k_cloud)
        row |= {"score_of_means": of_means, "score_share_of_means": share}
        means = (reference.float64(x).mean(0) for x in (q_cloud, k_cloud))
        row["query_key_alignment"] = reference.cosine(*means)
        row["query_key_cosine"] = reference.cross_cosine(q_cloud, k_cloud)
        rows.append(row)
    return stacked(rows)
