"""The benchmarks' workers take turns, and what they time is the product's."""

import json
import subprocess
import sys

import jax
import jax.extend
import jax.numpy as jnp
import pytest

from anisoscope.config.model_config import ModelConfig
from anisoscope.models import transformer
from benchmarks import train_step
from benchmarks.peers import peer

WORKER = """
import time
from benchmarks.peers.peer import serve
def slow():
    print("a library's noise")
    time.sleep(0.02)
serve({"version": "1"}, {"slow": slow, "quick": lambda: None})
"""
SHAPE = {"layers": 2, "width": 32, "heads": 4, "context": 16, "batch": 8}


def test_seconds_come_by_worker_and_task():
    commands = {name: [sys.executable, "-c", WORKER] for name in ("one", "two")}
    facts, seconds = peer.alternate(commands, 3)
    assert facts == {"one": {"version": "1"}, "two": {"version": "1"}}
    for tasks in seconds.values():
        assert [len(times) for times in tasks.values()] == [3, 3]
        assert min(tasks["slow"]) >= 0.02  # what a sleep takes at least, on a busy machine too


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
    forward = products(
        jax.make_jaxpr(lambda *inputs: model.apply(*inputs)[0])(params, tokens_BT).jaxpr
    )
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


@pytest.mark.slow
def test_an_accelerators_parts_end_in_one_file_and_failures_are_named(tmp_path):
    path = tmp_path / "accelerator.json"
    command = [sys.executable, "-m", "benchmarks.accelerator", "--small", f"--output={path}"]
    command += ["--parts", "ceilings", "panel: spectrum alone", "pair", "--text=missing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    found = json.loads(path.read_text())
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].endswith("failed: pair")
    assert found["ceilings"]["float32 TFLOP/s, highest precision"] > 0
    assert found["panel: spectrum alone"]["seconds of compiling"] > 0
    assert any("missing" in line for line in found["pair"]["failed"])
