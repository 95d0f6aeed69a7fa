"""Families attention and sinks: queries, keys, scores and patterns of the heads."""

from dataclasses import replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from anisoscope.metrics.cloud import AnyArray, Scalar, largest, product
from anisoscope.metrics.quantity import (
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
from anisoscope.metrics.similarity import (
    cosine,
    cross_cosine,
    fluctuation,
    mean_vector,
    weighted_drift,
    weighted_mean_cosine,
)

# scores computed at once on a CPU (at least one window's), so that their arrays fit a core's cache
SCORES_AT_ONCE = 2**16


class AttentionSums(NamedTuple):
    """Means of each window over its visible pairs, or over its rows with at least two of these."""

    offset: Scalar  # common to all scores
    level_B: Float[Array, " B"]  # mean score, less the offset
    variance_B: Float[Array, " B"]  # variance of the scores
    within_B: Float[Array, " B"]  # variance of the scores of a row
    entropy_B: Float[Array, " B"]
    maximum_B: Float[Array, " B"]
    minimum_B: Float[Array, " B"]
    first_B: Float[Array, " B"]  # weight of key 0
    # weight of each key, over the rows that see it; 0 for a key that no row sees
    received_BT: Float[Array, "B T"]


class AttentionStatistics(NamedTuple):
    """Statistics of a head; the last six are NaN if no row sees two keys."""

    score_mean: Scalar  # over all visible pairs of all windows, like the deviation
    score_std: Scalar
    score_std_within: Scalar  # within a row; the rest of score_std is removed by the softmax
    attention_entropy: Scalar  # mean of -sum_j p_ij ln p_ij, nats; [0, ln T]
    attention_max: Scalar  # mean of the largest p_ij of a row; [0, 1]
    attention_min: Scalar  # mean of the smallest visible p_ij; 0 for a p_ij below 1e-38
    attention_first_token: Scalar  # mean of p_i0 over the rows that see key 0, NaN if none
    # largest mean of p_ij over the rows that see j; with few windows j may be a late key
    attention_most_attended: Scalar


def attention_statistics(
    sums: AttentionSums, keep_B: Float[Array, " B"] | None = None
) -> AttentionStatistics:
    """Statistics of the scores s_ij = <q_i, k_j>/sqrt(K) and of p_ij = softmax_j s_ij of a head.

    They cover the visible pairs of B windows, with weight 1 or 0 for each window (None: all). A row
    with fewer than two visible keys has nothing to choose: it enters score_mean and score_std only.
    All are NaN without a visible pair, or where no window is kept.
    """
    keep_B = jnp.ones(sums.level_B.shape) if keep_B is None else keep_B

    def mean(value_B: Float[Array, "B ..."]) -> Float[Array, "..."]:
        return product(keep_B, value_B) / keep_B.sum()

    level = mean(sums.level_B)
    variance = mean(sums.variance_B + jnp.square(sums.level_B - level))
    sharpness = (
        mean(value_B) for value_B in (sums.entropy_B, sums.maximum_B, sums.minimum_B, sums.first_B)
    )
    within, most = jnp.sqrt(mean(sums.within_B)), largest(mean(sums.received_BT))
    return AttentionStatistics(sums.offset + level, jnp.sqrt(variance), within, *sharpness, most)


def share_of_means(score_of_means: Scalar, statistics: AttentionStatistics) -> Scalar:
    """Share of the scores that the mean query and key alone explain: c^2 / (c^2 + E (s - c)^2).

    c = <E q, E k>/sqrt(K), which the softmax removes. Range: [0, 1]. NaN if all scores are 0.
    """
    square = jnp.square(score_of_means)
    about = jnp.square(statistics.score_std) + jnp.square(statistics.score_mean - score_of_means)
    return square / (square + about)


def attention_sums(
    q_BTK: Float[AnyArray, "B T K"],
    k_BTK: Float[AnyArray, "B T K"],
    visible_TT: Bool[AnyArray, "T T"],
    bias_TT: Float[AnyArray, "T T"] | None = None,
) -> AttentionSums:
    """Sum up the scores of one head, from which the statistics of any of its windows follow.

    With a common bias scores are large and nearly equal (mean 1e3, deviation within a row 0.07),
    and float32 would leave two digits. So s_ij = c + a_i + e_ij, where e_ij uses centered keys, a_i
    centered queries against the mean key, and c is the product of the means of all windows. Sums
    run over a row first, then over rows. `bias_TT` is added to the scores, as in ALiBi.
    """
    q_BTK, k_BTK = (jnp.asarray(x_BTK, jnp.float32) for x_BTK in (q_BTK, k_BTK))
    q_BTK = q_BTK * q_BTK.shape[-1] ** -0.5
    mean_q_K = _mean_over(q_BTK, visible_TT.any(axis=1))
    mean_k_K = _mean_over(k_BTK, visible_TT.any(axis=0))
    offset = (mean_q_K * mean_k_K).sum()
    row_offset_BT = product(q_BTK - mean_q_K[None, None], mean_k_K)
    bias_TT = (
        None if bias_TT is None else jnp.where(visible_TT, jnp.asarray(bias_TT, jnp.float32), 0.0)
    )
    keys_1T = visible_TT.sum(axis=1)[None].astype(jnp.float32)
    chooses_1T = keys_1T >= 2

    def read_window(window: tuple[Array, Array]) -> tuple[Array, ...]:
        q_TK, k_TK = window
        e_TT = product(q_TK, k_TK.T)
        if bias_TT is not None:
            e_TT = e_TT + bias_TT
        row_mean_T = jnp.where(visible_TT, e_TT, 0.0).sum(axis=1) / jnp.maximum(keys_1T[0], 1.0)
        square_T = jnp.where(visible_TT, jnp.square(e_TT - row_mean_T[:, None]), 0.0).sum(axis=1)
        return row_mean_T, square_T, *_row_sharpness(e_TT, visible_TT, chooses_1T[0])

    windows, at_once = len(q_BTK), max(1, SCORES_AT_ONCE // visible_TT.size)
    at_once = min(windows, at_once) if jax.default_backend() == "cpu" else windows
    window_sums = jax.lax.map(
        read_window, (q_BTK, k_BTK - mean_k_K[None, None]), batch_size=at_once
    )
    row_mean_BT, square_BT, *sharpness, received_sum_BT = window_sums
    score_BT = row_mean_BT + row_offset_BT
    level_B = (keys_1T * score_BT).sum(axis=1) / keys_1T.sum()
    between_BT = keys_1T * jnp.square(score_BT - level_B[:, None])

    rows_1T = jnp.where(chooses_1T.T, visible_TT, False).sum(axis=0)[None]  # rows that see a key

    def over_rows(value_BT: Float[Array, "B T"]) -> Float[Array, " B"]:
        return jnp.where(chooses_1T, value_BT, 0.0).sum(axis=1) / chooses_1T.sum()

    received_BT = received_sum_BT / jnp.where(chooses_1T.any(), jnp.maximum(rows_1T, 1), 0)
    return AttentionSums(
        offset,
        level_B,
        (square_BT + between_BT).sum(axis=1) / keys_1T.sum(),
        over_rows(square_BT / keys_1T),
        *(over_rows(value_BT) for value_BT in sharpness),
        jnp.where(rows_1T[:, 0] > 0, received_BT[:, 0], jnp.nan),
        received_BT,
    )


def _row_sharpness(
    e_TT: Float[Array, "T T"], visible_TT: Bool[Array, "T T"], chooses_T: Bool[Array, " T"]
) -> tuple[Float[Array, " T"], ...]:
    """Compute each row's softmax entropy, largest and smallest weight, and the weights on each key.

    The weights on a key are summed over the rows that choose. The first three are meaningless
    where a row does not choose.
    """
    # masked before the exponential: three times faster on a CPU
    score_TT = jnp.where(visible_TT, e_TT, -jnp.inf)
    most_T = score_TT.max(axis=1)
    least_T = jnp.where(visible_TT, e_TT, jnp.inf).min(axis=1)
    shifted_TT = score_TT - most_T[:, None]
    weight_TT = jnp.exp(shifted_TT)
    total_T = weight_TT.sum(axis=1)
    entropy_T = (
        jnp.log(total_T) - jnp.where(visible_TT, weight_TT * shifted_TT, 0.0).sum(axis=1) / total_T
    )
    smallest_T = jnp.exp(least_T - most_T) / total_T
    share_TT = jnp.where(chooses_T[:, None], weight_TT / total_T[:, None], 0.0)
    # rounding can leave an entropy of -1e-8
    return jnp.maximum(entropy_T, 0.0), 1.0 / total_T, smallest_T, share_TT.sum(axis=0)


def _mean_over(x_BTK: Float[Array, "B T K"], mask_T: Bool[Array, " T"]) -> Float[Array, " K"]:
    """Average over windows and chosen positions; values elsewhere may be huge, as at sinks."""
    masked_BTK = jnp.where(mask_T[None, :, None], x_BTK, 0.0)
    return masked_BTK.mean(axis=0).sum(axis=0) / mask_T.sum()


SINK_PAPER = "Gu et al. 2025, When Attention Sink Emerges, rows of one key left out"
SINK_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
SINK_FROM = 0.3  # mean weight on the first token
LONG_ROWS = ", rows i of two keys or more"
SCORE_FORMULA = "s_ij = <q_i, k_j>/sqrt(K), plus a bias by position where the model has one"
# scores and weights are over all positions of the windows
OVER_POINTS = "E over the cloud's points"


class Heads(NamedTuple):
    """Queries and keys of whole windows as they enter the dot product, and the cloud's points."""

    q_NBTHK: Array
    k_NBTHK: Array
    picks_P: Array  # indices into the B*T positions
    visible_TT: Array  # which key (column) each query (row) sees; (N, T, T) where blocks differ
    bias_NHTT: Array | None = None  # added to the scores of all windows, as by ALiBi


ATTENTION_QUANTITIES = {
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
ATTENTION_QUANTITIES = {
    name: replace(entry, dims=HEAD) for name, entry in ATTENTION_QUANTITIES.items()
} | {
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
SINK_WEIGHTS = {
    "sink_rate": "attention_first_token",
    "sink_rate_anywhere": "attention_most_attended",
}


def measure_head(
    q_PK: AnyArray, k_PK: AnyArray, keep_P: AnyArray, statistics: AttentionStatistics
) -> Values:
    """Measure one head on the kept points; `statistics` are those of the kept windows."""
    mean_q_K, mean_k_K = mean_vector(q_PK, keep_P), mean_vector(k_PK, keep_P)
    score = (mean_q_K * mean_k_K).sum() * mean_q_K.size**-0.5
    return {
        "query_drift": weighted_drift(q_PK, keep_P),
        "key_drift": weighted_drift(k_PK, keep_P),
        "query_fluctuation": fluctuation(q_PK, keep_P),
        "key_fluctuation": fluctuation(k_PK, keep_P),
        "query_key_alignment": cosine(mean_q_K, mean_k_K),
        "query_cosine": weighted_mean_cosine(q_PK, keep_P),
        "key_cosine": weighted_mean_cosine(k_PK, keep_P),
        "query_key_cosine": cross_cosine(q_PK, k_PK, keep_P, keep_P),
        "score_of_means": score,
        "score_share_of_means": share_of_means(score, statistics),
        **statistics._asdict(),
    }


def measure_heads(heads: Heads, keep_RB: AnyArray) -> Values:
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

            def measure(keep_P: AnyArray, keep_B: Array) -> Values:
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


def measure_sinks(heads: Heads, keep_RB: AnyArray) -> Values:
    """Measure blocks, (block, threshold, R); NaN where a head's weight is NaN."""
    values = measure_heads(heads, keep_RB)

    def rate(weight_NHR: Array) -> Array:
        known_N1R = jnp.isfinite(weight_NHR).all(axis=1)[:, None]
        above = weight_NHR[:, :, None] > jnp.array(SINK_THRESHOLDS)[None, None, :, None]
        return jnp.where(known_N1R, above.mean(axis=1), jnp.nan)

    return {name: rate(values[weight]) for name, weight in SINK_WEIGHTS.items()}


ATTENTION = Family("heads", measure_heads, ATTENTION_QUANTITIES)
SINKS = Family("heads", measure_sinks, SINK_QUANTITIES, coordinates={"threshold": SINK_THRESHOLDS})
