"""Measure cheap geometry of a training batch inside the program of a step.

The activations are those that the step computes anyway, at a fixed choice of positions of its
batch. The text (and, for masked objectives, the mask) differs at every measurement. So a curve is
dense in time and noisy; the panel's is neither.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.run_config import RunConfig
from anisoscope.metrics import similarity
from anisoscope.metrics.cloud import centered
from anisoscope.models.masks import visible_keys

ITERATIONS = 32  # power method: error 1 % where the second eigenvalue is 0.95 of the first
WATCHED_WINDOWS = 2  # windows of a batch whose attention is measured


class Snapshot(NamedTuple):
    """The part of a block's activations that is measured."""

    cloud_PD: jax.Array
    q_BTHK: jax.Array  # for WATCHED_WINDOWS windows
    k_BTHK: jax.Array


def select_cloud(config: RunConfig, x_BTD: jax.Array) -> jax.Array:
    """Select the vectors of the watched positions."""
    flat_PD = x_BTD.reshape(-1, x_BTD.shape[-1])
    picks_P = np.random.default_rng(0).permutation(flat_PD.shape[0])[: config.watch.points]
    return jax.lax.stop_gradient(flat_PD[picks_P])


def make_capture(config: RunConfig) -> Callable[[jax.Array, jax.Array, jax.Array], Snapshot]:
    """Make the function that takes a snapshot of a block's activations."""
    return lambda x_BTD, q_BTHK, k_BTHK: Snapshot(
        select_cloud(config, x_BTD), q_BTHK[:WATCHED_WINDOWS], k_BTHK[:WATCHED_WINDOWS]
    )


def measure_snapshot(
    config: RunConfig, embedding_PD: jax.Array, snapshot_N: Snapshot, grads: dict[str, Any]
) -> dict[str, jax.Array]:
    """Measure quantities by layer, (N + 1,), or by block, (N,); gradients are not clipped yet."""
    cloud_NPD = jnp.concatenate([embedding_PD[None], snapshot_N.cloud_PD]).astype(jnp.float32)
    anisotropy_N, ratio_N = jax.vmap(spectral_measures)(cloud_NPD)
    squares = [
        jnp.square(leaf).reshape(leaf.shape[0], -1).sum(1)
        for leaf in jax.tree.leaves(grads["blocks"])
    ]
    return {
        "anisotropy": anisotropy_N,
        "participation_ratio": ratio_N,
        "mean_cosine": jax.vmap(similarity.weighted_mean_cosine)(cloud_NPD),
        "drift": jax.vmap(similarity.weighted_drift)(cloud_NPD),
        "mean_norm": jax.vmap(similarity.weighted_mean_norm)(cloud_NPD),
        "attention_first_token": attention_first_token(
            config, snapshot_N.q_BTHK, snapshot_N.k_BTHK
        ),
        "gradient_norm": jnp.sqrt(sum(squares)),
    }


def spectral_measures(cloud_PD: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Compute anisotropy and participation ratio from the smaller of the two Gram matrices.

    With G = x x' or x' x of the centered cloud, trace(G)^2 / |G|^2 is the participation ratio. The
    largest eigenvalue comes from the power method, so anisotropy is never too large.
    """
    x_PD = centered(cloud_PD)
    x_PD = x_PD if x_PD.shape[0] <= x_PD.shape[1] else x_PD.T
    gram_EE = jnp.matmul(x_PD, x_PD.T, precision=jax.lax.Precision.HIGHEST)
    start_E = jax.random.normal(jax.random.key(0), gram_EE.shape[:1])

    def closer(_: int, v_E: jax.Array) -> jax.Array:
        v_E = gram_EE @ v_E
        return v_E / jnp.linalg.norm(v_E)

    v_E = jax.lax.fori_loop(0, ITERATIONS, closer, start_E)
    trace = jnp.trace(gram_EE)
    return v_E @ (gram_EE @ v_E) / trace, jnp.square(trace) / jnp.square(gram_EE).sum()


def attention_first_token(config: RunConfig, q_NBTHK: jax.Array, k_NBTHK: jax.Array) -> jax.Array:
    """Average the softmax weight on key 0 over heads and rows that see it and another key: (N,)."""
    visible_TT = visible_keys(config.model, q_NBTHK.shape[2])
    counted_T = visible_TT[:, 0] & (visible_TT.sum(axis=1) > 1)

    def first_token_weight(both: tuple[jax.Array, jax.Array]) -> jax.Array:
        q_BTHK, k_BTHK = (x.astype(jnp.float32) for x in both)
        scores_BHTT = jnp.einsum("bthk,bshk->bhts", q_BTHK * q_BTHK.shape[-1] ** -0.5, k_BTHK)
        weights_BHTT = jax.nn.softmax(jnp.where(visible_TT, scores_BHTT, -jnp.inf))
        return jnp.where(counted_T, weights_BHTT[..., 0], 0.0).mean((0, 1)).sum() / counted_T.sum()

    return jax.lax.map(first_token_weight, (q_NBTHK, k_NBTHK))
