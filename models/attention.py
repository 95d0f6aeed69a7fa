"""Scaled dot-product attention and rotary positions."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def rotate(x_BTHK: Float[Array, "B T H K"]) -> Float[Array, "B T H K"]:
    """Rotary positions: the pair (i, i + K/2) at time t turns by the angle t * 10000^(-2i/K), in float32."""
    time, width = x_BTHK.shape[1], x_BTHK.shape[3]
    rate_K = 10_000.0 ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angle_TK = jnp.outer(jnp.arange(time, dtype=jnp.float32), rate_K)[None, :, None]
    low, high = jnp.split(x_BTHK.astype(jnp.float32), 2, axis=-1)
    cos, sin = jnp.cos(angle_TK), jnp.sin(angle_TK)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1).astype(x_BTHK.dtype)


def attend(
    q_BTHK: Float[Array, "B T H K"], k_BTHK: Float[Array, "B T H K"], v_BTHK: Float[Array, "B T H K"], causal: bool
) -> Float[Array, "B T H K"]:
    """softmax(q k' / sqrt(K)) v; scores and softmax in float32 whatever the compute type.

    Heads go before time once, so that every product of the backward pass is a plain batched one too. The backward pass
    recomputes the T x T weights, which are the largest arrays of a block, from q, k and v.
    """
    q_BHTK, k_BHTK, v_BHTK = (x_BTHK.transpose(0, 2, 1, 3) for x_BTHK in (q_BTHK, k_BTHK, v_BTHK))
    mixed_BHTK = jax.checkpoint(_mix, static_argnums=3, prevent_cse=False)(q_BHTK, k_BHTK, v_BHTK, causal)
    return mixed_BHTK.transpose(0, 2, 1, 3)


def _mix(q_BHTK: Array, k_BHTK: Array, v_BHTK: Array, causal: bool) -> Array:
    time, width = q_BHTK.shape[2:]
    scores_BHTT = jnp.einsum("bhtk,bhsk->bhts", q_BHTK * width**-0.5, k_BHTK, preferred_element_type=jnp.float32)
    if causal:
        # Adding -inf, unlike selecting, leaves the backward pass nothing to keep.
        scores_BHTT += jnp.where(jnp.tril(jnp.ones((time, time), bool)), 0.0, -jnp.inf)[None, None]
    weights_BHTT = jax.nn.softmax(scores_BHTT).astype(v_BHTK.dtype)
    return jnp.einsum("bhts,bhsk->bhtk", weights_BHTT, v_BHTK)
