"""The matrices that read the residual stream, on their input side: gradients and updates as rows of its width.

attention: the kernel of queries, keys and values; mlp: the one into the hidden units. Block l + 1 reads layer l, so
that their rows are held against the proxies of layer l. embedding: the table of tokens, against those of layer 0.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

KERNELS = {"attention": "qkv", "mlp": "mlp_up"}
MATRICES = ("embedding", *KERNELS)
OF = ("gradient", "between", "step")  # the weight gradient; the update since the last checkpoint; that of a single step

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
    """With the width last: the token's rows (1, V, D), and a row for each output of a kernel, (N, out, D)."""
    return {name: jnp.swapaxes(x, 1, 2) if name in KERNELS else x[None] for name, x in matrices.items()}


def change(before: Any, after: Any) -> Rows:
    """The update from one set of parameters to another."""
    return rows(jax.tree.map(lambda a, b: jnp.asarray(b) - jnp.asarray(a), take(before), take(after)))


def short(matrices: dict[str, Rows], basis_DD: np.ndarray, layers: int) -> Array:
    """(layer, of x matrix, D', D'): as few rows with the same second moments, in the basis; NaN where there is none."""
    width = basis_DD.shape[1]

    def of_one(rows_OD: Array) -> Array:
        padded_OD = jnp.pad(rows_OD, ((0, max(width - len(rows_OD), 0)), (0, 0)))  # of a small table
        return jnp.linalg.qr(padded_OD @ basis_DD, mode="r")

    found = []
    for of in OF:
        for name in MATRICES:
            short_MDD = jax.lax.map(of_one, matrices[of][name])
            missing = ((0, layers - len(short_MDD)), (0, 0), (0, 0))
            found.append(jnp.pad(short_MDD, missing, constant_values=jnp.nan))
    return jnp.stack(found, axis=1)
