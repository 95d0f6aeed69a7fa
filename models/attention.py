"""Attention and its variants, rotary positions, and the removal of the mean query."""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Bool, Float

from models.config import ModelConfig
from models.masks import visible_keys


class Sink(NamedTuple):
    """A key k' and a value of each head that belong to no position and are seen by all."""

    score_BHT: Array  # <q, k'> / sqrt(K), float32
    value_HK: Array


def rotate(x_BTHK: Float[Array, "B T H K"]) -> Float[Array, "B T H K"]:
    """Rotary positions: the pair (i, i + K/2) at time t turns by the angle t * 10000^(-2i/K), in float32."""
    time, width = x_BTHK.shape[1], x_BTHK.shape[3]
    rate_K = 10_000.0 ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angle_TK = jnp.outer(jnp.arange(time, dtype=jnp.float32), rate_K)[None, :, None]
    low, high = jnp.split(x_BTHK.astype(jnp.float32), 2, axis=-1)
    cos, sin = jnp.cos(angle_TK), jnp.sin(angle_TK)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1).astype(x_BTHK.dtype)


def centre(q_BTHK: Float[Array, "B T H K"], visible_TT: Bool[Array, "T T"]) -> Float[Array, "B T H K"]:
    """Queries less their mean over the positions that each one sees, so that nothing hidden enters; in float32.

    With means Q of the queries and k of the keys a row sees, a score is <q_i, k_j> = <q_i, k> + <Q, k_j - k> +
    <q_i - Q, k_j - k>. The first term is the same for all j, and the softmax removes it: a mean key never sharpens.
    The second is a pattern that all queries share, and drift makes it: it is what this removes. The third, sharpness
    by fluctuation, stays. Keys are left alone, since taking their mean from a row's keys would change no weight.
    """
    share_TT = visible_TT / visible_TT.sum(axis=1, keepdims=True)
    mean_BTHK = jnp.einsum("ts,bshk->bthk", share_TT, q_BTHK.astype(jnp.float32), precision=Precision.HIGHEST)
    return (q_BTHK.astype(jnp.float32) - mean_BTHK).astype(q_BTHK.dtype)


def attend(
    q_BTHK: Float[Array, "B T H K"],
    k_BTHK: Float[Array, "B T H K"],
    v_BTHK: Float[Array, "B T H K"],
    config: ModelConfig,
    sink: Sink | None = None,
) -> Float[Array, "B T H K"]:
    """Values mixed by the weights of the visible keys; scores s = q k' / sqrt(K) and weights in float32 always.

    softmax: exp(s_j) / sum_j exp(s_j). softmax_one (Miller 2023): exp(s_j) / (1 + sum_j exp(s_j)), so that a head may
    attend to nothing. sigmoid (Ramapuram et al. 2024): 1 / (1 + exp(-s_j + ln(context))), each key for itself; the
    constant makes the weights of a whole context sum to about 1 where scores are 0. A sink (Sun et al. 2024): softmax
    over the keys and one more.

    Heads go before time once, so that every product of the backward pass is a plain batched one too. The backward pass
    recomputes the T x T weights, which are the largest arrays of a block, from q, k and v.
    """
    q_BHTK, k_BHTK, v_BHTK = (x_BTHK.transpose(0, 2, 1, 3) for x_BTHK in (q_BTHK, k_BTHK, v_BTHK))
    mix = jax.checkpoint(functools.partial(_mix, config), prevent_cse=False)
    return mix(q_BHTK, k_BHTK, v_BHTK, sink).transpose(0, 2, 1, 3)


def _mix(config: ModelConfig, q_BHTK: Array, k_BHTK: Array, v_BHTK: Array, sink: Sink | None) -> Array:
    time, width = q_BHTK.shape[2:]
    scores_BHTT = jnp.einsum("bhtk,bhsk->bhts", q_BHTK * width**-0.5, k_BHTK, preferred_element_type=jnp.float32)
    if config.mask != "bidirectional":
        # Adding -inf, unlike selecting, leaves the backward pass nothing to keep.
        scores_BHTT += jnp.where(visible_keys(config, time), 0.0, -jnp.inf)[None, None]
    if config.attention == "sigmoid":
        weights_BHTT = jax.nn.sigmoid(scores_BHTT - math.log(config.context))
    else:
        weights_BHTT = jax.nn.softmax(scores_BHTT)
    mixed_BHTK = jnp.einsum("bhts,bhsk->bhtk", weights_BHTT.astype(v_BHTK.dtype), v_BHTK)
    if config.attention == "softmax_one":
        sink = Sink(jnp.zeros(scores_BHTT.shape[:3]), jnp.zeros((config.heads, width)))
    if sink is None:
        return mixed_BHTK
    # A term exp(a) more in the denominator: the sink gets exp(a) / (exp(a) + Z), and the keys share the rest as before.
    lost_BHT = jax.nn.sigmoid(sink.score_BHT - jax.nn.logsumexp(scores_BHTT, axis=-1))
    value_BHTK = sink.value_HK[None, :, None].astype(jnp.float32)
    return (mixed_BHTK + lost_BHT[..., None] * (value_BHTK - mixed_BHTK)).astype(v_BHTK.dtype)
