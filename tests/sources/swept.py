"""What tests of the sweep share: a run measured, and changed."""

import json
import shutil

import jax.numpy as jnp

from anisoscope.sources import run_program, run_source, sweep
from anisoscope.training import checkpoint
from anisoscope.training.step import State
from anisoscope.utils.processes import Stop
from tests import tiny

VALUE = {"statistic": "mean"}


def measured(config, folder, corpus=None, name="run"):
    with Stop() as stop:
        sweep.sweep(run_source.open_run_source(config, corpus or tiny.corpus(), folder, name), stop)


def count_forward():
    """Return a function that counts the forward passes that are made, and then compiled, from now on."""
    run_program._jit_forward.cache_clear()
    return lambda: run_program._jit_forward.cache_info().misses


def exchanged(folder, step, other):
    """Replace the checkpoint of a step by another one, as if training again gave another result."""
    params = checkpoint.CheckpointReader(folder / "checkpoints", run=None).restore_params(other)
    shutil.rmtree(folder / "checkpoints" / str(step))
    metadata = (folder / "checkpoints" / str(other) / checkpoint.METADATA).read_text()
    run = json.loads(metadata)["custom_metadata"]["run"]
    with checkpoint.Checkpoints(folder / "checkpoints", None, run) as store:
        store.save(step, State(params, {}, jnp.int32(step)))
