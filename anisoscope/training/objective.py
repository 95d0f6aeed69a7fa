"""Define objectives: how a window of characters becomes inputs, targets and weights.

All objectives read the same windows. A new objective is a few functions and an entry of OBJECTIVES.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import RunConfig
from anisoscope.metrics.cloud import centered
from anisoscope.metrics.spectrum import covariance_isoscore
from anisoscope.models import masks
from anisoscope.utils.errors import UserError

# share of the positions; 10 % of them stay, 10 % become a random character, 80 % become [MASK]
MASKED_SHARE = 0.15
KEPT_SHARE, REPLACED_SHARE = 0.1, 0.1


class Batch(NamedTuple):
    """Inputs, targets and weights of a batch."""

    tokens_BT: jax.Array  # input of the model
    targets_BT: jax.Array  # tokens to predict
    weights_BT: jax.Array  # 1.0 where the loss counts, else 0.0


class Objective(NamedTuple):
    """A training task; the mask decides which positions it can predict."""

    batch: Callable[..., Batch]  # the arguments of `make_batch`, with the model's settings
    # model, evaluate.stride -> characters between the starts of test windows, the protocol in words
    test_stride: Callable[[ModelConfig, int | None], tuple[int, str]]
    # raises UserError where the mask or evaluate.stride leaves nothing to predict
    check: Callable[[ModelConfig, int | None], None]
    # frequencies_V, batch, mask_token -> nats_BT: cost of the best prediction that knows the
    # frequencies of characters and only the input at the predicted position; NumPy, float64
    context_free: Callable[[np.ndarray, Batch, int], np.ndarray]
    random_targets: bool = False  # a validation draws them evaluate.draws times


def next_positions(model: ModelConfig) -> np.ndarray:
    """Mark the positions whose target is neither visible nor passed on by another position.

    The target of the last position lies outside the window.
    """
    if masks.hidden_targets(model) == model.context:
        return np.ones(model.context, np.float32)
    return np.append(~np.diagonal(masks.dependence(model), 1), True).astype(np.float32)


def next_batch(model: ModelConfig, windows_BL: jax.Array, *_: Any) -> Batch:
    """Make a batch in which every scored position t < L-1 predicts the character at t + 1."""
    weights_BT = jnp.broadcast_to(jnp.asarray(next_positions(model))[None], windows_BL[:, 1:].shape)
    return Batch(windows_BL[:, :-1], windows_BL[:, 1:], weights_BT)


def next_context_free(frequencies_V: np.ndarray, batch: Batch, mask_token: int) -> np.ndarray:
    """Compute -ln p(y): the previous character belongs to the context."""
    with np.errstate(divide="ignore"):  # characters that the text lacks
        return -np.log(frequencies_V)[np.asarray(batch.targets_BT)]


def masked_batch(
    model: ModelConfig,
    windows_BL: jax.Array,
    key: jax.Array,
    examples_B: jax.Array,
    mask_token: int,
    turns_B: jax.Array | int,
) -> Batch:
    """Mask the first L - 1 characters by BERT's rule; only selected positions are predicted.

    A selected position is predicted whether it holds [MASK], a random character or the original. An
    example's masks depend on (key, its global index, its turn) alone. Copies of an example with
    turns 0, 1, 2, … select every position once before they select any position again.
    """
    targets_BT = windows_BL[:, :-1]
    keys_B = jax.vmap(jax.random.fold_in, in_axes=(None, 0))(key, examples_B)
    mask = jnp.asarray(mask_token, targets_BT.dtype)

    def corrupt(
        key: jax.Array, target_T: jax.Array, turn: jax.Array
    ) -> tuple[jax.Array, jax.Array]:
        select, kind, character = jax.random.split(key, 3)
        place_T = (jax.random.uniform(select, target_T.shape) + MASKED_SHARE * turn) % 1.0
        chosen_T, u_T = place_T < MASKED_SHARE, jax.random.uniform(kind, target_T.shape)
        random_T = jax.random.randint(character, target_T.shape, 0, mask_token, target_T.dtype)
        unmasked_T = jnp.where(u_T < 1 - KEPT_SHARE, random_T, target_T)
        new_T = jnp.where(u_T < 1 - KEPT_SHARE - REPLACED_SHARE, mask, unmasked_T)
        return jnp.where(chosen_T, new_T, target_T), chosen_T.astype(jnp.float32)

    turns_B = jnp.broadcast_to(turns_B, examples_B.shape)
    tokens_BT, weights_BT = jax.vmap(corrupt)(keys_B, targets_BT, turns_B)
    return Batch(tokens_BT, targets_BT, weights_BT * masked_positions(model)[None])


def masked_positions(model: ModelConfig) -> np.ndarray:
    """Mark all positions but a first one where the model never reads a character."""
    scored_T = np.ones(model.context, np.float32)
    scored_T[:1] = not model.same_first
    return scored_T


def masked_context_free(frequencies_V: np.ndarray, batch: Batch, mask_token: int) -> np.ndarray:
    """Compute -ln p(y) under [MASK], and -ln p(y | x) where a character x stands.

    Half of the positions that hold a character were kept. By Bayes' rule p(y | x) = p(y) (KEPT_SHARE [x =
    y] + REPLACED_SHARE / V) / (KEPT_SHARE p(x) + REPLACED_SHARE / V), where random characters are drawn from V.
    """
    tokens_BT, targets_BT = np.asarray(batch.tokens_BT), np.asarray(batch.targets_BT)
    chance = REPLACED_SHARE / mask_token
    frequency_BT = frequencies_V[np.minimum(tokens_BT, mask_token - 1)]
    share_BT = (KEPT_SHARE * (tokens_BT == targets_BT) + chance) / (
        KEPT_SHARE * frequency_BT + chance
    )
    share_BT = np.where(tokens_BT == mask_token, 1.0, share_BT)
    with np.errstate(divide="ignore"):
        return -np.log(frequencies_V[targets_BT] * share_BT)


def next_stride(model: ModelConfig, stride: int | None) -> tuple[int, str]:
    """Choose the stride: of a window after the first only the last `stride` characters count.

    So each is predicted from at least context - stride characters. The first characters of a window
    that the mask shows to all positions are not scored.
    """
    hidden = masks.hidden_targets(model)
    # characters of a window that are never predicted, the first among them
    shown = model.context + 1 - hidden
    stride = stride or min(model.context // 2, hidden)
    protocol = f"whole test split, context {model.context}, stride {stride}"
    return stride, protocol + (f", but for its first {shown} characters" if shown > 1 else "")


def masked_stride(model: ModelConfig, stride: int | None) -> tuple[int, str]:
    """Place test windows side by side; masks are drawn once."""
    share = f"{100 * MASKED_SHARE:g} % masked characters of the whole test split"
    but = ", without the first of each" if model.same_first else ""
    return model.context, f"{share}, context {model.context}, windows side by side{but}"


def check_next(model: ModelConfig, stride: int | None) -> None:
    """Raise UserError where the mask shows the next character, or the stride is too long."""
    hidden = masks.hidden_targets(model)
    if hidden < 2:
        raise UserError(
            f"objective=next under model.mask={model.mask} shows the answer; use objective=masked"
        )
    if (stride or 1) > hidden:
        raise UserError(
            f"evaluate.stride is {stride}; mask={model.mask} leaves {hidden} targets hidden at most"
        )


OBJECTIVES = {
    "next": Objective(
        batch=next_batch,
        test_stride=next_stride,
        check=check_next,
        context_free=next_context_free,
    ),
    "masked": Objective(
        batch=masked_batch,
        test_stride=masked_stride,
        check=lambda *_: None,
        context_free=masked_context_free,
        random_targets=True,
    ),
}


def make_batch(
    config: RunConfig,
    windows_BL: jax.Array,
    key: jax.Array,
    examples_B: jax.Array,
    mask_token: int,
    turns_B: jax.Array | int = 0,
) -> Batch:
    """Make a batch of windows for the objective of a run."""
    make = OBJECTIVES[config.objective].batch
    return make(config.model, windows_BL, key, examples_B, mask_token, turns_B)


def nats(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Sum the weighted cross-entropy, in nats: () float32."""
    return jnp.sum(weighted_loss(logits_BTV, batch))


def weighted_loss(logits_BTV: jax.Array, batch: Batch) -> jax.Array:
    """Compute the weighted cross-entropy of every position, in nats: (B, T) float32."""
    import optax  # late: what is measured needs no training

    loss_BT = optax.softmax_cross_entropy_with_integer_labels(
        logits_BTV.astype(jnp.float32), batch.targets_BT
    )
    return loss_BT * batch.weights_BT


def anisotropy_penalty(resid_LBTD: jax.Array, layers: tuple[int, ...]) -> jax.Array:
    """Compute 1 - IsoScore, the mean over `layers` of the residual stream: () float32.

    An empty `layers` means all blocks. The covariance is that of all vectors of the batch. They are
    many more than dimensions, so no covariance of another sample is mixed in, as I-STAR does
    (Rudman and Eickhoff 2024). In the loss a positive weight favors isotropy.
    """
    chosen_NBTD = resid_LBTD[jnp.asarray(layers)] if layers else resid_LBTD[1:]

    def score(x_BTD: jax.Array) -> jax.Array:
        x_PD = centered(x_BTD.reshape(-1, x_BTD.shape[-1]))
        product_DD = jnp.matmul(x_PD.T, x_PD, precision=jax.lax.Precision.HIGHEST)
        return covariance_isoscore(product_DD)

    return 1.0 - jax.vmap(score)(chosen_NBTD).mean()
