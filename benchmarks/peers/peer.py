"""What the workers of benchmarks share: turns, and clouds.

Each process sleeps while another works, so that their thread pools never compete. It runs in
environments that have no JAX, or another.
"""

import contextlib
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

PEERS = {  # name of a library -> the Python of its environment
    "scikit-dimension": sys.executable,
    "DADApy": ".venv-dadapy/bin/python",
    "PyTorch": sys.executable,
}
SCALES = (1, 2, 4, 8, 16, 32, 64)  # the ranks of the nearer neighbor of GRIDE


def ranks(points: int) -> list[int]:
    """Those ranks whose double exists in a cloud of so many points."""
    return [first for first in SCALES if 2 * first < points]


def normal(points: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(points, width)).astype(np.float32)


def serve(facts: dict[str, Any], tasks: dict[str, Callable[[], Any]]) -> None:
    """Run in a worker: warm up every task, print facts, then time a task for every line read."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # what a library prints must not be read as an answer
    for run in tasks.values():
        run()
        run()
    print(json.dumps({"facts": facts, "tasks": list(tasks)}), file=answers)
    for line in sys.stdin:
        begin = time.perf_counter()
        tasks[line.rstrip("\n")]()
        print(time.perf_counter() - begin, file=answers)


def alternate(
    commands: dict[str, list[str]], rounds: int, at_once: bool = False
) -> tuple[dict[str, dict[str, Any]], dict[str, dict[str, list[float]]]]:
    """Return facts of each worker, and seconds of each round by worker and task.

    The commands start programs that call `serve`. They warm up one after another, since that takes
    all cores, or `at_once` where there are many.
    """
    workers, ready, facts, seconds = {}, {}, {}, {}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
    with contextlib.ExitStack() as stack:  # at its end the workers' input closes, which ends them
        for name, command in commands.items():
            workers[name] = stack.enter_context(subprocess.Popen(command, **pipes))
            if not at_once:
                ready[name] = _answer(workers[name], name)
        for name in commands:
            answer = json.loads(ready.get(name) or _answer(workers[name], name))
            facts[name], seconds[name] = answer["facts"], {task: [] for task in answer["tasks"]}
        for _ in range(rounds):
            for name, worker in workers.items():
                for task, times in seconds[name].items():
                    print(task, file=worker.stdin)
                    times.append(float(_answer(worker, name)))
    return facts, seconds


def _answer(worker: subprocess.Popen, name: str) -> str:
    line = worker.stdout.readline()
    if not line:
        sys.exit(f"the worker {name} ended without an answer (exit code {worker.wait()})")
    return line


def ratio(numerators: list[float], denominators: list[float], digits: int = 2) -> str:
    """Format numerators / denominators as median (least-most) of the rounds."""
    ratios = [this / that for this, that in zip(numerators, denominators, strict=True)]
    middle, low, high = (
        f"{value:.{digits}f}" for value in (statistics.median(ratios), min(ratios), max(ratios))
    )
    return f"{middle} ({low}-{high})"


def spread(times: list[float]) -> str:
    """Format milliseconds as median (least-most) of the rounds."""
    low, middle, high = (
        1000 * time_ for time_ in (min(times), statistics.median(times), max(times))
    )
    return f"{middle:.3g} ({low:.3g}-{high:.3g})"


def processor() -> str:
    """Return the name of the CPU, from Linux or else from Python."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next(
        (line.split(": ")[1] for line in lines if line.startswith("model name")),
        platform.processor(),
    )


def hardware(device: str) -> str:
    return f"{device} ({processor()}, {os.cpu_count()} cores), Python {platform.python_version()}"


def library_command(name: str, *arguments: str, python: str | None = None) -> list[str]:
    """Return the command of a library's worker: `values FOLDER`, or `tasks POINTS WIDTH`."""
    return [python or PEERS[name], "-m", "benchmarks.peers.libraries", name, *arguments]
