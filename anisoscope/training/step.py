"""Define the pure training step: (state, data seed, corpus) -> (state, metrics).

Letters: S steps of a dispatch.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Int32, UInt8

from anisoscope.config.run_config import RunConfig
from anisoscope.training import objective, watch

Params = Any
# folded into the key in place of a step: the masks' key differs from every step's window key
NO_STEP = 2**32 - 1


class State(NamedTuple):
    """Parameters, optimizer state and step of a run."""

    params: Params
    opt_state: optax.OptState
    step: jax.Array  # () int32, updates done


class StepMetrics(NamedTuple):
    """Metrics of a step."""

    loss: jax.Array  # nats per predicted character, before the update, without the penalty
    gradient_norm: jax.Array  # gradient of loss + penalty, before clipping
    penalty: jax.Array  # what train.penalty adds to the loss
    # whether the batch predicts any character; if not, its loss of 0 means nothing
    scored: jax.Array
    # {quantity: by layer}, before the update; NaN at unwatched steps; {} where none is watched
    watch: dict[str, jax.Array]


def init_state(params: Params, optimizer: optax.GradientTransformation) -> State:
    """Make the state of step 0."""
    return State(params, optimizer.init(params), jnp.zeros((), jnp.int32))


def train_batch(
    config: RunConfig, seed: int | jax.Array, tokens_N: jax.Array, step: jax.Array, mask_token: int
) -> objective.Batch:
    """Make the batch of update `step`: a pure function of (data seed, step, example index)."""
    examples_B = jnp.arange(config.train.batch_size)
    length = config.model.context + 1
    starts_B = starts(seed, step, examples_B, tokens_N.shape[0], length)
    windows_BL = crop(tokens_N, starts_B, length)
    masks = jax.random.fold_in(jax.random.key(seed), NO_STEP)
    key = jax.random.fold_in(masks, step)
    return objective.make_batch(config, windows_BL, key, examples_B, mask_token)


def make_step(
    apply: Callable,
    optimizer: optax.GradientTransformation,
    config: RunConfig,
    mask_token: int,
    shard: Callable[[objective.Batch], objective.Batch] = lambda batch: batch,
) -> Callable[[State, jax.Array, jax.Array], tuple[State, StepMetrics]]:
    """Make the step: state, data seed, corpus -> state, metrics.

    `shard` constrains how a (micro-)batch lies on the devices. Weights are divided by their sum
    over the whole batch first, so that micro-batches add up to the loss and gradient of one batch.
    """
    every = config.watch.every
    capture = watch.make_capture(config) if every else None

    def loss(
        params: Params, batch: objective.Batch
    ) -> tuple[jax.Array, tuple[jax.Array, jax.Array, Any]]:
        logits_BTV, activations = apply(params, batch.tokens_BT, capture=capture)
        nats, weight = objective.nats(logits_BTV, batch), config.train.penalty
        resid_LBTD, snapshot = activations.resid_LBTD, ()
        if every:
            snapshot = watch.select_cloud(config, resid_LBTD[0]), activations.snapshot_N
        if not weight:
            return nats, (nats, jnp.zeros(()), snapshot)
        penalty = weight * objective.anisotropy_penalty(resid_LBTD, config.train.penalty_layers)
        return nats + penalty, (nats, penalty, snapshot)

    def measure_when_due(step: jax.Array, *snapshot: Any) -> dict[str, jax.Array]:
        measure = functools.partial(watch.measure_snapshot, config)
        shapes = jax.eval_shape(measure, *snapshot)
        nothing = jax.tree.map(lambda shape: jnp.full(shape.shape, jnp.nan), shapes)
        return jax.lax.cond(step % every == 0, measure, lambda *_: nothing, *snapshot)

    def step(state: State, seed: jax.Array, tokens_N: jax.Array) -> tuple[State, StepMetrics]:
        batch = train_batch(config, seed, tokens_N, state.step, mask_token)
        weights_BT = batch.weights_BT / jnp.maximum(batch.weights_BT.sum(), 1.0)
        batch = batch._replace(weights_BT=weights_BT)
        if config.train.accumulate == 1:
            (_, values), grads = jax.value_and_grad(loss, has_aux=True)(state.params, shard(batch))
        else:
            values, grads = _accumulated(loss, state.params, batch, config.train.accumulate, shard)
        updates, opt_state = optimizer.update(grads, state.opt_state, state.params)
        new = State(optax.apply_updates(state.params, updates), opt_state, state.step + 1)
        (nats, penalty, snapshot), norm = values, optax.tree.norm(grads)
        geometry = measure_when_due(state.step, *snapshot, grads) if every else {}
        metrics = StepMetrics(nats, norm, penalty, batch.weights_BT.any(), geometry)
        return new, metrics

    return step


def _accumulated(
    loss: Callable, params: Params, batch: objective.Batch, parts: int, shard: Callable
) -> tuple[tuple[jax.Array, jax.Array], Params]:
    def add(carry: tuple, part: objective.Batch) -> tuple[tuple, None]:
        (_, values), grads = jax.value_and_grad(loss, has_aux=True)(params, shard(part))
        return jax.tree.map(jnp.add, carry, (values, grads)), None

    zero = ((jnp.zeros(()), jnp.zeros(()), ()), jax.tree.map(jnp.zeros_like, params))
    split = jax.tree.map(lambda x: x.reshape(parts, -1, *x.shape[1:]), batch)
    return jax.lax.scan(add, zero, split)[0]


def make_steps(
    step: Callable[[State, jax.Array, jax.Array], tuple[State, StepMetrics]], most: int
) -> Callable[[State, jax.Array, jax.Array, jax.Array], tuple[State, StepMetrics]]:
    """Make a function that runs `count` <= `most` steps in one call.

    One program serves all counts. The first `count` entries of the metrics are filled.
    """

    def steps(
        state: State, seed: jax.Array, tokens_N: jax.Array, count: jax.Array
    ) -> tuple[State, StepMetrics]:
        def body(i: jax.Array, carry: tuple[State, StepMetrics]) -> tuple[State, StepMetrics]:
            state, done = carry
            state, metrics = step(state, seed, tokens_N)
            return state, jax.tree.map(lambda all_S, value: all_S.at[i].set(value), done, metrics)

        shapes = jax.eval_shape(step, state, seed, tokens_N)[1]
        empty = jax.tree.map(lambda shape: jnp.full((most, *shape.shape), jnp.nan), shapes)
        return jax.lax.fori_loop(0, count, body, (state, empty))

    return steps


def starts(
    seed: int | Array,
    step: int | Array,
    examples_B: Int32[Array, " B"],
    num_characters: int,
    length: int,
) -> Int32[Array, " B"]:
    """Draw the first character of each window, uniformly; each example index has its own key."""
    key = jax.random.fold_in(jax.random.key(seed), step)

    def start(example: Array) -> Array:
        return jax.random.randint(
            jax.random.fold_in(key, example), (), 0, num_characters - length + 1, jnp.int32
        )

    return jax.vmap(start)(examples_B)


def crop(
    corpus_N: UInt8[Array, " N"], starts_B: Int32[Array, " B"], length: int
) -> Int32[Array, "B T"]:
    """Cut the windows of T = `length` token ids that begin at `starts_B`."""
    windows_BT = jax.vmap(lambda start: jax.lax.dynamic_slice(corpus_N, (start,), (length,)))(
        starts_B
    )
    return windows_BT.astype(jnp.int32)
