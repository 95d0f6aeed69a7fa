"""The benchmark's JAX side is the product's training program, and its count of operations is right."""

import jax
import jax.extend
import jax.numpy as jnp
import pytest

from anisoscope.config.model import ModelConfig
from anisoscope.models import transformer
from benchmarks import train_step

SHAPE = {"layers": 2, "width": 32, "heads": 4, "context": 16, "batch": 8}


@pytest.mark.slow
def test_the_jax_side_trains():
    run, facts = train_step.jax_side(SHAPE, steps=2)
    run()
    assert facts["parameters"] == 2 * (12 * 32**2 + 13 * 32) + (train_step.VOCAB + 16 + 2) * 32


def test_model_flops_are_three_times_those_of_a_forward_pass():
    """Forward: twice the multiplications of every product in the program of one layer."""
    sizes = {name: size for name, size in SHAPE.items() if name != "batch"} | {"layers": 1}
    model = transformer.build(ModelConfig(**sizes), train_step.VOCAB, "float32")
    params = jax.eval_shape(model.init, jax.random.key(0))
    tokens_BT = jax.ShapeDtypeStruct((SHAPE["batch"], SHAPE["context"]), jnp.int32)
    forward = products(jax.make_jaxpr(lambda *inputs: model.apply(*inputs)[0])(params, tokens_BT).jaxpr)
    assert train_step.model_flops(SHAPE | {"layers": 1}) == 3 * forward


def products(jaxpr) -> int:
    total = 0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            (contracted, _), _ = equation.params["dimension_numbers"]
            depth = [equation.invars[0].aval.shape[axis] for axis in contracted]
            total += 2 * equation.outvars[0].aval.size * depth[0]
        inner = jax.extend.core.jaxprs_in_params(equation.params)
        total += sum(products(getattr(closed, "jaxpr", closed)) for closed in inner)
    return total
