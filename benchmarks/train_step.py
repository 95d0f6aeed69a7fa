"""Seconds per training step, JAX against PyTorch, in rounds that alternate between them.

    python -m benchmarks.train_step [--layers 6 --width 256 --heads 8 --context 256 --batch 8]
    [--rounds 7 --steps 6 --others "PyTorch, compiled"]

Every side has a process of its own. JAX's sides are the product's own training program: with AdamW
and learned positions, with Muon and rotary positions (the recipe of experiments/decoder_small.py),
and with AdamW as the program is written for a CPU. PyTorch's are a twin of the first, eager and by
torch.compile.
"""

import argparse
import functools
import os
import statistics
import sys
from collections.abc import Iterable

import numpy as np

from anisoscope.config.experiment_config import Config
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import TrainConfig
from anisoscope.utils.compiled import CACHE, keep
from benchmarks.peers.peer import alternate, hardware, ratio, serve

SHAPES = {  # by kind of device
    "cpu": {"layers": 6, "width": 256, "heads": 8, "context": 256, "batch": 8},
    "gpu": {"layers": 6, "width": 512, "heads": 8, "context": 512, "batch": 64},
}
VOCAB = 206  # the bytes of enwik8 and [MASK]


def random_tokens() -> np.ndarray:
    return np.random.default_rng(0).integers(0, VOCAB - 1, 2_000_000, np.uint8)


def random_corpus():
    from anisoscope.data.corpus import Corpus

    return Corpus("random", bytes(range(VOCAB - 1)), *[random_tokens()] * 3, sha256="", origin="")


def jax_side(
    shape: dict[str, int],
    steps: int,
    optimizer: str = "adamw",
    position_encoding: str = "learned",
    backend: str | None = None,
):
    """Return a function that runs `steps` training steps, and facts about JAX.

    `backend` is what the program is written for.
    """
    import jax

    from anisoscope.models import transformer
    from anisoscope.training.train_program import make_train_program

    sizes = {name: shape[name] for name in ("layers", "width", "heads", "context")}
    model = ModelConfig(**sizes, position_encoding=position_encoding)
    train = TrainConfig(batch_size=shape["batch"], steps_per_call=steps, optimizer=optimizer)
    if backend:
        transformer.build = functools.partial(transformer.build, backend=backend)
    program = make_train_program(Config(model=model, train=train), random_corpus())
    state = program.create()
    parameters = transformer.count_parameters(state.params)

    def run():
        nonlocal state
        state, metrics = program.steps(state, program.tokens_N, program.data_R, steps)
        jax.block_until_ready((state, metrics))

    facts = {"version": f"jax {jax.__version__}", "kind": jax.default_backend()}
    facts |= {"device": jax.devices()[0].device_kind, "parameters": parameters}
    return run, facts


def torch_side(shape: dict[str, int], steps: int, compiled: bool = False):
    import torch

    from benchmarks.peers import torch_twin

    kind = "gpu" if torch.cuda.is_available() else "cpu"
    device = torch.device("cuda" if kind == "gpu" else "cpu")
    sizes = [shape[name] for name in ("layers", "width", "heads", "context")]
    model = torch_twin.Transformer(*sizes, VOCAB).to(device)
    if compiled:
        model = torch.compile(model)
    corpus_N = torch.from_numpy(random_tokens()).to(device)
    step = torch_twin.make_step(
        model, corpus_N, shape["batch"], shape["context"], bfloat16=kind == "gpu"
    )

    def run():
        for _ in range(steps):
            loss = step()
        loss.item()  # waits for the device

    parameters = sum(parameter.numel() for parameter in model.parameters())
    version = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
    return run, {"version": version, "kind": kind, "parameters": parameters}


SIDES = {
    "JAX": jax_side,
    "PyTorch": torch_side,
    "JAX, Muon and rotary": functools.partial(
        jax_side, optimizer="muon", position_encoding="rotary"
    ),
    "PyTorch, compiled": functools.partial(torch_side, compiled=True),
    "JAX, written for a CPU": functools.partial(jax_side, backend="cpu"),
}


def measure(
    shape: dict[str, int],
    rounds: int,
    steps: int,
    peer: str = sys.executable,
    sides: Iterable[str] = ("JAX", "PyTorch"),
):
    """Return facts, and seconds per step of every round, for each side.

    `peer` is the Python interpreter with PyTorch.
    """
    numbers = [f"--{name}={value}" for name, value in shape.items()]
    command = ["-m", "benchmarks.train_step", *numbers, f"--steps={steps}"]
    pythons = {side: sys.executable if side.startswith("JAX") else peer for side in sides}
    facts, seconds = alternate(
        {side: [python, *command, f"--side={side}"] for side, python in pythons.items()},
        rounds,
        at_once=os.cpu_count() >= 8,
    )
    return facts, {
        side: [time / steps for time in tasks["steps"]] for side, tasks in seconds.items()
    }


def model_flops(shape: dict[str, int]) -> int:
    """Count floating-point operations per step.

    They are 6 per token and weight of a matrix product, and 12 N T D per token for attention.
    """
    layers, width, time_ = shape["layers"], shape["width"], shape["context"]
    weights = layers * 12 * width**2 + VOCAB * width
    return shape["batch"] * time_ * (6 * weights + 12 * layers * time_ * width)


def report(shape: dict[str, int], facts: dict[str, dict], seconds: dict[str, list[float]]) -> None:
    kind, parameters = facts["JAX"]["kind"], facts["JAX"]["parameters"]
    assert parameters == facts["PyTorch"]["parameters"], "the twins differ"
    dtype = "float32" if kind == "cpu" else "bfloat16"
    print(*(f"{name} {value}" for name, value in shape.items()), f"vocabulary {VOCAB}", sep=", ")
    print(f"{parameters:,} parameters, {dtype}, random corpus, next character")
    print(hardware(facts["JAX"]["device"]))
    print("; ".join(fact["version"] for fact in facts.values()))
    characters = shape["batch"] * shape["context"]
    for name, times in seconds.items():
        median, spread = statistics.median(times), f"{min(times):.4f}-{max(times):.4f}"
        rate = model_flops(shape) / median / 1e12
        speed = f"{characters / median:,.0f} characters/s, {rate:.2f} model TFLOP/s"
        print(f"{name:8} {median:.4f} s a step ({spread}), {speed}")
    if kind != facts["PyTorch"]["kind"]:
        print(f"No ratio: JAX ran on {kind}, PyTorch on {facts['PyTorch']['kind']}")
        return
    for name, times in seconds.items():
        speed = ratio(seconds["PyTorch"], times)
        print(f"{name}: {speed} of the speed of PyTorch, eager (least-most by round)")


def main() -> None:
    import jax

    kind = "cpu" if jax.default_backend() == "cpu" else "gpu"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in SHAPES[kind].items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=6, help="steps per round")
    parser.add_argument("--peer", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--others", nargs="+", choices=SIDES, default=[], help="further sides")
    parser.add_argument("--side", choices=SIDES, help="be the worker of this side")
    options = vars(parser.parse_args())
    shape = {name: options[name] for name in SHAPES[kind]}
    if options["side"]:
        run, facts = SIDES[options["side"]](shape, options["steps"])
        serve(facts, {"steps": run})
        return
    sides = ["JAX", "PyTorch", *options["others"]]
    report(shape, *measure(shape, options["rounds"], options["steps"], options["peer"], sides))


if __name__ == "__main__":
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # two processes share the device's memory
    keep(CACHE)
    main()
