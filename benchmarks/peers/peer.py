"""What the scripts of the peers share: a command line, and clouds that travel as files.

    python -m benchmarks.peers.of_NAME values FOLDER         for every cloud of the folder its values, as JSON
    python -m benchmarks.peers.of_NAME tasks POINTS WIDTH    a worker that times on a normal cloud

It runs in environments that have no JAX, or another.
"""

import json
import pathlib
import sys
from collections.abc import Callable

import numpy as np

from benchmarks import rounds

PEERS = {  # name -> the Python of its environment, and its script
    "scikit-dimension": (sys.executable, "benchmarks.peers.of_skdim"),
    "DADApy": (".venv-dadapy/bin/python", "benchmarks.peers.of_dadapy"),
    "PyTorch": (sys.executable, "benchmarks.peers.of_torch"),
}
SCALES = (1, 2, 4, 8, 16, 32, 64)  # the ranks of the nearer neighbor of GRIDE


def ranks(points: int) -> list[int]:
    """Those ranks whose double exists in a cloud of so many points."""
    return [first for first in SCALES if 2 * first < points]


def normal(points: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(points, width)).astype(np.float32)


def main(version: str, values: Callable, tasks: Callable, kind: str = "cpu") -> None:
    """`kind` of device the tasks run on: cpu or gpu."""
    match sys.argv[1:]:
        case "values", folder:
            found = {}
            for path in sorted(pathlib.Path(folder).glob("*.npy")):
                found[path.stem] = {
                    name: float(value) for name, value in values(np.load(path)).items()
                }
            print(json.dumps({"version": version, "values": found}))
        case "tasks", points, width:
            rounds.serve({"version": version, "kind": kind}, tasks(normal(int(points), int(width))))
        case arguments:
            sys.exit(f"{arguments}: use `values FOLDER` or `tasks POINTS WIDTH`")
