"""Objectives: how a window of characters becomes inputs, targets and weights. Both twins read the same windows."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax

MASKED_SHARE = 0.15  # of the positions; of these 80 % become [MASK], 10 % a random character, 10 % stay


class Batch(NamedTuple):
    tokens_BT: jax.Array  # what the model reads
    targets_BT: jax.Array  # what it should say
    weights_BT: jax.Array  # 1.0 where the loss counts, else 0.0


def next_character(windows_BL: jax.Array) -> Batch:
    """Every position t < L-1 predicts the character at t + 1."""
    return Batch(windows_BL[:, :-1], windows_BL[:, 1:], jnp.ones(windows_BL[:, 1:].shape, jnp.float32))


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


def make_batch(objective: str, windows_BL: jax.Array, key: jax.Array, examples_B: jax.Array, mask_token: int) -> Batch:
    """The batch of `objective` ("next" or "masked"); an example's masks depend on (key, its global index) alone."""
    if objective == "next":
        return next_character(windows_BL)
    keys_B = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, examples_B)
    return masked_character(windows_BL, keys_B, mask_token)


def nats(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Weighted sum of the cross-entropy, in nats: () float32."""
    loss_BT = optax.softmax_cross_entropy_with_integer_labels(logits_BTV.astype(jnp.float32), batch.targets_BT)
    return jnp.sum(loss_BT * batch.weights_BT)
