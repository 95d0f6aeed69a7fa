"""Predict in closed form how an untrained block changes a common bias.

The predictions are expectations over initial values, for large D.

Setting. Rows x_i of the table have independent entries of variance s², so that |x_i|² = d = D s²,
and x_i x_j = 0 but for fluctuations of order d/sqrt(D); rows after LayerNorm have d = D. The common
bias b has norm N. Products are then

    (x_i + b)(x_j + b) = N² + d [i = j].
"""

import math
from typing import NamedTuple

import numpy as np

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.untrained_config import UntrainedConfig
from anisoscope.models.masks import visible_keys


class ScoreDeviations(NamedTuple):
    """Standard deviations of attention scores of a block."""

    overall: np.ndarray  # of all scores of a block, heads together
    head: np.ndarray  # within heads
    within: np.ndarray  # within rows


def deviation(config: UntrainedConfig) -> float:
    """Return s, the deviation of table entries and kernels: 0.8796 sigma where cut at 2 sigma.

    Var(z | |z| < a) = 1 - 2 a phi(a) / (2 Phi(a) - 1).
    """
    cut = 2.0
    density = math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
    variance = 1 - 2 * cut * density / math.erf(cut / math.sqrt(2))
    return config.sigma * (math.sqrt(variance) if config.truncated else 1.0)


def row_norm(config: UntrainedConfig, embedding: str) -> float:
    """Return sqrt(d): the root mean square norm of the vectors that the bias is added to."""
    return math.sqrt(config.width) * (deviation(config) if embedding == "raw" else 1.0)


def reference_norm(config: UntrainedConfig, norm_order: str, embedding: str, target: str) -> float:
    """Return the unit of the bias's norm: that of the input, or of the queries of all heads.

    A query W'z has |W'z|² = D s² |z|² in expectation; z is the input, or in pre-LN its LayerNorm,
    |z|² = D.
    """
    if target == "input":
        return row_norm(config, embedding)
    attended = math.sqrt(config.width) if norm_order == "pre" else row_norm(config, embedding)
    return math.sqrt(config.width) * deviation(config) * attended


def cosine_in(config: UntrainedConfig, embedding: str, bias_norm: np.ndarray) -> np.ndarray:
    """Return c + (1 - c)/V: c = N²/(N² + d) for different rows, 1 for equal ones, 1 pair in V."""
    energy = row_norm(config, embedding) ** 2
    cosine = np.square(bias_norm) / (np.square(bias_norm) + energy)
    return cosine + (1 - cosine) / config.vocabulary


def score_deviations(
    config: UntrainedConfig,
    norm_order: str,
    mask: str,
    embedding: str,
    target: str,
    bias_norm: np.ndarray,
) -> ScoreDeviations:
    """Return deviations of the first block's scores, expected over W_q, W_k and the rows.

    s_ij = (W_q'z_i + b_q)(W_k'z_j + b_k)/sqrt(K), kernels of variance s², heads of width K. Over
    the kernels, E s is the constant b_q b_k/sqrt(K) of a head, and the other three terms are
    uncorrelated:

        cov(s_ij, s_kl) = s⁴ (z_i z_k)(z_j z_l) + s² (|b_q|² (z_j z_l) + |b_k|² (z_i z_k))/D,

    where |b_q|² counts all heads. Insert z_i z_k = N² + d [i = k] and average over the pairs that
    the mask shows: n_i keys in row i, M = sum n_i pairs and R = sum n_i² in each of B sequences.
    All: var s = s⁴ (N² + d)² + s² (N² + d)(|b_q|² + |b_k|²)/D. Rows: E var = (s⁴ (N² + d) + s²
    |b_q|²/D) d (1 - 1/n_i). What is constant in a row, as a bias of the keys, drops out, so that
    this deviation grows as N where that of all scores grows as N². Heads: the first line less the
    variance of the head's mean, s⁴ (N⁴ + (2 N² d R/M² + d²/M)/B) + s² (N² + d R/(M² B))(|b_q|² +
    |b_k|²)/D. Of all scores only 1/H of it is lost, since b'W_q W_k'b is another number in each
    head; and where queries and keys share a bias, so is their b_q b_k, N² times Beta(K/2, (D -
    K)/2). In pre-LN z = LayerNorm(x + b), which divides N² and d by (N² + d)/D.
    """
    width, heads, time = config.width, config.heads, config.context
    sigma_2, sigma_4 = deviation(config) ** 2, deviation(config) ** 4
    norm_2 = np.square(np.asarray(bias_norm, np.float64))
    common, own = (
        norm_2 * (target == "input"),
        np.full_like(norm_2, row_norm(config, embedding) ** 2),
    )
    if norm_order == "pre":
        common, own = (
            part * width / (norm_2 * (target == "input") + own) for part in (common, own)
        )
    query, key = (norm_2 * (target in (name, "both")) for name in ("queries", "keys"))

    keys_T = keys_of_rows(mask, time)
    pairs, rows = keys_T.sum(), np.square(keys_T).sum() / keys_T.sum() ** 2
    shared = 2 * common * own * rows + np.square(own) / pairs
    product = sigma_4 * (np.square(common) + shared / config.sequences)
    sides = sigma_2 * (query + key) / width
    square = sigma_4 * np.square(common + own) + sides * (common + own)
    head_mean = product + sides * (common + own * rows / config.sequences)
    head_width = width // heads
    offset = (
        np.square(norm_2) * (target == "both") * 2 * (width - head_width) / (width**2 * (width + 2))
    )
    free = np.mean(1 - 1 / keys_T[keys_T > 1])
    within = (sigma_4 * (common + own) + sigma_2 * query / width) * own * free
    return ScoreDeviations(
        np.sqrt(square - head_mean / heads + offset), np.sqrt(square - head_mean), np.sqrt(within)
    )


def keys_of_rows(mask: str, time: int) -> np.ndarray:
    """Return how many keys each query sees, (T,), for masks without extra settings."""
    return np.asarray(visible_keys(ModelConfig(mask=mask, context=time), time)).sum(axis=1)
