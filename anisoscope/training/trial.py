"""Estimate what a run needs on this machine: memory of its compiled step, and time of a step."""

import time
from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.run_config import RunConfig, checkpoint_steps, seeds
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.training.train_program import MEMORY_ADVICE, make_program, step_memory
from anisoscope.utils.memory import format_bytes
from anisoscope.utils.progress import format_duration

ENWIK8 = (205, 90_000_000, 5_000_000)  # bytes in use, characters to train on, to validate and test


def blank_corpus() -> Corpus:
    """Make a text of enwik8's size without reading it."""
    count, train, rest = ENWIK8
    train, rest = np.zeros(train, np.uint8), np.zeros(rest, np.uint8)
    return Corpus("enwik8", bytes(range(count)), train, rest, rest, "", "not read")


def describe_run(config: RunConfig, corpus: Corpus) -> Iterator[str]:
    """Compile the program of a run and its seeds, take a step, and yield lines about its cost."""
    program, count = make_program(config, corpus), len(seeds(config.train))
    kept, parameters = checkpoint_steps(config), program.abstract.params
    yield f"{count} × {transformer.count_parameters(parameters):,} parameters, {config.train.steps:,} steps"
    size = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(program.abstract))
    yield f"{len(kept)} checkpoints of each, {format_bytes(len(kept) * count * size)} on disk"
    needed, room = step_memory(program, jax.eval_shape(program.create))
    yield f"a step takes {format_bytes(needed)} of memory on each device"
    if room is not None and needed > room:
        yield f"only {format_bytes(room)} are available: {MEMORY_ADVICE}"
        return
    state, step_count = program.create(), jnp.int32(1)
    for _ in range(2):  # the first may wait for the device
        began = time.perf_counter()
        state, metrics = program.steps(state, program.tokens_N, program.data_R, step_count)
        jax.block_until_ready(metrics)
        seconds = time.perf_counter() - began
    total = format_duration(seconds * config.train.steps)
    yield f"a step takes {seconds:.3g} s here, all steps {total}"
