"""Products of a linear layer and activations, written so that their backward passes are fast and
small.

A new activation is a function and an entry of ACTIVATIONS.
"""

from typing import Any

import jax
from jaxtyping import Array, Float


def product(
    x_BTD: Float[Array, "B T D"], kernel_DF: Float[Array, "D F"], dimensions: Any, **options: Any
) -> Float[Array, "B T F"]:
    """x @ kernel as one 2-D product, for Linen's `dot_general`.

    The gradient of the kernel is then a 2-D product as well. As a product over two axes, B and T,
    XLA:CPU fuses element-wise work into strided, transposing copies of its operands.
    """
    rows_PD = x_BTD.reshape(-1, x_BTD.shape[-1])
    out_PF = jax.lax.dot_general(rows_PD, kernel_DF, (((1,), (0,)), ((), ())), **options)
    return out_PF.reshape(*x_BTD.shape[:-1], -1)


def gelu(x_BTF: Float[Array, "B T F"]) -> Float[Array, "B T F"]:
    """x Φ(x), exact. The backward pass recomputes Φ and its density from x, and keeps nothing
    else.
    """
    return jax.checkpoint(lambda x: jax.nn.gelu(x, approximate=False), prevent_cse=False)(x_BTF)


def gelu_tanh(x_BTF: Float[Array, "B T F"]) -> Float[Array, "B T F"]:
    """x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))) / 2, up to 5e-4 from the exact one; recomputed as
    that is.
    """
    return jax.checkpoint(jax.nn.gelu, prevent_cse=False)(x_BTF)


ACTIVATIONS = {"gelu": gelu, "gelu_tanh": gelu_tanh}
