"""What a GPU or a TPU lacks is seen here, without one: programs are lowered for both. And what a
CPU makes of one.
"""

import subprocess
import sys

import jax
import jax.export
import numpy as np
import pytest

from anisoscope.config.measure_config import NULLS
from anisoscope.training import train_program as training_program
from anisoscope.utils.settings import replace
from tests import tiny
from tests.program import ROOT, environment
from tests.sources.activated import FAMILIES, PROBE, program, visible

PLATFORMS = ("cuda", "tpu")


def lowered(function, *arguments):
    """For accelerators: the bytes of the module."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), arguments)
    return len(jax.export.export(function, platforms=PLATFORMS)(*shapes).mlir_module_serialized)


@pytest.mark.parametrize(
    "families", [("similarity",), pytest.param(FAMILIES, marks=pytest.mark.slow)]
)
def test_the_panel_is_lowered_for_accelerators(families):
    measure, *arguments = program("causal", families, NULLS)
    assert lowered(jax.jit(measure), *arguments, PROBE, visible("causal")) > 1000


@pytest.mark.slow
def test_the_training_step_is_lowered_for_accelerators():
    made = training_program.make_program(
        replace(tiny.config(), {"model.dtype": "bfloat16"}), tiny.corpus()
    )
    assert lowered(made.steps, made.create(), made.tokens_N, made.data_R, np.int32(1)) > 1000


# compiled as for users: XLA aborts the process where it cannot, which a quicker test does not see
@pytest.mark.slow
def test_the_program_of_the_demo_compiles(tmp_path):
    code = """
import pathlib
from anisoscope.cli import flags, training_stages
from anisoscope.config import variants
from anisoscope.data import corpus
from anisoscope.sources import run_program
from anisoscope.utils import mesh
experiment = flags.load("quickstart")
mesh.take_cores_for_devices(8)
config = training_stages.resolve_auto_dtype(next(iter(variants.expand(experiment).values())), pathlib.Path())
run_program.compile_program(config, corpus.load(config.data, config.model.context))
"""
    env = environment() | {"HOME": str(tmp_path)}
    env.pop("JAX_DISABLE_MOST_OPTIMIZATIONS", None)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
