"""Parts of a block, and of the embedding: LayerNorm, positions, products and activations.

A new norm order, position encoding or activation is a function and an entry of NORM_PLACES, POSITIONS or
ACTIVATIONS.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Int

from anisoscope.config.model_config import ModelConfig

GPT2_EPSILON = 1e-5  # GPT-2's


class Norm(NamedTuple):
    """A norm order: where a block applies LayerNorm."""

    # x_BTD, norm, sublayer -> x_BTD after the sublayer, and its other results
    residual: Callable[..., tuple]
    final: bool  # whether a last LayerNorm comes before the output head
    label: str  # in the description of a model


def pre(x_BTD: Array, norm: Callable, sublayer: Callable) -> tuple[Any, ...]:
    """Add the sublayer's output to the residual stream, and normalize its input (GPT-2)."""
    out_BTD, *rest = sublayer(norm(x_BTD))
    return x_BTD + out_BTD, *rest


def post(x_BTD: Array, norm: Callable, sublayer: Callable) -> tuple[Any, ...]:
    """Normalize the sum of the residual stream and the sublayer's output (BERT)."""
    out_BTD, *rest = sublayer(x_BTD)
    return norm(x_BTD + out_BTD), *rest


NORM_PLACES = {
    "pre": Norm(pre, final=True, label="pre-LN"),
    "post": Norm(post, final=False, label="post-LN"),
}


def make_norm(
    name: str | None = None, epsilon: float = GPT2_EPSILON, scale: bool = True, bias: bool = True
) -> nn.LayerNorm:
    """Make a LayerNorm, whose variance is the mean squared deviation: E[x²] - E[x]² would cancel."""
    return nn.LayerNorm(
        epsilon=epsilon, use_scale=scale, use_bias=bias, use_fast_variance=False, name=name
    )


class Positions(NamedTuple):
    """A position encoding."""

    # param, config -> (context, width), added to the embedding; param is Linen's
    added: Callable | None = None
    # queries or keys (B, T, H, K) -> the same, as they enter the dot product
    rotate: Callable | None = None
    label: str = ""  # in the description of a model; empty for GPT-2's


def learned(param: Callable, config: ModelConfig) -> Float[Array, "T D"]:
    """Make a learned vector for each position."""
    return param("positions", jax.nn.initializers.normal(0.02), (config.context, config.width))


def rotary(x_BTHK: Float[Array, "B T H K"]) -> Float[Array, "B T H K"]:
    """Rotate the pair (i, i + K/2) at time t by the angle t * 10000^(-2i/K), in float32."""
    time, width = x_BTHK.shape[1], x_BTHK.shape[3]
    rate_K = 10_000.0 ** (-jnp.arange(0, width, 2, dtype=jnp.float32) / width)
    angle_TK = jnp.outer(jnp.arange(time, dtype=jnp.float32), rate_K)[None, :, None]
    low, high = jnp.split(x_BTHK.astype(jnp.float32), 2, axis=-1)
    cos, sin = jnp.cos(angle_TK), jnp.sin(angle_TK)
    rotated_BTHK = jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1)
    return rotated_BTHK.astype(x_BTHK.dtype)


POSITIONS = {
    "learned": Positions(added=learned),
    "rotary": Positions(rotate=rotary, label="rotary"),
}


def dense_product(
    x_BTD: Float[Array, "B T D"], kernel_DF: Float[Array, "D F"], dimensions: Any, **options: Any
) -> Float[Array, "B T F"]:
    """Compute x @ kernel as a single 2-D product, for Linen's `dot_general`.

    The gradient of the kernel is one too: over two axes, B and T, XLA:CPU would fuse element-wise
    work into strided, transposing copies of the operands.
    """
    rows_PD = x_BTD.reshape(-1, x_BTD.shape[-1])
    out_PF = jax.lax.dot_general(rows_PD, kernel_DF, (((1,), (0,)), ((), ())), **options)
    return out_PF.reshape(*x_BTD.shape[:-1], -1)


@jax.custom_vjp
def embed(table_VD: Float[Array, "V D"], tokens_BT: Int[Array, "B T"]) -> Float[Array, "B T D"]:
    """Look up rows of the table; their gradient is a product with one-hot rows.

    For accelerators: with deterministic operations XLA makes the gradient of a gather a sort of
    every element.
    """
    return table_VD[tokens_BT]


def _embed_forward(table_VD: Array, tokens_BT: Array) -> tuple[Array, tuple[Array, Array]]:
    return table_VD[tokens_BT], (table_VD, tokens_BT)


def _embed_backward(kept: tuple[Array, Array], gradient_BTD: Array) -> tuple[Array, None]:
    table_VD, tokens_BT = kept
    onehot_PV = jax.nn.one_hot(tokens_BT.reshape(-1), table_VD.shape[0], dtype=table_VD.dtype)
    rows_PD = gradient_BTD.reshape(-1, table_VD.shape[1])
    return jnp.matmul(onehot_PV.T, rows_PD, precision=Precision.HIGHEST), None


embed.defvjp(_embed_forward, _embed_backward)


def gelu(x_BTF: Float[Array, "B T F"], unrolled: bool = False) -> Float[Array, "B T F"]:
    """Compute x Φ(x) exactly; the backward pass recomputes Φ and its density from x.

    `unrolled`: no loop over blocks keeps XLA from storing them instead.
    """
    exact = functools.partial(jax.nn.gelu, approximate=False)
    return jax.checkpoint(exact, prevent_cse=unrolled)(x_BTF)


def gelu_tanh(x_BTF: Float[Array, "B T F"], unrolled: bool = False) -> Float[Array, "B T F"]:
    """Compute x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))) / 2, at most 5e-4 from the exact form.

    The backward pass recomputes it as in `gelu`.
    """
    return jax.checkpoint(jax.nn.gelu, prevent_cse=unrolled)(x_BTF)


ACTIVATIONS = {"gelu": gelu, "gelu_tanh": gelu_tanh}
