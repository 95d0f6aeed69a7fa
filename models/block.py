"""Build a single Transformer block, on vectors instead of tokens, with BERT's initial values."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from anisoscope.config.model_config import ModelConfig
from anisoscope.models.layers import make_norm
from anisoscope.models.transformer import Block, Params

BERT_EPSILON = 1e-12  # BERT's; GPT-2's 1e-5 would matter for embedding rows of variance 3e-4


class SingleBlock(NamedTuple):
    """Pure functions of a block; parameters are a nested dict of float32."""

    init: Callable[[Array], Params]  # key -> params
    # params, x_BTD -> x_BTD, q_BTHK, k_BTHK
    apply: Callable[[Params, Array], tuple[Array, Array, Array]]


def make_block(config: ModelConfig, kernel_init: nn.initializers.Initializer) -> SingleBlock:
    """Make a block of this width, mask and norm order, in float32.

    Biases start at 0, and all kernels start alike, as in BERT.
    """
    block = Block(config, jnp.dtype("float32"), kernel_init, kernel_init, BERT_EPSILON)

    def init(key: Key[Array, ""]) -> Params:
        return block.init(key, jnp.zeros((1, 1, config.width)), None)["params"]

    def apply(
        params: Params, x_BTD: Float[Array, "B T D"]
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B T H K"], Float[Array, "B T H K"]]:
        return block.apply({"params": params}, x_BTD, None)[1][:3]

    return SingleBlock(init, apply)


def bias_queries_and_keys(
    params: Params, query_D: Float[Array, " D"], key_D: Float[Array, " D"]
) -> Params:
    """Return the block's parameters with these vectors as biases of its queries and keys.

    The vectors hold all heads, head after head.
    """
    bias = jnp.concatenate([query_D, key_D, jnp.zeros_like(key_D)])
    return params | {"qkv": params["qkv"] | {"bias": bias}}


def layer_norm(x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """Compute (x - mean(x)) / sqrt(var(x) + epsilon) of every vector."""
    return make_norm(epsilon=BERT_EPSILON, scale=False, bias=False).apply({}, x_BTD)
