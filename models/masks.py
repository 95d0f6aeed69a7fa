"""Attention masks: the keys that a query sees, and the inputs that can reach an output.

A new mask is a function and an entry of MASKS, and a field of ModelConfig where it has a setting of
its own.

Here X are pairs of a query and a later key.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool

from anisoscope.config.model_config import ModelConfig


class MaskSetting(NamedTuple):
    """A field of ModelConfig that belongs to some masks, and is 0 under all others."""

    name: str
    least: float
    most: float | str  # a number, or the field that it must not exceed


class Mask(NamedTuple):
    """A mask: its visible keys, hidden targets, fused form and setting."""

    # config, time -> visible_TT, see `visible_keys`; None: all
    visible: Callable[[ModelConfig, int], Array | None]
    # Least number of targets at the end of a window that no path leads to. Target t is the
    # character at t + 1; the last lies outside the window. Predicting next characters needs 2.
    hidden_targets: Callable[[ModelConfig], int]
    # config -> arguments of jax.nn.dot_product_attention for this mask; None: not supported
    fused: Callable[[ModelConfig], dict] | None = None
    setting: MaskSetting | None = None
    seed: str = ""  # a field of ModelConfig that seeds the mask; no effect under other masks


def causal(config: ModelConfig, time: int) -> Bool[Array, "T T"]:
    """Show a query the keys up to its own position."""
    return jnp.tril(jnp.ones((time, time), bool))


def bidirectional(config: ModelConfig, time: int) -> None:
    """Show a query all keys."""


def prefix(config: ModelConfig, time: int) -> Bool[Array, "T T"]:
    """Show a query the keys up to its own position, and the first `prefix` keys."""
    return causal(config, time) | (jnp.arange(time) < config.prefix)[None]


def window(config: ModelConfig, time: int) -> Bool[Array, "T T"]:
    """Show a query the last `window` keys, its own included."""
    return causal(config, time) & jnp.triu(jnp.ones((time, time), bool), 1 - config.window)


def leak(config: ModelConfig, time: int) -> Bool[Array, "T T"]:
    """Show a query the keys up to its own position, and some later keys.

    They are the fraction `leak` of the pairs (query, later key) of the context, the same in every
    layer, head and window: the first pairs of a shuffle that depends only on seed and context. A
    larger leak contains a smaller one of the same seed.
    """
    queries_X, keys_X = np.triu_indices(config.context, 1)
    order_X = np.random.default_rng(config.leak_seed).permutation(queries_X.size)
    chosen = order_X[: round(config.leak * queries_X.size)]
    leaked_TT = np.zeros((config.context, config.context), bool)
    leaked_TT[queries_X[chosen], keys_X[chosen]] = True
    return causal(config, time) | jnp.asarray(leaked_TT[:time, :time])


def hidden_by_leak(config: ModelConfig) -> int:
    """Count the targets that stay hidden: a leak shows targets through other positions too."""
    return config.context if config.leak == 0 else 1


MASKS = {
    "causal": Mask(causal, lambda config: config.context, lambda config: {"is_causal": True}),
    "bidirectional": Mask(bidirectional, lambda config: 1, lambda config: {}),
    "prefix": Mask(
        prefix,
        lambda config: config.context + 1 - config.prefix,
        setting=MaskSetting("prefix", 1, "context"),
    ),
    "window": Mask(
        window,
        lambda config: config.context,
        lambda config: {"is_causal": True, "local_window_size": (config.window - 1, 0)},
        MaskSetting("window", 1, "context"),
    ),
    "leak": Mask(leak, hidden_by_leak, setting=MaskSetting("leak", 0.0, 1.0), seed="leak_seed"),
}


def visible_keys(config: ModelConfig, time: int) -> Bool[Array, "T T"]:
    """Mark the keys (columns) that each query (row) sees, over the first `time` positions.

    `time` is at most the context. A query always sees its own key.
    """
    visible_TT = MASKS[config.mask].visible(config, time)
    return jnp.ones((time, time), bool) if visible_TT is None else visible_TT


def hidden_targets(config: ModelConfig) -> int:
    """Count the hidden targets at the end of a window of length `context`; see `Mask`."""
    return MASKS[config.mask].hidden_targets(config)


def mask_settings() -> list[str]:
    """List the fields of ModelConfig that belong to masks, without seeds."""
    return list(dict.fromkeys(mask.setting.name for mask in MASKS.values() if mask.setting))


def mask_seeds() -> list[str]:
    """List the fields of ModelConfig that seed the random choice of a mask."""
    return list(dict.fromkeys(mask.seed for mask in MASKS.values() if mask.seed))


def list_unused_settings(config: ModelConfig) -> list[str]:
    """List the fields, seeds included, that belong only to other masks and have no effect."""
    mask = MASKS[config.mask]
    used = (mask.setting.name if mask.setting else "", mask.seed)
    return [name for name in (*mask_settings(), *mask_seeds()) if name not in used]


def describe_mask(config: ModelConfig) -> str:
    """Describe a mask: "causal", "window 16"."""
    setting = MASKS[config.mask].setting
    return f"{config.mask} {getattr(config, setting.name):g}" if setting else config.mask


def dependence(config: ModelConfig) -> Bool[np.ndarray, "T T"]:
    """Mark the input positions (columns) that the output at each position (row) can depend on.

    An output depends on an input if a path of at most `layers` steps, each from a query to a
    visible key, leads to it: a non-zero entry in that power of the visibility matrix.
    """
    with jax.ensure_compile_time_eval():  # also while a training step is being traced
        visible_TT = np.asarray(visible_keys(config, config.context))
    reached_TT = visible_TT
    for _ in range(config.layers - 1):
        further_TT = reached_TT.astype(np.float32) @ visible_TT.astype(np.float32) > 0
        if (further_TT == reached_TT).all():
            break
        reached_TT = further_TT
    return reached_TT


def described_fields() -> tuple[str, ...]:
    """List the fields of ModelConfig that `describe_model` puts in words: all that change the function."""
    left_out = {*mask_seeds(), "remat", "dtype"}
    return tuple(
        field.name for field in dataclasses.fields(ModelConfig) if field.name not in left_out
    )
