"""Matrices on the side where they meet the residual stream: gradients and updates as rows of its
width.

Two kernels of a block read the stream, and are split on their input side. attention: queries, keys and values; mlp:
into the hidden units. Block l + 1 reads layer l, so that their rows are held against the proxies of layer l. Two write
to it: attention_out and mlp_out. Their input is no state of the stream, and no proxy is fitted to it, so that they are
split on their output side, against the proxies of the layer after their block. embedding: the table of tokens, layer 0.

Here M are matrices, O the rows of one.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

READING = {"attention": "qkv", "mlp": "mlp_up"}
WRITING = {"attention_out": "attention_out", "mlp_out": "mlp_down"}
KERNELS = READING | WRITING
MATRICES = ("embedding", *KERNELS)
# the weight gradient; the update since the last checkpoint; that of a single step
OF = ("gradient", "between", "step")

Rows = dict[str, Array]  # {matrix: (…, width or rows, …)}


def take(params: Any) -> Rows:
    """The matrices as they lie in the parameters."""
    kernels = {name: params["blocks"][where]["kernel"] for name, where in KERNELS.items()}
    return {"embedding": params["tokens"]} | kernels


def put(params: Any, matrices: Rows) -> Any:
    """The parameters with these matrices."""
    blocks = dict(params["blocks"])
    for name, where in KERNELS.items():
        blocks[where] = blocks[where] | {"kernel": matrices[name]}
    return params | {"tokens": matrices["embedding"], "blocks": blocks}


def rows(matrices: Rows) -> Rows:
    """With the width last: the tokens' rows (1, V, D), and (N, …, D) of kernels, a row for each
    unit beyond.
    """
    kernels = {name: jnp.swapaxes(matrices[name], 1, 2) for name in READING}
    kernels |= {name: matrices[name] for name in WRITING}
    return {"embedding": matrices["embedding"][None]} | kernels


def change(before: Any, after: Any) -> Rows:
    """The update from one set of parameters to another."""
    return rows(
        jax.tree.map(lambda a, b: jnp.asarray(b) - jnp.asarray(a), take(before), take(after))
    )


def short(matrices: dict[str, Rows], basis_DD: np.ndarray, layers: int) -> Array:
    """(layer, of x matrix, D', D'): as few rows with the same second moments, in the basis; NaN
    where there is none.
    """
    width = basis_DD.shape[1]

    def of_one(rows_OD: Array) -> Array:
        # of a small table
        padded_OD = jnp.pad(rows_OD, ((0, max(width - len(rows_OD), 0)), (0, 0)))
        return jnp.linalg.qr(padded_OD @ basis_DD, mode="r")

    factors = []
    for of in OF:
        for name in MATRICES:
            short_MDD = jax.lax.map(of_one, matrices[of][name])
            first = int(name in WRITING)  # the layer after the first block
            missing = ((first, layers - len(short_MDD) - first), (0, 0), (0, 0))
            factors.append(jnp.pad(short_MDD, missing, constant_values=jnp.nan))
    return jnp.stack(factors, axis=1)
