"""What a GPU or a TPU lacks is seen here, without one: programs are lowered for both."""

import jax
import jax.export
import numpy as np
import pytest

from anisoscope.config.measure_config import NULLS
from anisoscope.training import train_program as training_program
from anisoscope.utils.settings import replace
from tests import tiny
from tests.sources.activated import FAMILIES, PROBE, program, visible

PLATFORMS = ("cuda", "tpu")


def lowered(function, *arguments):
    """For accelerators: the bytes of the module."""
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(np.shape(x), x.dtype), arguments)
    return len(jax.export.export(function, platforms=PLATFORMS)(*shapes).mlir_module_serialized)


@pytest.mark.slow
def test_the_panel_is_lowered_for_accelerators():
    measure, *arguments = program("causal", FAMILIES, NULLS)
    assert lowered(jax.jit(measure), *arguments, PROBE, visible("causal")) > 1000


@pytest.mark.slow
def test_the_training_step_is_lowered_for_accelerators():
    made = training_program.make_program(
        replace(tiny.config(), {"model.dtype": "bfloat16"}), tiny.corpus()
    )
    assert lowered(made.steps, made.create(), made.tokens_N, made.data_R, np.int32(1)) > 1000
