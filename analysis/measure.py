"""The one place where metrics are composed: a model's activations on the probe -> every quantity asked for.

Arrays carry the letters of `models`, and W windows of a probe batch, G probe batches, S position sets.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from metrics.attention import attention_statistics
from metrics.dimension import twonn, twonn_microscope, twonn_mle
from metrics.neighbours import nearest_neighbours
from metrics.similarity import cosine, cross_cosine, drift, mean_cosine, mean_norm, mean_vector
from metrics.spectrum import anisotropy, covariance_eigenvalues


def make_measure(
    apply: Callable[[Any, Array], tuple[Array, Any]], mask: str, families: tuple[str, ...]
) -> Callable[[Any, Array, Array], dict[str, Array]]:
    """measure(params, tokens_GWT, picks_SGP) -> {quantity: (S, G, layer) or (S, G, block, head)}, pure and un-jitted.

    `apply(params, tokens_BT) -> (logits, Activations)` must compute in float32; `mask` is the model's, causal or
    bidirectional. Batches, position sets, layers and heads go one after another: the memory is one forward pass of
    one batch and one cloud. Without position 0 the clouds leave out the first vector of each window, and
    attention leaves it out as query and as key: the softmax over the other keys tells what sharpness there is apart
    from a sink on the first character.
    """

    # Accelerators round the factors of float32 products to TF32 or bfloat16 unless told not to.
    @jax.default_matmul_precision("highest")
    def measure(params: Any, tokens_GWT: Array, picks_SGP: Array) -> dict[str, Array]:
        visible_STT = visible_keys(mask, tokens_GWT.shape[-1])

        def measure_batch(batch: tuple[Array, Array]) -> dict[str, Array]:
            tokens_WT, picks_SP = batch
            _, activations = apply(params, tokens_WT)
            return jax.lax.map(
                lambda chosen: _measure_positions(activations, *chosen, families), (picks_SP, visible_STT)
            )

        values = jax.lax.map(measure_batch, (tokens_GWT, jnp.swapaxes(picks_SGP, 0, 1)))
        return {name: jnp.swapaxes(value, 0, 1) for name, value in values.items()}

    return measure


def visible_keys(mask: str, time: int) -> Array:
    """Which key (last axis) each query sees, for the two position sets: as in the model, and without position 0."""
    all_TT = jnp.ones((time, time), bool)
    all_TT = jnp.tril(all_TT) if mask == "causal" else all_TT
    return jnp.stack([all_TT, all_TT.at[0].set(False).at[:, 0].set(False)])


def _measure_positions(
    activations: Any, picks_P: Array, visible_TT: Array, families: tuple[str, ...]
) -> dict[str, Array]:
    def of_layer(x_BTD: Array) -> dict[str, Array]:
        return measure_cloud(x_BTD.reshape(-1, x_BTD.shape[-1])[picks_P], families)

    def of_block(qk_BTHK: tuple[Array, Array]) -> dict[str, Array]:
        q_HBTK, k_HBTK = (jnp.moveaxis(x_BTHK, 2, 0) for x_BTHK in qk_BTHK)
        return jax.lax.map(lambda qk_BTK: measure_head(*qk_BTK, picks_P, visible_TT), (q_HBTK, k_HBTK))

    values = jax.lax.map(of_layer, activations.resid_NBTD)
    if "attention" in families:
        values |= jax.lax.map(of_block, (activations.q_NBTHK, activations.k_NBTHK))
    return values


def measure_cloud(cloud_PD: Array, families: tuple[str, ...]) -> dict[str, Array]:
    """The quantities of one cloud: one spectrum and one search for neighbours, each read in several ways."""
    values = {}
    if "spectrum" in families:
        values["anisotropy"] = anisotropy(covariance_eigenvalues(cloud_PD))
    if "dimension" in families:
        neighbours = nearest_neighbours(cloud_PD)
        microscope = twonn_microscope(neighbours)
        values |= {
            "twonn": twonn(neighbours),
            "twonn_mle": twonn_mle(neighbours),
            "twonn_microscope": microscope.dimension,
            "duplicate_points": neighbours.duplicates(),
            "twonn_dropped": neighbours.dropped(),
            "microscope_useless": microscope.useless,
            "microscope_dropped": microscope.dropped,
        }
    if "similarity" in families:
        values |= {"mean_cosine": mean_cosine(cloud_PD), "drift": drift(cloud_PD), "mean_norm": mean_norm(cloud_PD)}
    return values


def measure_head(q_BTK: Array, k_BTK: Array, picks_P: Array, visible_TT: Array) -> dict[str, Array]:
    """The attention family of one head: clouds of queries and keys at the picked positions, scores at all."""
    q_PK, k_PK = (x_BTK.reshape(-1, x_BTK.shape[-1])[picks_P] for x_BTK in (q_BTK, k_BTK))
    statistics = attention_statistics(q_BTK, k_BTK, visible_TT)
    return {
        "query_drift": drift(q_PK),
        "key_drift": drift(k_PK),
        "query_key_alignment": cosine(mean_vector(q_PK), mean_vector(k_PK)),
        "query_cosine": mean_cosine(q_PK),
        "key_cosine": mean_cosine(k_PK),
        "query_key_cosine": cross_cosine(q_PK, k_PK),
        "score_mean": statistics.score_mean,
        "score_std": statistics.score_std,
        "score_std_within": statistics.score_std_within,
        "attention_entropy": statistics.entropy,
        "attention_max": statistics.maximum,
        "attention_min": statistics.minimum,
    }
