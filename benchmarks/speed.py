"""Compare the time of a first and a repeated call with NumPy, PyTorch and scikit-dimension.

    .venv-bench/bin/python -m benchmarks.speed

Each row is a process of its own with an empty home folder, so nothing is compiled. It takes the
shapes in order: the first call of each, then the median of three more. The table has processor
seconds of all threads, which other work on the machine hardly changes. Imports are not counted.
Docs have it in docs/reference/speed.md.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile

from benchmarks.peers.peer import hardware

SHAPES = (1000, 64), (2048, 256), (4096, 768), (3996, 768), (10_000, 768)  # points, width
REPEATS = 3
TIMED = """
import json, sys, time
import numpy as np
{setup}
for shape in json.loads(sys.argv[1]):
    x, taken = np.random.default_rng(0).standard_normal(shape).astype(np.float32), []
    for _ in range(1 + int(sys.argv[2])):
        began = time.process_time()
        {call}
        taken.append(time.process_time() - began)
    print("taken", json.dumps(taken))
"""
NUMPY_TWONN = """
def twonn(x):
    square = (x * x).sum(1)
    distance = square[:, None] + square - 2 * (x @ x.T)
    nearest = np.sort(np.partition(distance, 2, axis=1)[:, 1:3], axis=1)
    ratio = np.sort(np.log(nearest[:, 1] / nearest[:, 0]) / 2)[: int(0.9 * len(x))]
    share = -np.log1p(-np.arange(1, len(ratio) + 1) / len(x))
    return ratio @ share / (ratio @ ratio)
"""
OURS, TORCH = "import anisoscope", "import torch\nfrom benchmarks.peers.libraries import twonn"
ROWS = {  # what, of which library -> imports, call
    ("TwoNN", "`anisoscope.metrics.twonn`"): (OURS, "anisoscope.metrics.twonn(x)"),
    ("", "NumPy"): (NUMPY_TWONN, "twonn(x)"),
    ("", "PyTorch, `cdist` and `topk`"): (TORCH, "twonn(torch.from_numpy(x)).item()"),
    ("", "scikit-dimension"): ("import skdim", "skdim.id.TwoNN(discard_fraction=0.1).fit(x)"),
    ("anisotropy", "`anisoscope.metrics.anisotropy`"): (OURS, "anisoscope.metrics.anisotropy(x)"),
    ("", "NumPy, `eigvalsh`"): ("", "np.linalg.eigvalsh(np.cov(x.T, dtype=x.dtype))"),
    ("", "PyTorch, `eigvalsh`"): (TORCH, "torch.linalg.eigvalsh(torch.from_numpy(x).T.cov())"),
    ("30 quantities, excesses, intervals", "`anisoscope.measure`"): (OURS, "anisoscope.measure(x)"),
}


def time_row(setup: str, call: str) -> list[str]:
    """Time a row in a new process: `first / repeated` for each shape."""
    with tempfile.TemporaryDirectory() as home:
        env = os.environ | {"HOME": home, "XDG_CACHE_HOME": home, "PYTHONPATH": os.getcwd()}
        code = TIMED.format(setup=setup, call=call)
        command = [sys.executable, "-c", code, json.dumps(SHAPES), str(REPEATS)]
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        return ["not installed" if "ModuleNotFound" in done.stderr else done.stderr[-200:]]
    lines = [line for line in done.stdout.splitlines() if line.startswith("taken ")]
    times = [json.loads(line.removeprefix("taken ")) for line in lines]
    return [f"{first:.2f} / {statistics.median(again):.2f}" for first, *again in times]


def main() -> None:
    shapes = [f"{points:,} × {width}" for points, width in SHAPES]
    print(hardware("cpu"))
    print("| | processor seconds, first / repeated |", " | ".join(shapes), "|")
    print("| --- " * (2 + len(SHAPES)) + "|")
    for (what, library), row in ROWS.items():
        print("|", what, "|", library, "|", " | ".join(time_row(*row)), "|", flush=True)


if __name__ == "__main__":
    main()
