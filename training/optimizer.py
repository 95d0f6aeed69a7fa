"""Optimizers, all with warm-up, cosine decay and clipping. A new one is a function and an entry of OPTIMIZERS."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax

from training.config import TrainConfig


def schedule(config: TrainConfig) -> optax.Schedule:
    """Learning rate of update number `count` (from 0). The first update already moves: rate peak / warm-up steps."""
    warmup = min(round(config.warmup_fraction * config.steps), max(config.steps - 1, 0))
    peak, end = config.learning_rate, config.learning_rate * config.final_fraction
    rate = optax.warmup_cosine_decay_schedule(0.0 if warmup else peak, peak, warmup, max(config.steps, 1), end)
    return lambda count: rate(count + 1)


def is_matrix(path: tuple[Any, ...], leaf: jax.Array) -> bool:
    """Whether a parameter is a matrix: tables and kernels are; biases and LayerNorm scales are not (though stacked)."""
    return path[-1].key not in ("bias", "scale")


def adamw(config: TrainConfig) -> optax.GradientTransformation:
    """As the whole field uses it: decay on matrices only."""
    return optax.adamw(
        schedule(config),
        b1=config.beta1,
        b2=config.beta2,
        weight_decay=config.weight_decay,
        mask=lambda params: jax.tree_util.tree_map_with_path(is_matrix, params),
    )


class Optimizer(NamedTuple):
    make: Callable[[TrainConfig], optax.GradientTransformation]  # of clipped gradients
    label: str  # in the words of a figure


OPTIMIZERS = {"adamw": Optimizer(adamw, "AdamW")}


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm > 0 else optax.identity()
    return optax.chain(clip, OPTIMIZERS[config.optimizer].make(config))
