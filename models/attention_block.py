"""Attention, its variants, and the removal of the mean query.

A new variant is a function and an entry of ATTENTIONS.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Bool, Float


class Sink(NamedTuple):
    """A key k' and a value of each head that belong to no position and are visible to all."""

    score_BHT: Array  # <q, k'> / sqrt(K), float32
    value_HK: Array


class Attention(NamedTuple):
    """An attention variant: how scores become weights of the values."""

    # scores_BHTT (float32; -inf where hidden), v_BHTK, sink, context -> mixed_BHTK
    mix: Callable[..., Array]
    sink: bool = False  # whether it allows a learned sink; if not, `mix` gets None
    label: str = ""  # in the description of a model; empty for GPT-2's


def softmax(scores_BHTT: Array, v_BHTK: Array, sink: Sink | None, context: int) -> Array:
    """Mix values by exp(s_j) / sum_j exp(s_j), over the keys and any sink (Sun et al. 2024)."""
    mixed_BHTK = _weighted(jax.nn.softmax(scores_BHTT), v_BHTK)
    return mixed_BHTK if sink is None else _with_sink(mixed_BHTK, scores_BHTT, sink, v_BHTK.dtype)


def softmax1(scores_BHTT: Array, v_BHTK: Array, sink: None, context: int) -> Array:
    """Mix values by exp(s_j) / (1 + sum_j exp(s_j)): a head may attend to nothing (Miller 2023)."""
    heads, width = v_BHTK.shape[1], v_BHTK.shape[3]
    nothing = Sink(jnp.zeros(scores_BHTT.shape[:3]), jnp.zeros((heads, width)))
    return softmax(scores_BHTT, v_BHTK, nothing, context)


def sigmoid(scores_BHTT: Array, v_BHTK: Array, sink: None, context: int) -> Array:
    """Mix values by 1 / (1 + exp(-s_j + ln(context))), each key alone (Ramapuram et al. 2024).

    The constant makes the weights of a whole context sum to about 1 where scores are 0.
    """
    return _weighted(jax.nn.sigmoid(scores_BHTT - math.log(context)), v_BHTK)


ATTENTIONS = {
    "softmax": Attention(softmax, sink=True),
    "softmax_one": Attention(softmax1, label="softmax_one"),
    "sigmoid": Attention(sigmoid, label="sigmoid"),
}


def _weighted(weights_BHTT: Array, v_BHTK: Array) -> Array:
    return jnp.einsum("bhts,bhsk->bhtk", weights_BHTT.astype(v_BHTK.dtype), v_BHTK)


def _with_sink(mixed_BHTK: Array, scores_BHTT: Array, sink: Sink, dtype: jnp.dtype) -> Array:
    """Add a term exp(a) to the denominator Z: the sink gets exp(a) / (exp(a) + Z)."""
    lost_BHT = jax.nn.sigmoid(sink.score_BHT - jax.nn.logsumexp(scores_BHTT, axis=-1))
    value_BHTK = sink.value_HK[None, :, None].astype(jnp.float32)
    return (mixed_BHTK + lost_BHT[..., None] * (value_BHTK - mixed_BHTK)).astype(dtype)


def center_queries(
    q_BTHK: Float[Array, "B T H K"], visible_TT: Bool[Array, "T T"]
) -> Float[Array, "B T H K"]:
    """Subtract from each query the mean of the queries at its visible positions, in float32.

    With means Q of the queries and k of the keys a row sees, a score is <q_i, k_j> = <q_i, k> +
    <Q, k_j - k> + <q_i - Q, k_j - k>. The softmax removes the first term, so keys need no
    centering. This function removes the second, a pattern that all queries share by their drift.
    The third, sharpness by fluctuation, stays.
    """
    share_TT = visible_TT / visible_TT.sum(axis=1, keepdims=True)
    mean_BTHK = jnp.einsum(
        "ts,bshk->bthk", share_TT, q_BTHK.astype(jnp.float32), precision=Precision.HIGHEST
    )
    return (q_BTHK.astype(jnp.float32) - mean_BTHK).astype(q_BTHK.dtype)


def _scores(q_BHTK: Array, k_BHTK: Array) -> Array:
    return jnp.einsum("bhtk,bhsk->bhts", q_BHTK, k_BHTK, preferred_element_type=jnp.float32)


@jax.custom_vjp
def _scores_of_bfloat16(q_BHTK: Array, k_BHTK: Array) -> Array:
    """Compute float32 scores whose gradient is rounded to bfloat16, as in fused attention."""
    return _scores(q_BHTK, k_BHTK)


def _scores_gradient(inputs: tuple[Array, Array], gradient_BHTT: Array) -> tuple[Array, Array]:
    q_BHTK, k_BHTK = inputs
    gradient_BHTT = gradient_BHTT.astype(jnp.bfloat16)
    return (
        jnp.einsum("bhts,bhsk->bhtk", gradient_BHTT, k_BHTK),
        jnp.einsum("bhts,bhtk->bhsk", gradient_BHTT, q_BHTK),
    )


_scores_of_bfloat16.defvjp(lambda q, k: (_scores(q, k), (q, k)), _scores_gradient)


def attend(
    q_BTHK: Float[Array, "B T H K"],
    k_BTHK: Float[Array, "B T H K"],
    v_BTHK: Float[Array, "B T H K"],
    visible_TT: Bool[Array, "T T"] | None,
    attention: Attention,
    context: int,
    sink: Sink | None = None,
    unrolled: bool = False,
) -> Float[Array, "B T H K"]:
    """Mix the values of the visible keys (None: all) by their attention weights.

    Scores s = q k' / sqrt(K) and weights are in float32. Heads come before time, so that every
    product of the backward pass is a plain batched product. It recomputes the T x T weights, the
    largest arrays of a block. `unrolled`: no loop over blocks keeps XLA from storing them instead.
    """

    def mix(q_BHTK: Array, k_BHTK: Array, v_BHTK: Array, sink: Sink | None) -> Array:
        width = q_BHTK.shape[-1]
        product = _scores_of_bfloat16 if q_BHTK.dtype == jnp.bfloat16 else _scores
        scores_BHTT = product(q_BHTK * width**-0.5, k_BHTK)
        if visible_TT is not None:
            # Unlike a selection, adding -inf needs no array in the backward pass.
            scores_BHTT += jnp.where(visible_TT, 0.0, -jnp.inf)[None, None]
        return attention.mix(scores_BHTT, v_BHTK, sink, context)

    q_BHTK, k_BHTK, v_BHTK = (x_BTHK.transpose(0, 2, 1, 3) for x_BTHK in (q_BTHK, k_BTHK, v_BTHK))
    mixed_BHTK = jax.checkpoint(mix, prevent_cse=unrolled)(q_BHTK, k_BHTK, v_BHTK, sink)
    return mixed_BHTK.transpose(0, 2, 1, 3)
