"""Position encodings: added to the embeddings, or applied to queries and keys.

A new encoding is a function and an entry of POSITIONS.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from anisoscope.config.model_config import ModelConfig
from anisoscope.utils.errors import UserError


class Positions(NamedTuple):
    # param, config -> (context, width), added to the embedding; param is Linen's
    """A position encoding."""

    added: Callable | None = None
    # queries or keys (B, T, H, K) -> the same, as they enter the dot product
    rotate: Callable | None = None
    check: Callable[[ModelConfig], None] = lambda config: None  # raises UserError
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
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], axis=-1).astype(
        x_BTHK.dtype
    )


def even_head_width(config: ModelConfig) -> None:
    """Raise UserError where the head width is odd."""
    width = config.width // config.heads
    if width % 2:
        raise UserError(
            f"model.position_encoding={config.position_encoding} needs an even head width; width/heads is {width}"
        )


POSITIONS = {
    "learned": Positions(added=learned),
    "rotary": Positions(rotate=rotary, check=even_head_width, label="rotary"),
}
