"""Define optimizers and schedules, each a function and an entry; gradients are clipped first."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import optax
from optax import contrib

from anisoscope.config.run_config import TrainConfig

# learning rate of all other parameters over that of the blocks' matrices, under Muon and SGD
REST = 0.1


def warmup_steps(config: TrainConfig) -> int:
    """Return the number of warm-up steps."""
    return min(round(config.warmup_fraction * config.steps), max(config.steps - 1, 0))


def cosine_schedule(config: TrainConfig, peak: float) -> optax.Schedule:
    """Decay by a cosine from the end of the warm-up to the end of the run."""
    warmup, end = warmup_steps(config), peak * config.final_fraction
    begin = 0.0 if warmup else peak
    return optax.warmup_cosine_decay_schedule(begin, peak, warmup, max(config.steps, 1), end)


def constant_schedule(config: TrainConfig, peak: float) -> optax.Schedule:
    """Keep the rate constant after the warm-up, then decay linearly over the last steps."""
    first, last = constant_steps(config)
    parts = [
        optax.linear_schedule(0.0 if warmup_steps(config) else peak, peak, first),
        optax.constant_schedule(peak),
        optax.linear_schedule(peak, peak * config.final_fraction, max(config.steps - last, 1)),
    ]
    return optax.join_schedules(parts, [first, last])


def constant_steps(config: TrainConfig) -> tuple[int, int]:
    """Return the first and last step whose update was made at the peak."""
    first = max(warmup_steps(config), 1)
    decay = min(round(config.decay_fraction * config.steps), config.steps - first)
    return first, max(config.steps - max(decay, 0), first)


class Schedule(NamedTuple):
    """A schedule of the learning rate, and the steps at which it is constant."""

    rate: Callable[[TrainConfig, float], optax.Schedule]  # config, peak
    # first and last step at a constant rate; None: the schedule has none
    constant: Callable[[TrainConfig], tuple[int, int]] | None = None


SCHEDULES = {
    "cosine": Schedule(cosine_schedule),
    "constant": Schedule(constant_schedule, constant_steps),
}


def schedule(config: TrainConfig, lr_scale: float = 1.0) -> optax.Schedule:
    """Return the learning rate as a function of the update number `count`, from 0.

    The first update already has a rate above 0: peak / warm-up steps.
    """
    rate = SCHEDULES[config.schedule].rate(config, lr_scale * config.learning_rate)
    return lambda count: rate(count + 1)


def constant_part(config: TrainConfig) -> tuple[int, int] | None:
    """Return the first and last step at a constant learning rate; None where there are none."""
    part = SCHEDULES[config.schedule].constant
    return part and part(config)


def is_matrix(path: tuple[Any, ...], leaf: jax.Array) -> bool:
    """Return whether a parameter is a matrix; stacked vectors, also of a learned sink, are not."""
    return {step.key for step in path}.isdisjoint({"bias", "scale", "sink"})


def adamw(config: TrainConfig, lr_scale: float = 1.0) -> optax.GradientTransformation:
    """Make AdamW with decay on matrices only, at a share of the learning rate."""
    return optax.adamw(
        schedule(config, lr_scale),
        b1=config.beta1,
        b2=config.beta2,
        weight_decay=config.weight_decay,
        mask=functools.partial(jax.tree_util.tree_map_with_path, is_matrix),
    )


def muon(config: TrainConfig, lr_scale: float) -> optax.GradientTransformation:
    """Make Muon for the matrices of the blocks, each layer's matrix for itself.

    Queries, keys and values are one matrix. Momentum is 0.95, Nesterov's. Source: Jordan et al.
    2024, in optax's form.
    """
    stacked = contrib.MuonDimensionNumbers(reduction_axis=-2, output_axis=-1)
    return contrib.muon(
        schedule(config),
        weight_decay=lr_scale * config.weight_decay,
        muon_weight_dimension_numbers=lambda matrices: jax.tree.map(lambda _: stacked, matrices),
    )


def sgd(config: TrainConfig, lr_scale: float) -> optax.GradientTransformation:
    """Make gradient descent with Muon's momentum: Muon without orthogonal updates."""
    return optax.chain(
        optax.trace(decay=0.95, nesterov=True),
        optax.add_decayed_weights(lr_scale * config.weight_decay),
        optax.scale_by_learning_rate(schedule(config)),
    )


def adamw_on_matrices(config: TrainConfig, lr_scale: float) -> optax.GradientTransformation:
    """Make AdamW for matrices; its decay takes the same share of a matrix per step as elsewhere."""
    return optax.adamw(
        schedule(config),
        b1=config.beta1,
        b2=config.beta2,
        weight_decay=lr_scale * config.weight_decay,
    )


class Optimizer(NamedTuple):
    """An optimizer of the blocks' matrices; all other parameters have AdamW at their own rate.

    The second argument of `matrices` is that rate over the matrices' own; with it, decay takes the
    same share of every parameter per step.
    """

    matrices: Callable[[TrainConfig, float], optax.GradientTransformation]
    rest: float = REST  # default of that ratio


OPTIMIZERS = {
    "adamw": Optimizer(adamw_on_matrices, rest=1.0),
    "muon": Optimizer(muon),
    "sgd": Optimizer(sgd),
}


def make_optimizer(config: TrainConfig) -> optax.GradientTransformation:
    """Make the optimizer of a run: clipping, then the optimizers of its parameters."""
    clip = optax.clip_by_global_norm(config.clip_norm) if config.clip_norm > 0 else optax.identity()
    kind = OPTIMIZERS[config.optimizer]
    lr_scale, rate = kind.rest, config.other_learning_rate
    if rate is not None:
        lr_scale = rate / config.learning_rate
    if config.optimizer == "adamw" and lr_scale == 1.0:
        return optax.chain(clip, adamw(config))
    # their names in a checkpoint
    matrices, others = (config.optimizer, "rest" if config.optimizer == "adamw" else "adamw")

    def kind_name(path: tuple[Any, ...], leaf: jax.Array) -> str:
        return matrices if path[0].key == "blocks" and is_matrix(path, leaf) else others

    kinds = {matrices: kind.matrices(config, lr_scale), others: adamw(config, lr_scale)}
    names = functools.partial(jax.tree_util.tree_map_with_path, kind_name)
    return optax.chain(clip, optax.partition(kinds, names))
