"""All that is compiled once for a run, and how it lies on the devices."""

from collections.abc import Callable
from typing import NamedTuple

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

import models
from data.corpus import Corpus
from errors import UserError
from experiments.base import Config
from training import evaluate, mesh, objective, optimizer, step


class Program(NamedTuple):
    steps: Callable  # state, tokens_N, count -> state, metrics
    score: Callable  # params, tokens_N, windows -> Score
    create: Callable[[], step.State]
    abstract: step.State  # shapes, types and shardings of the state
    tokens_N: jax.Array  # the training split, on the devices
    devices: int


def check(config: Config) -> tuple[jax.sharding.Mesh, int]:
    """The devices and the windows of a micro-batch; UserError where these cannot be split over those."""
    devices = mesh.make_mesh(config.mesh)
    rows = config.train.batch_size // config.train.accumulate
    if rows % devices.size:
        raise UserError(
            f"train.batch_size / train.accumulate gives micro-batches of {rows} windows; "
            f"it must be a multiple of the {devices.size} devices"
        )
    return devices, rows


def make_program(config: Config, corpus: Corpus) -> Program:
    devices, rows = check(config)
    model = models.build(config.model, corpus.vocab_size)
    adamw = optimizer.make_optimizer(config.train)
    by_batch, everywhere = mesh.batch_sharding(devices), NamedSharding(devices, P())

    def create() -> step.State:
        return step.init_state(model.init(jax.random.key(config.train.seed)), adamw)

    def constrain(batch: objective.Batch) -> objective.Batch:
        return jax.lax.with_sharding_constraint(batch, by_batch)

    shapes = jax.eval_shape(create)
    shardings = mesh.parameter_sharding(devices, shapes)
    steps = step.make_steps(
        step.make_step(model.apply, adamw, config, corpus.mask_token, constrain), config.train.dispatch
    )
    return Program(
        steps=jax.jit(steps, donate_argnums=0, out_shardings=(shardings, everywhere)),
        score=evaluate.make_scorer(
            model.apply, config, corpus.mask_token, lambda batch: jax.device_put(batch, by_batch), rows
        ),
        create=jax.jit(create, out_shardings=shardings),
        abstract=jax.tree.map(lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), shapes, shardings),
        tokens_N=jax.device_put(corpus.train, everywhere),
        devices=devices.size,
    )
