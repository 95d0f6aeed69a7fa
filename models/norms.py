"""LayerNorm, and its place around a sublayer.

A new order is a function and an entry of NORMS.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import flax.linen as nn
from jaxtyping import Array

EPSILON = 1e-5  # GPT-2's


class Norm(NamedTuple):
    # x_BTD, norm, sublayer -> x_BTD after the sublayer, and its other results
    """A norm order: where a block applies LayerNorm."""

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


NORMS = {
    "pre": Norm(pre, final=True, label="pre-LN"),
    "post": Norm(post, final=False, label="post-LN"),
}


def make_norm(
    name: str | None = None, epsilon: float = EPSILON, scale: bool = True, bias: bool = True
) -> nn.LayerNorm:
    """Make a LayerNorm.

    Its variance is the mean squared deviation: E[x²] - E[x]² cancels where a few dimensions are
    very large.
    """
    return nn.LayerNorm(
        epsilon=epsilon, use_scale=scale, use_bias=bias, use_fast_variance=False, name=name
    )
