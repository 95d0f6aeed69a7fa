"""Compute states and their gradients on windows of a run, and the matrices at the stream.

Matrices are written as rows of the width of the stream. Two kernels of a block read the stream, and
are split on their input side: attention (queries, keys and values) and mlp (into the hidden units).
Block l + 1 reads layer l, so their rows are compared with the proxies of layer l. Two kernels write
to the stream: attention_out and mlp_out. Their input is not a state of the stream, so they are
split on their output side, and compared with the proxies of the layer after their block. embedding
is the table of tokens, at layer 0.

Arrays carry the letters of `models`; J folds of W windows, Q points of a fold, P = J Q points,
fold-major; M matrices, O the rows of a matrix.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from anisoscope.models import transformer
from anisoscope.subspaces.tangent_quantities import MATRICES, WEIGHT_CHANGES
from anisoscope.subspaces.tangent_windows import Gradients, Windows
from anisoscope.training import objective

READING = {"attention": "qkv", "mlp": "mlp_up"}
WRITING = {"attention_out": "attention_out", "mlp_out": "mlp_down"}
KERNELS = READING | WRITING

Rows = dict[str, Array]  # {matrix: (…, width or rows, …)}


def activations(
    model: transformer.Model, params: Any, windows: Windows, visible_TT: Array, basis_DD: np.ndarray
) -> Array:
    """Return the states at the picked positions, (layer, P, D)."""

    def read_fold(fold: tuple[Array, Array]) -> Array:
        tokens_WT, picks_Q = fold
        resid_LBTD = model.apply(params, tokens_WT, None, visible_TT)[1].resid_LBTD
        return _pick(resid_LBTD, picks_Q) @ basis_DD

    return _join_folds(jax.lax.map(read_fold, (windows.tokens_JWT, windows.picks_JQ)))


def gradients(
    model: transformer.Model, params: Any, windows: Windows, visible_TT: Array, basis_DD: np.ndarray
) -> Gradients:
    """Run a forward and a backward pass, fold by fold, in the memory of one."""

    def read_fold(summed: Rows, fold: tuple[Array, ...]) -> tuple[Rows, tuple[Array, ...]]:
        tokens_WT, targets_WT, weights_WT, picks_Q = fold
        batch = objective.Batch(tokens_WT, targets_WT, weights_WT)
        apply = functools.partial(model.apply, params, tokens_WT, None, visible_TT)
        shape = jax.eval_shape(apply)[1].resid_LBTD.shape

        def loss(taps_LBTD: Array, matrices: Rows) -> tuple[Array, tuple[Array, Array]]:
            replaced = replace_matrices(params, matrices)
            logits_WTV, states = model.apply(replaced, tokens_WT, taps_LBTD, visible_TT)
            return objective.nats(logits_WTV, batch), (logits_WTV, states.resid_LBTD)

        (gradient_NBTD, slope), (logits_WTV, resid_LBTD) = jax.grad(
            loss, argnums=(0, 1), has_aux=True
        )(jnp.zeros(shape), collect_matrices(params))
        loss_WT = optax.softmax_cross_entropy_with_integer_labels(logits_WTV, targets_WT)
        square_NBT = jnp.square(gradient_NBTD).sum(axis=3)
        state_NQD, gradient_NQD = _pick(resid_LBTD, picks_Q), _pick(gradient_NBTD, picks_Q)
        state_NQD = state_NQD - state_NQD.mean(axis=2, keepdims=True)
        state_NQD = state_NQD / jnp.linalg.norm(state_NQD, axis=2, keepdims=True)
        values = (
            _pick(resid_LBTD, picks_Q) @ basis_DD,
            gradient_NQD @ basis_DD,
            loss_WT.reshape(-1)[picks_Q],
            jnp.sqrt(square_NBT).mean(axis=1),
            square_NBT.mean(axis=1),
            jnp.square(gradient_NQD.sum(axis=2)).sum(axis=1) / shape[-1],
            jnp.square((gradient_NQD * state_NQD).sum(axis=2)).sum(axis=1),
            jnp.square(gradient_NQD).sum(axis=(1, 2)),
        )
        return jax.tree.map(jnp.add, summed, slope), values

    zero = jax.tree.map(jnp.zeros_like, collect_matrices(params))
    slope, (points_JNQD, gradient_JNQD, loss_JQ, *rest) = jax.lax.scan(read_fold, zero, windows[:4])
    return Gradients(
        _join_folds(points_JNQD),
        _join_folds(gradient_JNQD),
        loss_JQ.ravel(),
        *rest,
        matrix_rows(slope),
    )


def _pick(x_NBTD: Array, picks_Q: Array) -> Array:
    return x_NBTD.reshape(len(x_NBTD), -1, x_NBTD.shape[-1])[:, picks_Q]


def _join_folds(x_JNQD: Array) -> Array:
    """Join folds to (N, P, D)."""
    return jnp.moveaxis(x_JNQD, 1, 0).reshape(x_JNQD.shape[1], -1, x_JNQD.shape[-1])


def collect_matrices(params: Any) -> Rows:
    """Collect the matrices as stored in the parameters."""
    kernels = {name: params["blocks"][where]["kernel"] for name, where in KERNELS.items()}
    return {"embedding": params["tokens"]} | kernels


def replace_matrices(params: Any, matrices: Rows) -> Any:
    """Replace the matrices in the parameters."""
    kernels = {
        where: params["blocks"][where] | {"kernel": matrices[name]}
        for name, where in KERNELS.items()
    }
    return params | {"tokens": matrices["embedding"], "blocks": params["blocks"] | kernels}


def matrix_rows(matrices: Rows) -> Rows:
    """Put the width last: (1, V, D) for tokens, and (N, …, D) for kernels, a row for each unit."""
    kernels = {name: jnp.swapaxes(matrices[name], 1, 2) for name in READING}
    kernels |= {name: matrices[name] for name in WRITING}
    return {"embedding": matrices["embedding"][None]} | kernels


def change(before: Any, after: Any) -> Rows:
    """Return the update from one set of parameters to another."""
    ends = collect_matrices(before), collect_matrices(after)
    return matrix_rows(jax.tree.map(lambda a, b: jnp.asarray(b) - jnp.asarray(a), *ends))


def short_rows(matrices: dict[str, Rows], basis_DD: np.ndarray, layers: int) -> Array:
    """Reduce matrices to few rows with the same second moments, in the basis.

    Returns:
        (layer, kind x matrix, D', D'); NaN where a layer meets no such matrix.
    """
    width = basis_DD.shape[1]

    def shorten(rows_OD: Array) -> Array:
        padded_OD = jnp.pad(rows_OD, ((0, max(width - len(rows_OD), 0)), (0, 0)))  # a small table
        return jnp.linalg.qr(padded_OD @ basis_DD, mode="r")

    factors = []
    for kind in WEIGHT_CHANGES:
        for name in MATRICES:
            short_MDD = jax.lax.map(shorten, matrices[kind][name])
            first = int(name in WRITING)  # the layer after the first block
            missing = ((first, layers - len(short_MDD) - first), (0, 0), (0, 0))
            factors.append(jnp.pad(short_MDD, missing, constant_values=jnp.nan))
    return jnp.stack(factors, axis=1)
