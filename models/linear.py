"""Linear products and activations whose backward passes are fast and small.

A new activation is a function and an entry of ACTIVATIONS.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from jax.lax import Precision
from jaxtyping import Array, Float, Int


def product(
    x_BTD: Float[Array, "B T D"], kernel_DF: Float[Array, "D F"], dimensions: Any, **options: Any
) -> Float[Array, "B T F"]:
    """Compute x @ kernel as a single 2-D product, for Linen's `dot_general`.

    The gradient of the kernel is then a 2-D product as well. For a product over two axes, B and T,
    XLA:CPU fuses element-wise work into strided, transposing copies of its operands.
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

    It stores nothing else. `unrolled` means that no loop over blocks separates the passes, so that
    XLA must be kept from storing what would be recomputed.
    """
    exact = functools.partial(jax.nn.gelu, approximate=False)
    return jax.checkpoint(exact, prevent_cse=unrolled)(x_BTF)


def gelu_tanh(x_BTF: Float[Array, "B T F"], unrolled: bool = False) -> Float[Array, "B T F"]:
    """Compute x (1 + tanh(sqrt(2/π) (x + 0.044715 x³))) / 2, at most 5e-4 from the exact form.

    The backward pass recomputes it as in `gelu`.
    """
    return jax.checkpoint(jax.nn.gelu, prevent_cse=unrolled)(x_BTF)


ACTIVATIONS = {"gelu": gelu, "gelu_tanh": gelu_tanh}
