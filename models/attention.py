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
    """softmax(q k' / sqrt(K)) v; scores and softmax in float32 whatever the compute type."""
    scale = q_BTHK.shape[-1] ** -0.5
    scores_BHTT = scale * jnp.einsum("bthk,bshk->bhts", q_BTHK, k_BTHK, preferred_element_type=jnp.float32)
    if causal:
        time = q_BTHK.shape[1]
        visible_TT = jnp.tril(jnp.ones((time, time), bool))[None, None]
        scores_BHTT = jnp.where(visible_TT, scores_BHTT, -jnp.inf)
    weights_BHTT = jax.nn.softmax(scores_BHTT).astype(v_BTHK.dtype)
    return jnp.einsum("bhts,bshk->bthk", weights_BHTT, v_BTHK)
