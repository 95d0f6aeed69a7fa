"""Families attention and sinks: queries, keys, scores and patterns of the heads."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.measurement.quantity import (
    HEAD,
    INHERENT,
    RECONSTRUCTED,
    Family,
    Quantity,
    Values,
    correlation,
    magnitude,
    norm,
    share,
)
from anisoscope.metrics.attention import (
    AttentionStatistics,
    attention_statistics,
    attention_sums,
    share_of_means,
)
from anisoscope.metrics.similarity import (
    cosine,
    cross_cosine,
    drift,
    fluctuation,
    mean_cosine,
    mean_vector,
)

SINK_PAPER = "Gu et al. 2025, When Attention Sink Emerges, rows of one key left out"
SINK_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SINK_FROM = 0.3  # mean weight on the first token
LONG_ROWS = ", rows i of two keys or more"
SCORE_FORMULA = "s_ij = <q_i, k_j>/sqrt(K), plus a bias by position where the model has one"
OVER_POINTS = (
    "E over the cloud's points"  # scores and weights are over all positions of the windows
)


class Heads(NamedTuple):
    """Queries and keys of whole windows as they enter the dot product, and the cloud's points."""

    q_NBTHK: Array
    k_NBTHK: Array
    picks_P: Array  # indices into the B*T positions
    visible_TT: Array  # which key (column) each query (row) sees; (N, T, T) where blocks differ
    bias_NHTT: Array | None = None  # added to the scores of all windows, as by ALiBi


ATTENTION = {
    "query_drift": norm("query drift", f"|E q|, {OVER_POINTS}", RECONSTRUCTED, symbol="|E q|"),
    "key_drift": norm("key drift", f"|E k|, {OVER_POINTS}", RECONSTRUCTED, symbol="|E k|"),
    "query_fluctuation": norm(
        "fluctuation of queries", f"sqrt(E |q - E q|^2), {OVER_POINTS}", symbol="√E |q − E q|²"
    ),
    "key_fluctuation": norm(
        "fluctuation of keys", f"sqrt(E |k - E k|^2), {OVER_POINTS}", symbol="√E |k − E k|²"
    ),
    "query_key_alignment": correlation(
        "alignment of query and key drift",
        f"<E q, E k> / (|E q| |E k|), {OVER_POINTS}",
        RECONSTRUCTED,
    ),
    "query_cosine": correlation(
        "mean cosine of queries", "mean_cosine of q at the cloud's points", RECONSTRUCTED
    ),
    "key_cosine": correlation(
        "mean cosine of keys", "mean_cosine of k at the cloud's points", RECONSTRUCTED
    ),
    "query_key_cosine": correlation(
        "mean cosine of queries and keys",
        f"<E q/|q|, E k/|k|> of those that are not 0, {OVER_POINTS}",
        RECONSTRUCTED,
    ),
    "score_mean": Quantity("mean score", f"mean of {SCORE_FORMULA}, all visible pairs", INHERENT),
    "score_std": magnitude(
        "deviation of scores", f"standard deviation of {SCORE_FORMULA}, all visible pairs", INHERENT
    ),
    "score_std_within": magnitude(
        "deviation of scores within rows",
        f"sqrt(mean_i var_j s_ij), visible pairs{LONG_ROWS}",
    ),
    "score_of_means": Quantity(
        "score of the means", f"c = <E q, E k>/sqrt(K), {OVER_POINTS}", RECONSTRUCTED
    ),
    "score_share_of_means": share(
        "share of the scores that the means explain",
        f"c^2 / (c^2 + mean of (s_ij - c)^2), all visible pairs, c = <E q, E k>/sqrt(K), {OVER_POINTS}",
    ),
    "attention_entropy": magnitude(
        "attention entropy",
        f"mean_i of -sum_j p_ij ln p_ij, p = softmax_j s over the visible keys{LONG_ROWS}, whatever the "
        "model does with s",
        INHERENT,
        units="nat",
    ),
    "attention_max": share("largest attention", f"mean_i max_j p_ij{LONG_ROWS}", INHERENT),
    "attention_min": share(
        "smallest attention", f"mean_i min_j p_ij, visible j{LONG_ROWS}", INHERENT
    ),
    "attention_first_token": share(
        "attention on the first token",
        f"mean of p_i0 over the rows i that see it{LONG_ROWS}",
        SINK_PAPER,
    ),
    "attention_most_attended": share(
        "attention on the most attended position",
        f"max_j of the mean of p_ij over the rows i that see j{LONG_ROWS}",
    ),
}
ATTENTION = {name: replace(entry, dims=HEAD) for name, entry in ATTENTION.items()} | {
    "sink_heads": share(
        "share of the heads with an attention sink",
        f"share of the heads of a block whose attention_first_token exceeds {SINK_FROM}",
        "Gu et al. 2025, When Attention Sink Emerges",
        dims=("block",),
        resampling="",
    )
}
SINK_QUANTITIES = {
    "sink_rate": share(
        "share of heads with a sink on the first token",
        "share of the heads of a block whose attention_first_token exceeds `threshold`",
        f"{SINK_PAPER}; at one threshold there",
    ),
    "sink_rate_anywhere": share(
        "share of heads with a sink on any position",
        "share of the heads of a block whose attention_most_attended exceeds `threshold`",
    ),
}
SINK_QUANTITIES = {
    name: replace(entry, dims=("block", "threshold")) for name, entry in SINK_QUANTITIES.items()
}
WEIGHTS = {"sink_rate": "attention_first_token", "sink_rate_anywhere": "attention_most_attended"}


def measure_head(
    q_PK: Array, k_PK: Array, keep_P: Array, statistics: AttentionStatistics
) -> Values:
    """Measure one head on the kept points; `statistics` are those of the kept windows."""
    mean_q_K, mean_k_K = mean_vector(q_PK, keep_P), mean_vector(k_PK, keep_P)
    score = (mean_q_K * mean_k_K).sum() * mean_q_K.size**-0.5
    return {
        "query_drift": drift(q_PK, keep_P),
        "key_drift": drift(k_PK, keep_P),
        "query_fluctuation": fluctuation(q_PK, keep_P),
        "key_fluctuation": fluctuation(k_PK, keep_P),
        "query_key_alignment": cosine(mean_q_K, mean_k_K),
        "query_cosine": mean_cosine(q_PK, keep_P),
        "key_cosine": mean_cosine(k_PK, keep_P),
        "query_key_cosine": cross_cosine(q_PK, k_PK, keep_P, keep_P),
        "score_of_means": score,
        "score_share_of_means": share_of_means(score, statistics),
        **statistics._asdict(),
    }


def measure_heads(heads: Heads, keep_RB: Array) -> Values:
    """Measure every head, arrays (block, head, R), and every block.

    `keep_RB` weights the windows, 1 or 0: all of them, then all but each fold.
    """
    keep_RP = jnp.asarray(keep_RB)[:, heads.picks_P // heads.q_NBTHK.shape[2]]

    def measure_block(block: tuple[tuple[Array, Array], Array, Array | None]) -> Values:
        qk_BTHK, visible_TT, bias_HTT = block

        def resample_head(head: tuple[tuple[Array, Array], Array | None]) -> Values:
            qk_BTK, bias_TT = head
            q_PK, k_PK = (x_BTK.reshape(-1, x_BTK.shape[-1])[heads.picks_P] for x_BTK in qk_BTK)
            sums = attention_sums(*qk_BTK, visible_TT, bias_TT)

            def measure(keep_P: Array, keep_B: Array) -> Values:
                return measure_head(q_PK, k_PK, keep_P, attention_statistics(sums, keep_B))

            return jax.vmap(measure)(keep_RP, keep_RB)

        qk_HBTK = tuple(jnp.moveaxis(x_BTHK, 2, 0) for x_BTHK in qk_BTHK)
        return jax.lax.map(resample_head, (qk_HBTK, bias_HTT))

    visible_NTT = jnp.broadcast_to(
        heads.visible_TT, (len(heads.q_NBTHK), *heads.visible_TT.shape[-2:])
    )
    blocks_N = (heads.q_NBTHK, heads.k_NBTHK), visible_NTT, heads.bias_NHTT
    values = jax.lax.map(measure_block, blocks_N)
    first_NH = values["attention_first_token"][..., 0]
    known_N = jnp.isfinite(first_NH).all(axis=1)
    return values | {"sink_heads": jnp.where(known_N, (first_NH > SINK_FROM).mean(axis=1), jnp.nan)}


def measure_sinks(heads: Heads, keep_RB: Array) -> Values:
    """Measure blocks, (block, threshold, R); NaN where a head's weight is NaN."""
    values = measure_heads(heads, keep_RB)

    def rate(weight_NHR: Array) -> Array:
        known_N1R = jnp.isfinite(weight_NHR).all(axis=1)[:, None]
        above = weight_NHR[:, :, None] > jnp.array(SINK_THRESHOLDS)[None, None, :, None]
        return jnp.where(known_N1R, above.mean(axis=1), jnp.nan)

    return {name: rate(values[weight]) for name, weight in WEIGHTS.items()}


FAMILIES = {
    "attention": Family(measure_heads, ATTENTION),
    "sinks": Family(measure_sinks, SINK_QUANTITIES, coordinates={"threshold": SINK_THRESHOLDS}),
}
