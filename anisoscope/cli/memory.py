"""How much memory a run needs, and how much there is: a run that cannot fit is refused before it has begun.

The estimates follow what XLA says of compiled programs (`memory_analysis`). On a CPU, for the shapes in dev/LOG.md,
they are up to an eighth below that in training, and a quarter in measuring everything. What fails all the same is told.
"""

import dataclasses
import functools
import os

import jax

from anisoscope.config.experiment import Config
from anisoscope.config.model import ModelConfig
from anisoscope.config.run import TrainConfig, seeds
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.nulls import PERMUTED
from anisoscope.measurement.sources.probe import POSITION_SETS, windows_of_fold
from anisoscope.models import masks, transformer
from anisoscope.training import optimizer, step
from anisoscope.utils import mesh
from anisoscope.utils.errors import UserError
from anisoscope.utils.memory import available, format_bytes

FLOAT = 4  # bytes
NEAREST = 42  # bytes of a point's 10 nearest, of the whole and of its section, below 65,537 points
ELSE = {  # what helps too
    "train.batch_size": ", model.layers or model.width, or raise train.accumulate",
    "model.width": " or model.layers",
    "train.num_seeds": " or train.num_data_seeds",
    "measure.points": ", model.context or model.width",
    "tangents.windows": ", model.context or model.width, or raise tangents.folds",
    "tangents.points": " or model.width",
}


def state_bytes(config: Config, vocabulary: int) -> tuple[int, int]:
    """Of a run's parameters, and of all that a checkpoint holds."""
    unmasked = {name: getattr(ModelConfig(), name) for name in ("mask", *masks.settings(), *masks.seeds())}
    model = dataclasses.replace(config.model, **unmasked)  # so that runs of an experiment are counted once
    return _state_bytes(model, TrainConfig(optimizer=config.train.optimizer), vocabulary)


@functools.cache
def _state_bytes(model: ModelConfig, train: TrainConfig, vocabulary: int) -> tuple[int, int]:
    params = jax.eval_shape(transformer.build(model, vocabulary, "float32").init, jax.random.key(0))
    state = jax.eval_shape(lambda params: step.init_state(params, optimizer.make_optimizer(train)), params)
    return tuple(sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(tree)) for tree in (params, state))


def training(config: Config, vocabulary: int) -> dict[str, int]:
    """Bytes on one device while it trains, by the setting that helps."""
    model, count = config.model, len(seeds(config.train))
    params, state = state_bytes(config, vocabulary)
    at_once = config.mesh.seeds or (1 if jax.default_backend() == "cpu" else count)
    rows = -(-config.train.batch_size // config.train.accumulate // len(mesh.devices()))
    width, scores = model.width, model.heads * model.context  # floats of a token in a block
    kept, worked = (5 + 2 * model.expansion) * width + scores, 8 * width + 1.3 * scores
    if model.remat:
        kept, worked = width, 21 * width + 4 * scores
    half = 0.5 if transformer.compute_type(model.dtype) == "bfloat16" else 1.0
    of_token = (model.layers * kept + worked) * half + 5.4 * vocabulary
    return {
        "train.batch_size": int(FLOAT * at_once * rows * model.context * of_token),
        "model.width": (state + 2 * params * at_once) // config.mesh.fsdp,
        "train.num_seeds": (count - 1) * state // config.mesh.fsdp,
    }


def measuring(config: Config) -> dict[str, int]:
    """Bytes on one device, or on all cores of a CPU, while a checkpoint is measured."""
    model, measure = config.model, config.measure
    windows = windows_of_fold(measure.points // measure.folds, model.context, measure.weighting)
    tokens = measure.folds * windows * model.context
    inputs = 1 + ("shuffled" in measure.nulls)
    compared = 2 * ("comparison" in measure.families)
    heads = any(FAMILIES[family].of in ("heads", "vectors") for family in measure.families)  # queries and keys too
    layers = model.layers + 1
    floats = tokens * model.width * (inputs * (layers + 2 * model.layers * heads) + compared * layers)
    floats += 2 * (inputs + ("gaussian" in measure.nulls)) * layers * measure.points * model.width
    permuted = PERMUTED in measure.nulls and "comparison" in measure.families
    floats += permuted * layers * measure.points * model.width
    floats += len(measure.hook_points) * tokens * model.width * model.layers
    floats += 2 * tokens * model.heads * model.context * heads
    shared = 1 if jax.default_backend() != "cpu" else min(os.cpu_count() or 1, 2 * measure.batches)
    nearest = 3 * NEAREST * measure.batches * len(POSITION_SETS) * layers * measure.points * (compared > 0)
    return {"measure.points": FLOAT * floats * shared + nearest}  # shared out, and kept of three checkpoints


def tangents(config: Config, vocabulary: int) -> dict[str, int]:
    """Bytes while subspaces are tested at a checkpoint: passes over a fold of windows, and the rows of all layers."""
    model, wanted = config.model, config.tangents
    tokens = wanted.windows // wanted.folds * model.context
    of_block = (8 + 2 * model.expansion) * model.width + 2 * model.heads * model.context
    rows = (model.layers + 1) * wanted.points * model.width
    return {
        "tangents.windows": FLOAT * tokens * (model.layers * of_block + 4 * vocabulary),
        "tangents.points": FLOAT * 6 * rows,  # states, gradients, and those of unit length; what is fitted to
    }


def check_memory(config: Config, vocabulary: int, stages: list[str]) -> None:
    """Raise UserError where a run with these settings would need more than there is."""
    there = available()
    stages_needed = {
        "train": lambda: training(config, vocabulary),
        "measure": lambda: measuring(config),
        "tangents": lambda: tangents(config, vocabulary) if config.tangents.enabled else {},
    }
    for stage, needed in stages_needed.items():
        if there is None or stage not in stages:
            continue
        parts = needed()
        if sum(parts.values()) > there:
            name = max(parts, key=parts.get)
            group, _, field = name.partition(".")
            value = getattr(getattr(config, group), field)
            what = f"--stages={stage} would need about {format_bytes(sum(parts.values()))} of memory"
            raise UserError(f"{what}, and {format_bytes(there)} are available: lower {name} ({value}){ELSE[name]}")
