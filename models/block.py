"""One Transformer block alone, on vectors instead of tokens, with BERT's initial values."""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax.numpy as jnp
from jaxtyping import Array, Float, Key

from models.config import ModelConfig
from models.linear import product
from models.transformer import Block as GptBlock
from models.transformer import Params

EPSILON = 1e-12  # BERT's: beside embedding rows of variance 3e-4, GPT-2's 1e-5 would show


class Block(NamedTuple):
    """Pure functions. Parameters are a nested dict of float32."""

    init: Callable[[Array], Params]  # key -> params
    apply: Callable[[Params, Array], tuple[Array, Array, Array]]  # params, x_BTD -> x_BTD, q_BTHK, k_BTHK


class BertBlock(GptBlock):
    """The block of `models.transformer` with BERT's epsilon and one initial distribution for every kernel."""

    kernel_init: nn.initializers.Initializer

    @nn.compact
    def __call__(self, x_BTD):
        norm_attention, norm_mlp = (
            nn.LayerNorm(epsilon=EPSILON, use_fast_variance=False, name=name) for name in ("norm_attention", "norm_mlp")
        )
        if self.config.norm == "pre":
            attended_BTD, q_BTHK, k_BTHK = self.attention(norm_attention(x_BTD))
            x_BTD = x_BTD + attended_BTD
            return x_BTD + self.mlp(norm_mlp(x_BTD)), q_BTHK, k_BTHK
        attended_BTD, q_BTHK, k_BTHK = self.attention(x_BTD)
        x_BTD = norm_attention(x_BTD + attended_BTD)
        return norm_mlp(x_BTD + self.mlp(x_BTD)), q_BTHK, k_BTHK

    def linear(self, features: int, name: str, into_residual: bool = False) -> nn.Dense:
        return nn.Dense(features, kernel_init=self.kernel_init, dot_general=product, name=name)


def make_block(config: ModelConfig, kernel_init: nn.initializers.Initializer) -> Block:
    """A block of this width, mask and norm order, in float32; biases start at 0, LayerNorm at 1 and 0."""
    block = BertBlock(config, jnp.dtype("float32"), kernel_init)

    def init(key: Key[Array, ""]) -> Params:
        return block.init(key, jnp.zeros((1, 1, config.width)))["params"]

    def apply(
        params: Params, x_BTD: Float[Array, "B T D"]
    ) -> tuple[Float[Array, "B T D"], Float[Array, "B T H K"], Float[Array, "B T H K"]]:
        return block.apply({"params": params}, x_BTD)

    return Block(init, apply)


def bias_queries_and_keys(params: Params, query_D: Float[Array, " D"], key_D: Float[Array, " D"]) -> Params:
    """The block's parameters with these vectors, all heads one after another, as biases of its queries and keys."""
    bias = jnp.concatenate([query_D, key_D, jnp.zeros_like(key_D)])
    return params | {"qkv": params["qkv"] | {"bias": bias}}


def layer_norm(x_BTD: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
    """(x - mean(x)) / sqrt(var(x) + epsilon) of every vector."""
    return nn.LayerNorm(epsilon=EPSILON, use_bias=False, use_scale=False, use_fast_variance=False).apply({}, x_BTD)
