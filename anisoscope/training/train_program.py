"""Compile the programs of a run, or of seeds that train together; describe their cost."""

import functools
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from anisoscope.config.run_config import RunConfig, check_checkpoints, checkpoint_steps, seed_pairs
from anisoscope.data.corpus import Corpus
from anisoscope.models import model_settings, transformer
from anisoscope.training import evaluate, optimizer, step
from anisoscope.training.objective import OBJECTIVES, Batch, nats
from anisoscope.training.optimizer import OPTIMIZERS, SCHEDULES
from anisoscope.utils import mesh
from anisoscope.utils.errors import UserError
from anisoscope.utils.memory import available, format_bytes
from anisoscope.utils.progress import format_duration
from anisoscope.utils.settings import check_fields, check_range, choose

MEMORY_ADVICE = (
    "in a new --workdir, lower train.batch_size, model.context, layers or width, or raise "
    "train.accumulate"
)


class Program(NamedTuple):
    """Compiled functions of a run with R seeds; states and metrics have a first axis of seeds."""

    steps: Callable  # state, tokens_N, data_R, count -> state, metrics
    score: Callable  # params, tokens_N, windows -> a Score per seed
    create: Callable[[], step.State]
    stack: Callable[[list[step.State]], step.State]
    select_seed: Callable[[step.State, int], step.State]  # from stacked states
    abstract: step.State  # shapes, types and shardings of one seed's state
    tokens_N: jax.Array  # the training split, on the devices
    # data seeds of the runs: an argument, so that runs of other seeds share the compiled program
    data_R: jax.Array
    devices: int

    def run(self, states: step.State, count: int) -> tuple[step.State, step.StepMetrics]:
        """Take `count` steps; the states are donated."""
        return self.steps(states, self.tokens_N, self.data_R, jnp.int32(count))


def check_program(
    config: RunConfig, corpus: Corpus, devices: jax.sharding.Mesh | None = None
) -> tuple[jax.sharding.Mesh, int]:
    """Return the devices, by default all, and the windows of a micro-batch, which they divide."""
    devices = devices or mesh.make_mesh(config.mesh.data, config.mesh.fsdp)
    rows = config.train.batch_size // config.train.accumulate
    if rows % devices.size:
        limit = f"it must be a multiple of the {devices.size} devices"
        raise UserError(f"train.batch_size / train.accumulate is {rows}; {limit}")
    check_memory(least_memory(config, corpus.vocab_size, devices), "at least ")
    evaluate.check_evaluation(config, corpus, rows)
    return devices, rows


def least_memory(config: RunConfig, vocab_size: int, devices: jax.sharding.Mesh) -> int:
    """Count bytes of a device that a step cannot do without, before anything is allocated.

    They are the parameters, their gradients and a moment, the residual stream and the logits.
    """
    model, train = config.model, config.train
    block = (4 + 2 * model.expansion) * model.width**2
    parameters = model.layers * block + (vocab_size + model.context) * model.width
    positions = train.batch_size // train.accumulate * model.context
    activations = positions * (model.layers * model.width + vocab_size)
    return 4 * (3 * parameters // devices.shape["fsdp"] + activations // devices.size)


def check_memory(needed: int, words: str = "") -> None:
    """Raise UserError where a device does not have this memory."""
    if (room := available()) is not None and needed > room:
        what = f"a step takes {words}{format_bytes(needed)} of memory"
        raise UserError(f"{what}, and {format_bytes(room)} are available: {MEMORY_ADVICE}")


def check_step_memory(program: Program, state: step.State) -> int:
    """Compile the program for this, maybe abstract, state; return a step's bytes if they fit."""
    arguments = state, program.tokens_N, program.data_R, jnp.int32(1)
    sizes = program.steps.lower(*arguments).compile().memory_analysis()
    needed = sizes.argument_size_in_bytes + sizes.temp_size_in_bytes
    check_memory(needed)
    return needed


def make_train_program(
    config: RunConfig, corpus: Corpus, devices: jax.sharding.Mesh | None = None
) -> Program:
    """Make the program of a run: its model, optimizer, step and scorer on all or these devices."""
    devices, rows = check_program(config, corpus, devices)
    by_batch, everywhere = NamedSharding(devices, P(mesh.MESH_AXES)), NamedSharding(devices, P())

    # One seed: how its state begins and where it lies, and its next `count` steps.
    model = transformer.build(config.model, corpus.vocab_size)
    update = optimizer.make_optimizer(config.train)

    def init(seed: jax.Array) -> step.State:
        return step.init_state(model.init(jax.random.key(seed)), update)

    shard_batch = functools.partial(jax.lax.with_sharding_constraint, shardings=by_batch)
    shapes = jax.eval_shape(init, jnp.uint32(0))
    seed_sharding = mesh.parameter_sharding(devices, shapes)
    create = jax.jit(init, out_shardings=seed_sharding)
    update_step = step.make_step(model.apply, update, config, corpus.mask_token, shard_batch)
    run = step.make_steps(update_step, config.train.steps_per_call)

    # All seeds: their states on a new first axis, each placed as a single seed is.
    weights, data = zip(*seed_pairs(config.train), strict=True)
    over_seeds = functools.partial(mesh.map_over_seeds, seeds=config.mesh.seeds, count=len(data))
    stacked = jax.tree.map(lambda x: NamedSharding(x.mesh, P(None, *x.spec)), seed_sharding)

    @functools.partial(jax.jit, out_shardings=stacked)
    def stack(states: list[step.State]) -> step.State:
        return jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)

    def steps(
        states: step.State, tokens_N: jax.Array, data_R: jax.Array, count: jax.Array
    ) -> tuple[step.State, step.StepMetrics]:
        return over_seeds(lambda state, seed: run(state, seed, tokens_N, count))(states, data_R)

    place = functools.partial(jax.device_put, device=by_batch)
    scoring = model.apply, config, corpus.mask_token, place, rows, over_seeds, everywhere
    return Program(
        steps=jax.jit(steps, donate_argnums=0, out_shardings=(stacked, everywhere)),
        score=evaluate.make_scorer(*scoring),
        create=lambda: stack([create(jnp.uint32(seed)) for seed in weights]),
        stack=stack,
        select_seed=jax.jit(
            lambda states, i: jax.tree.map(lambda leaf: leaf[i], states),
            out_shardings=seed_sharding,
        ),
        abstract=jax.tree.map(
            lambda a, s: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=s), shapes, seed_sharding
        ),
        tokens_N=jax.device_put(corpus.train, everywhere),
        data_R=jax.device_put(jnp.asarray(data, jnp.uint32), everywhere),
        devices=devices.size,
    )


def describe_run(config: RunConfig, corpus: Corpus) -> Iterator[str]:
    """Yield lines about the cost of a run and its seeds; raise UserError if memory is short.

    Nothing is compiled but a matrix product, whose speed bounds that of a step.
    """
    devices = mesh.make_mesh(config.mesh.data, config.mesh.fsdp)
    rows = config.train.batch_size // config.train.accumulate
    model = transformer.build(config.model, corpus.vocab_size)
    update = optimizer.make_optimizer(config.train)
    state = jax.eval_shape(
        lambda seed: step.init_state(model.init(jax.random.key(seed)), update), jnp.uint32(0)
    )
    count, kept = len(seed_pairs(config.train)), checkpoint_steps(config)
    parameters = f"{transformer.count_parameters(state.params):,} parameters"
    yield f"{count} × {parameters}, {config.train.steps:,} steps"
    size = count_bytes(state)
    yield f"{len(kept)} checkpoints of each, {format_bytes(len(kept) * count * size)} on disk"
    stored = activation_bytes(model.apply, state.params, config, rows // devices.size)
    gradients = 2 * count_bytes(state.params)  # and updates
    needed = (size + gradients) // devices.shape["fsdp"] + stored + corpus.train.nbytes
    check_memory(needed, "about ")
    yield f"a step takes about {format_bytes(needed)} of memory on each device"
    work = step_flops(config, corpus.vocab_size)
    speed = devices.size * measure_flops(transformer.compute_type(config.model.dtype))
    seconds = work / speed
    total = format_duration(count * seconds * config.train.steps)
    yield (
        f"a step takes {seconds:.2g} s at least here ({work / 1e9:.2g} of {speed / 1e9:.2g} "
        f"Gflop/s), all steps {total}"
    )


def count_bytes(tree: Any) -> int:
    """Count the bytes of a tree of arrays or shapes."""
    return sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree))


def activation_bytes(apply: Callable, params: Any, config: RunConfig, rows: int) -> int:
    """Count the bytes that the backward pass of `rows` windows needs of the forward pass."""
    shape = rows, config.model.context
    tokens_BT = jax.ShapeDtypeStruct(shape, jnp.int32)
    weights_BT = jax.ShapeDtypeStruct(shape, jnp.float32)

    def keep_residuals(params: Any, batch: Batch) -> Any:
        return jax.vjp(lambda x: nats(apply(x, batch.tokens_BT)[0], batch), params)[1]

    return count_bytes(
        jax.eval_shape(keep_residuals, params, Batch(tokens_BT, tokens_BT, weights_BT))
    ) - count_bytes(params)


def step_flops(config: RunConfig, vocab_size: int) -> int:
    """Count the operations of a step's matrix products, forward and backward."""
    model, width = config.model, config.model.width
    weights = model.layers * (4 + 2 * model.expansion) * width**2 + vocab_size * width
    attention = 2 * model.layers * model.context * width
    return 6 * config.train.batch_size * model.context * (weights + attention)


@functools.cache
def measure_flops(dtype: str) -> float:
    """Measure how many operations a device takes per second in large matrix products."""
    size = 1024
    x_DD = jnp.ones((size, size), dtype)
    product = jax.jit(jnp.matmul)
    product(x_DD, x_DD).block_until_ready()
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        product(x_DD, x_DD).block_until_ready()
        seconds.append(time.perf_counter() - began)
    return 2 * size**3 / min(seconds)


def check_trainable(config: RunConfig) -> None:
    """Raise UserError, one line, where a run cannot be trained."""
    train = config.train
    check_fields(config)
    check_checkpoints(config)
    choose("objective", config.objective, OBJECTIVES)
    choose("train.optimizer", train.optimizer, OPTIMIZERS)
    choose("train.schedule", train.schedule, SCHEDULES)
    model_settings.check_model(config.model)
    if config.evaluate.draws > 1 and config.evaluate.draws % 2:
        raise UserError(f"evaluate.draws is {config.evaluate.draws}; set 1 or an even number")
    check_range("evaluate.stride", config.evaluate.stride, 1, config.model.context)
    OBJECTIVES[config.objective].check(config.model, config.evaluate.stride)
    if train.other_learning_rate is not None and not train.learning_rate:
        raise UserError("train.other_learning_rate needs train.learning_rate above 0")
    if train.batch_size % train.accumulate:
        limit = f"it must divide train.batch_size ({train.batch_size})"
        raise UserError(f"train.accumulate is {train.accumulate}; {limit}")
    for name, used in (("train.penalty", train.penalty), ("watch.every", config.watch.every)):
        if used and train.accumulate > 1:
            why = f"train.accumulate={train.accumulate} splits them; set it to 1"
            raise UserError(f"{name} needs whole batches, and {why}")
    if train.penalty and config.model.width < 2:
        raise UserError("train.penalty compares directions, and model.width is 1; set 2 or more")
    if train.penalty_layers and not train.penalty:
        why = "has no effect while train.penalty is 0; set train.penalty, or leave it out"
        raise UserError(f"train.penalty_layers {why}")
    for layer in train.penalty_layers:
        check_range("train.penalty_layers", layer, 0, config.model.layers)
