"""States and their gradients on the windows of a run: one forward and one backward pass.

Arrays carry the letters of `models`; J folds of W windows, Q points of a fold, P = J Q points,
fold-major.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array

from anisoscope.config.model_config import ModelConfig
from anisoscope.models import transformer
from anisoscope.subspaces import gradient_inputs, weight_gradients
from anisoscope.subspaces.gradient_inputs import Read, Windows
from anisoscope.subspaces.tangent_limits import width_of
from anisoscope.training import objective


def coordinates(model: ModelConfig) -> np.ndarray:
    """An orthonormal basis (D, D') of what is read: without the vector of ones where every norm
    removes it.
    """
    return gradient_inputs.coordinates(model.width, width_of(model))


def activations(
    model: transformer.Model, params: Any, windows: Windows, visible_TT: Array, basis_DD: np.ndarray
) -> Array:
    """The states alone, (layer, P, D)."""

    def of_fold(fold: tuple[Array, Array]) -> Array:
        tokens_WT, picks_Q = fold
        return (
            _picked(model.apply(params, tokens_WT, None, visible_TT)[1].resid_LBTD, picks_Q)
            @ basis_DD
        )

    return _joined(jax.lax.map(of_fold, (windows.tokens_JWT, windows.picks_JQ)))


def states_and_gradients(
    model: transformer.Model, params: Any, windows: Windows, visible_TT: Array, basis_DD: np.ndarray
) -> Read:
    """A forward and a backward pass, fold by fold: the memory is that of one fold's windows and of
    all rows kept.
    """

    def of_fold(
        summed: weight_gradients.Rows, fold: tuple[Array, ...]
    ) -> tuple[weight_gradients.Rows, tuple[Array, ...]]:
        tokens_WT, targets_WT, weights_WT, picks_Q = fold
        batch = objective.Batch(tokens_WT, targets_WT, weights_WT)
        shape = jax.eval_shape(
            lambda: model.apply(params, tokens_WT, None, visible_TT)[1].resid_LBTD
        ).shape

        def loss(
            taps_LBTD: Array, matrices: weight_gradients.Rows
        ) -> tuple[Array, tuple[Array, Array]]:
            logits_WTV, states = model.apply(
                weight_gradients.put(params, matrices), tokens_WT, taps_LBTD, visible_TT
            )
            return objective.nats(logits_WTV, batch), (logits_WTV, states.resid_LBTD)

        both = jax.grad(loss, argnums=(0, 1), has_aux=True)
        (gradient_NBTD, slope), (logits_WTV, resid_LBTD) = both(
            jnp.zeros(shape), weight_gradients.take(params)
        )
        loss_WT = optax.softmax_cross_entropy_with_integer_labels(logits_WTV, targets_WT)
        square_NBT = jnp.square(gradient_NBTD).sum(axis=3)
        state_NQD, gradient_NQD = _picked(resid_LBTD, picks_Q), _picked(gradient_NBTD, picks_Q)
        state_NQD = state_NQD - state_NQD.mean(axis=2, keepdims=True)
        state_NQD = state_NQD / jnp.linalg.norm(state_NQD, axis=2, keepdims=True)
        values = (
            _picked(resid_LBTD, picks_Q) @ basis_DD,
            gradient_NQD @ basis_DD,
            loss_WT.reshape(-1)[picks_Q],
            jnp.sqrt(square_NBT).mean(axis=1),
            square_NBT.mean(axis=1),
            jnp.square(gradient_NQD.sum(axis=2)).sum(axis=1) / shape[-1],
            jnp.square((gradient_NQD * state_NQD).sum(axis=2)).sum(axis=1),
            jnp.square(gradient_NQD).sum(axis=(1, 2)),
        )
        return jax.tree.map(jnp.add, summed, slope), values

    zero = jax.tree.map(jnp.zeros_like, weight_gradients.take(params))
    slope, values_J = jax.lax.scan(of_fold, zero, windows[:4])
    points_JNQD, gradient_JNQD, loss_JQ, *rest = values_J
    return Read(
        _joined(points_JNQD),
        _joined(gradient_JNQD),
        loss_JQ.ravel(),
        *rest,
        weight_gradients.rows(slope),
    )


def _picked(x_NBTD: Array, picks_Q: Array) -> Array:
    return x_NBTD.reshape(len(x_NBTD), -1, x_NBTD.shape[-1])[:, picks_Q]


def _joined(x_JNQD: Array) -> Array:
    """(N, P, D), fold-major."""
    return jnp.moveaxis(x_JNQD, 1, 0).reshape(x_JNQD.shape[1], -1, x_JNQD.shape[-1])
