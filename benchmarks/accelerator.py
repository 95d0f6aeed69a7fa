"""Measure speed and values on an accelerator, in at most ten minutes, into one JSON file.

    make gpu                                   # .venv-gpu with jax[cuda13]; `make gpu JAX=tpu` on a TPU
    make gpu JAX=cpu SIZE=--small              # tries the script without an accelerator

Each part is a process. runs/accelerator.json is written after every part, so that an end in between
loses one part alone. A part that fails or takes too long is named there with its last lines, and the
others continue. What is left of the time goes to the last part, a real pair: decoder and encoder of
20 million parameters, trained and measured.
"""

import argparse
import functools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import metrics, train_step
from benchmarks.peers import peer
from benchmarks.peers.peer import alternate, hardware

PATH = pathlib.Path("runs/accelerator.json")
LEAST = 20.0  # seconds: a part is not begun with less
PRODUCT, COPIED = 8192, 2**31  # width of the matrices; bytes
CLOUDS = [(4096, 512), (10_000, 768)]
TESTED = ["tests/metrics", "tests/models"]
SMALL_STEP = {"layers": 2, "width": 64, "heads": 2, "context": 64, "batch": 4}
SMALL_PANEL = {"layers": 2, "width": 64, "heads": 2, "context": 64, "batches": 1, "points": 512}


def best(function: Callable[..., Any], *arguments: Any, rounds: int = 10) -> float:
    """Return the fewest seconds of a compiled call, which is what a device can do."""
    jax.block_until_ready(function(*arguments))
    seconds = []
    for _ in range(rounds):
        begin = time.perf_counter()
        jax.block_until_ready(function(*arguments))
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def measure_ceilings(options: argparse.Namespace) -> dict[str, Any]:
    """Rates of a large product in bfloat16 and float32, and of a copy."""
    width, size = (256, 2**20) if options.small else (PRODUCT, COPIED)
    x_DD = jax.random.normal(jax.random.key(0), (width, width))
    operations, copied_N = 2 * width**3, jnp.zeros(size // 4)
    product = jax.jit(lambda a, b: a @ b)
    exact = jax.jit(jax.default_matmul_precision("highest")(lambda a, b: a @ b))
    half_DD = x_DD.astype(jnp.bfloat16)
    return {
        "device": hardware(jax.devices()[0].device_kind),
        "platform": jax.devices()[0].client.platform_version,
        "jax": jax.__version__,
        "bfloat16 TFLOP/s": operations / best(product, half_DD, half_DD) / 1e12,
        "float32 TFLOP/s, highest precision": operations / best(exact, x_DD, x_DD) / 1e12,
        "copy, GB/s read and written": 2 * size / best(jax.jit(lambda x: x + 1), copied_N) / 1e9,
    }


def time_steps(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of a training step of all sides, and the model's share of the peak."""
    shape = SMALL_STEP if options.small else train_step.SHAPES["gpu"]
    rounds, steps = (2, 2) if options.small else (7, 20)
    facts, seconds = train_step.measure(shape, rounds, steps, options.peer, train_step.SIDES)
    eager = statistics.median(seconds["PyTorch"])
    rows, flops = {}, train_step.model_flops(shape)
    for side, times in seconds.items():
        median = statistics.median(times)
        rows[side] = {"ms": 1000 * median, "least": 1000 * min(times), "most": 1000 * max(times)}
        rows[side] |= {"of PyTorch's eager speed": eager / median}
        rows[side] |= {"model TFLOP/s": flops / median / 1e12}
    return {"shape": shape, "facts": facts, "steps": rows}


def time_metrics(options: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of single operations beside PyTorch's, by cloud."""
    tasks = ["TwoNN", "spectrum", "steep", "product", "eigvalsh", "eigvalsh float64", "windows"]
    found = {}
    for points, width in [(512, 64)] if options.small else CLOUDS:
        commands = {"JAX": metrics.jax_command([(points, width)], tasks)}
        task = "tasks", str(points), str(width)
        commands["PyTorch"] = peer.library_command("PyTorch", *task, python=options.peer)
        _, seconds = alternate(commands, 2 if options.small else 11)
        found[f"{points} x {width}"] = {
            side: {task: 1000 * statistics.median(times) for task, times in rows.items()}
            for side, rows in seconds.items()
        }
    return {"milliseconds": found, "eigenvalues, largest relative error": eigenvalue_errors()}


def eigenvalue_errors() -> dict[str, float]:
    """Of a covariance of 768 dimensions with eigenvalues 1/i^2, beside NumPy's in float64.

    In float64 on the device, in float32, and in float32 as one batch of 16.
    """
    rng = np.random.default_rng(0)
    cloud_PD = rng.normal(size=(4096, 768)) / np.arange(1, 769)
    covariance_DD = np.cov(cloud_PD, rowvar=False)
    truth_D = np.linalg.eigvalsh(covariance_DD)
    single_DD = jnp.asarray(covariance_DD, jnp.float32)
    with jax.enable_x64(True):
        double_D = np.asarray(jnp.linalg.eigvalsh(jnp.asarray(covariance_DD, jnp.float64)))
    batch = jax.jit(jnp.linalg.eigvalsh)(jnp.broadcast_to(single_DD, (16, 768, 768)))
    found = {"float64": double_D, "float32": np.asarray(jnp.linalg.eigvalsh(single_DD))}
    found["float32, batch of 16"] = np.asarray(batch)[7]
    scales = {"beside the largest": truth_D[-1], "each beside itself": truth_D}
    return {
        f"{name}, {what}": float(np.max(np.abs(values_D - truth_D) / scale))
        for name, values_D in found.items()
        for what, scale in scales.items()
    }


def time_panel(options: argparse.Namespace, row: str) -> dict[str, Any]:
    """Seconds of compiling a panel of 12 layers of width 768, and of a checkpoint of one batch."""
    shape = SMALL_PANEL if options.small else metrics.SHAPES["gpu"] | {"batches": 1}
    compilation, seconds = metrics.time_row(row, shape, rounds=2)
    return {
        **{"seconds of compiling": compilation, "seconds of a checkpoint": seconds},
        "peak memory": metrics.peak_memory(),
    }


def test_values(options: argparse.Namespace) -> dict[str, Any]:
    """The tests of metrics and models, which compare with float64, on the device."""
    chosen = ["tests/metrics", "-k", "spectrum"] if options.small else TESTED
    flags = ["--numprocesses=4", "-q", "--tb=short", "--durations=0", "-m", "not slow"]
    platform = "cpu" if jax.default_backend() == "cpu" else "cuda,cpu"
    env = os.environ | {"ANISOSCOPE_PLATFORM": platform}
    env["JAX_DEFAULT_MATMUL_PRECISION"] = "highest"  # of the tests' own products
    command = [sys.executable, "-m", "pytest", *flags, *chosen]
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, text=True, check=False)
    lines = done.stdout.splitlines()
    broken = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return {"summary": lines[-1:], "tests that failed": broken}


def train_pair(options: argparse.Namespace) -> dict[str, Any]:
    """Train and measure decoder and encoder of experiments/scale_ladder.py; give its tables' folder."""
    size = "50k" if options.small else "20m"
    folder = options.output.parent / f"accelerator_{size}"
    command = [sys.executable, "main.py", f"--config=experiments/scale_ladder.py:{size}"]
    command += [f"--workdir={folder}", "--stages=train,measure"]
    if options.text:
        command.append(f"--config.data.path={options.text}")
    if options.small:
        command += ["--config.train.steps=4", "--config.train.num_seeds=1"]
        command += ["--config.checkpoint.every=4", "--config.evaluate.every=4"]
    begin = time.perf_counter()
    subprocess.run(command, check=True, stdout=sys.stderr)
    rows = (folder / "runs.csv").read_text().splitlines()
    return {"seconds": time.perf_counter() - begin, "folder": str(folder), "runs": len(rows) - 1}


PARTS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "ceilings": measure_ceilings,
    "training step": time_steps,
    "metrics": time_metrics,
    **{
        f"panel: {row}": functools.partial(time_panel, row=row)
        for row in ("spectrum alone", "whole panel, without null models", "whole panel")
    },
    "tests": test_values,
    "pair": train_pair,
}
LIMITS = {"training step": 200.0, "tests": 240.0, "pair": 600.0}  # seconds; of the others 120


def run_part(name: str, limit: float) -> dict[str, Any]:
    """Run a part as a process; give its result and seconds, or its last lines."""
    begin = time.perf_counter()
    command = [sys.executable, "-m", "benchmarks.accelerator", *sys.argv[1:], f"--part={name}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, start_new_session=True, **pipes) as process:
        try:
            output, errors = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)  # its own processes too
            return {"failed": f"not done within {limit:.0f} s"}
    seconds = time.perf_counter() - begin
    if process.returncode:
        return {"failed": errors.splitlines()[-15:], "part took, s": seconds}
    return json.loads(output.splitlines()[-1]) | {"part took, s": seconds}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peer", default=sys.executable, help="a Python that has PyTorch")
    parser.add_argument("--small", action="store_true", help="small sizes, to try the script")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--text", help="enwik8 or its beginning, in place of a download")
    parser.add_argument("--output", type=pathlib.Path, default=PATH, help="the JSON file")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--part", choices=PARTS, help="run this part in this process")
    options = parser.parse_args()
    if options.part:
        print(json.dumps(PARTS[options.part](options)))
        return 0
    end = time.monotonic() + 60 * options.minutes
    results: dict[str, Any] = {}
    options.output.parent.mkdir(exist_ok=True)
    for name in options.parts:
        left = end - time.monotonic()
        limit = min(left, LIMITS.get(name, 120.0))
        results[name] = {"failed": "no time left"} if left < LEAST else run_part(name, limit)
        options.output.write_text(json.dumps(results, indent=1) + "\n")
        print(name, json.dumps(results[name], indent=1), flush=True)
    failed = [name for name, result in results.items() if "failed" in result]
    print(f"written: {options.output}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return bool(failed)


if __name__ == "__main__":
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # processes share the device's memory
    sys.exit(main())
