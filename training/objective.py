"""Objectives: how a window of characters becomes inputs, targets and weights. Both twins read the same windows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from metrics.cloud import centred
from metrics.spectrum import isoscore_star
from models import masks
from training.config import RunConfig

MASKED_SHARE = 0.15  # of the positions; of these 80 % become [MASK], 10 % a random character, 10 % stay


class Batch(NamedTuple):
    tokens_BT: jax.Array  # what the model reads
    targets_BT: jax.Array  # what it should say
    weights_BT: jax.Array  # 1.0 where the loss counts, else 0.0


def scored_positions(config: RunConfig) -> np.ndarray:
    """Which positions the loss may count, (T,) float32, 1 or 0: in training, validation and test alike.

    Next character: those whose target no path of the attention graph can reach, so that it is neither seen nor told
    by another position; the target of the last one lies outside of the window. Masked character: all, since what is
    asked for is hidden in the input.
    """
    context = config.model.context
    if config.objective == "masked" or config.model.mask in ("causal", "window"):  # nothing ahead is ever seen
        return np.ones(context, np.float32)
    return np.append(~np.diagonal(masks.dependence(config.model), 1), True).astype(np.float32)


def next_character(windows_BL: jax.Array, scored_T: np.ndarray) -> Batch:
    """Every position t < L-1 predicts the character at t + 1; only the scored ones count."""
    weights_BT = jnp.broadcast_to(jnp.asarray(scored_T)[None], windows_BL[:, 1:].shape)
    return Batch(windows_BL[:, :-1], windows_BL[:, 1:], weights_BT)


def masked_character(windows_BL: jax.Array, keys_B: jax.Array, mask_token: int) -> Batch:
    """BERT's rule on the first L - 1 characters: only selected positions are predicted, whatever stands there."""
    targets_BT = windows_BL[:, :-1]

    def corrupt(key: jax.Array, target_T: jax.Array) -> tuple[jax.Array, jax.Array]:
        select, how, what = jax.random.split(key, 3)
        chosen_T = jax.random.uniform(select, target_T.shape) < MASKED_SHARE
        u_T = jax.random.uniform(how, target_T.shape)
        random_T = jax.random.randint(what, target_T.shape, 0, mask_token, target_T.dtype)
        new_T = jnp.where(u_T < 0.8, jnp.asarray(mask_token, target_T.dtype), jnp.where(u_T < 0.9, random_T, target_T))
        return jnp.where(chosen_T, new_T, target_T), chosen_T.astype(jnp.float32)

    tokens_BT, weights_BT = jax.vmap(corrupt)(keys_B, targets_BT)
    return Batch(tokens_BT, targets_BT, weights_BT)


def make_batch(
    config: RunConfig, windows_BL: jax.Array, key: jax.Array, examples_B: jax.Array, mask_token: int
) -> Batch:
    """The batch of the configuration's objective; an example's masks depend on (key, its global index) alone."""
    if config.objective == "next":
        return next_character(windows_BL, scored_positions(config))
    keys_B = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, examples_B)
    return masked_character(windows_BL, keys_B, mask_token)


def nats(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Weighted sum of the cross-entropy, in nats: () float32."""
    loss_BT = optax.softmax_cross_entropy_with_integer_labels(logits_BTV.astype(jnp.float32), batch.targets_BT)
    return jnp.sum(loss_BT * batch.weights_BT)


def anisotropy(resid_NBTD: jax.Array, layers: tuple[int, ...]) -> jax.Array:
    """1 - IsoScore*, the mean over `layers` of the residual stream (all blocks where none are named): () float32.

    The covariance is that of all vectors of the batch; these are so many more than dimensions that none of another
    sample is mixed in, as I-STAR does (Rudman and Eickhoff 2024). In the loss a positive weight pushes to isotropy.
    """
    chosen_NBTD = resid_NBTD[jnp.asarray(layers)] if layers else resid_NBTD[1:]

    def score(x_BTD: jax.Array) -> jax.Array:
        x_PD = centred(x_BTD.reshape(-1, x_BTD.shape[-1]))
        covariance_DD = jnp.matmul(x_PD.T, x_PD, precision=jax.lax.Precision.HIGHEST) / x_PD.shape[0]
        return isoscore_star(covariance_DD, covariance_DD, 0.0)

    return 1.0 - jax.vmap(score)(chosen_NBTD).mean()
