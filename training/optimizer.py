"""Optimizers and schedules, each a function and an entry; gradients are clipped before all of them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from optax import contrib

from training.config import TrainConfig

REST = 0.1  # under Muon: the learning rate of what is no matrix of a block, as a share of that of these


def cosine(config: TrainConfig, peak: float, warmup: int) -> optax.Schedule:
    """Down from the end of the warm-up to the end of the run."""
    end = peak * config.final_fraction
    return optax.warmup_cosine_decay_schedule(0.0 if warmup else peak, peak, warmup, max(config.steps, 1), end)


def constant(config: TrainConfig, peak: float, warmup: int) -> optax.Schedule:
    """Constant after the warm-up, then linear decay over the last steps: checkpoints before it are of one phase."""
    decay = _decay_steps(config, warmup)
    parts = [
        optax.linear_schedule(0.0 if warmup else peak, peak, max(warmup, 1)),
        optax.constant_schedule(peak),
        optax.linear_schedule(peak, peak * config.final_fraction, max(decay, 1)),
    ]
    return optax.join_schedules(parts, [max(warmup, 1), max(config.steps - decay, warmup, 1)])


def _decay_steps(config: TrainConfig, warmup: int) -> int:
    return min(round(config.decay_fraction * config.steps), config.steps - warmup)


def constant_steps(config: TrainConfig, warmup: int) -> tuple[int, int]:
    """First and last step whose update was made at the peak."""
    return max(warmup, 1), max(config.steps - _decay_steps(config, warmup), warmup, 1)


class Schedule(NamedTuple):
    rate: Callable[[TrainConfig, float, int], optax.Schedule]  # config, peak, steps of warm-up
    constant: Callable[[TrainConfig, int], tuple[int, int]] | None = None  # its constant part; None: it has none


SCHEDULES = {"cosine": Schedule(cosine), "constant": Schedule(constant, constant_steps)}


def schedule(config: TrainConfig, share: float = 1.0) -> optax.Schedule:
    """Learning rate of update number `count` (from 0). The first update already moves: rate peak / warm-up steps."""
    rate = SCHEDULES[config.schedule].rate(config, share * config.learning_rate, warmup_steps(config))
    return lambda count: rate(count + 1)


def warmup_steps(config: TrainConfig) -> int:
    return min(round(config.warmup_fraction * config.steps), max(config.steps - 1, 0))


def constant_part(config: TrainConfig) -> tuple[int, int] | None:
    """First and last step of the part at a constant learning rate; None where the schedule has none."""
    part = SCHEDULES[config.schedule].constant
    return None if part is None else part(config, warmup_steps(config))


def is_matrix(path: tuple[Any, ...], leaf: jax.Array) -> bool:
    """Whether a parameter is a matrix: tables and kernels are; biases and LayerNorm scales are not (though stacked)."""
    return path[-1].key not in ("bias", "scale")


def adamw(config: TrainConfig, share: float = 1.0) -> optax.GradientTransformation:
    """As the whole field uses it: decay on matrices only. At a share of the learning rate."""
    return optax.adamw(
        schedule(config, share),
        b1=config.beta1,
        b2=config.beta2,
        weight_decay=config.weight_decay,
        mask=lambda params: jax.tree_util.tree_map_with_path(is_matrix, params),
    )


def muon(config: TrainConfig) -> optax.GradientTransformation:
    """Muon on the matrices of the blocks, queries, keys and values as one; AdamW at a tenth of the rate on the rest.

    Decay takes the same share of a matrix at every step as AdamW's at that tenth. Muon's momentum is 0.95, Nesterov's;
    beta1 and beta2 are those of the rest. Source: Jordan et al. 2024, in optax's form, each layer's matrix for itself.
    """
    stacked = contrib.MuonDimensionNumbers(reduction_axis=-2, output_axis=-1)
    on_matrices = contrib.muon(
        schedule(config),
        weight_decay=REST * config.weight_decay,
        muon_weight_dimension_numbers=lambda matrices: jax.tree.map(lambda _: stacked, matrices),
    )

    def kind(path: tuple[Any, ...], leaf: jax.Array) -> str:
        return "muon" if path[0].key == "blocks" and is_matrix(path, leaf) else "adamw"

    return optax.partition(
        {"muon": on_matrices, "adamw": adamw(config, REST)},
        lambda params: jax.tree_util.tree_map_with_path(kind, params),
    )


class Optimizer(NamedTuple):
    make: Callable[[TrainConfig], optax.GradientTransformation]  # of clipped gradients
    label: str  # in the words of a figure


OPTIMIZERS = {"adamw": Optimizer(adamw, "AdamW"), "muon": Optimizer(muon, "Muon")}


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm > 0 else optax.identity()
    return optax.chain(clip, OPTIMIZERS[config.optimizer].make(config))
