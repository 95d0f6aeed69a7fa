"""Measure the seconds until a user's first result, in fresh processes without a compilation cache.

    .venv-bench/bin/python -m benchmarks.first_answer [--rounds 3]

Each row is a separate process with an empty home folder, for 4,096 vectors of width 768. The import
is timed separately. "again" is the second call with the same array, "other shape" a call with 3,000
vectors of width 512, and "new process" the first call of a second process, which reuses the
compiled programs. scikit-dimension (.venv-bench) and DADApy (.venv-dadapy) take TwoNN alone, if
they are installed. Medians over rounds, which take turns.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

POINTS, WIDTH = 4096, 768
OTHER = 3000, 512
TIMED = """
import json, sys, time
import numpy as np
seconds, began = [], time.perf_counter()
{setup}
seconds.append(time.perf_counter() - began)
shapes = json.loads(sys.argv[1])
for shape in shapes:
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    began = time.perf_counter()
    {call}
    seconds.append(time.perf_counter() - began)
print(json.dumps(seconds))
"""
COLUMNS = ("import", "first", "again", "other shape", "new process")
DADAPY = ".venv-dadapy/bin/python"


OURS = sys.executable, "import anisoscope"
SKDIM = "skdim.id.TwoNN(discard_fraction=0.1).fit(x)"
DADAPY_2NN = 'Data(coordinates=x, verbose=False, maxk=2).compute_id_2NN(algorithm="base")'
ROWS = {  # interpreter, import, call
    "metrics.anisotropy(x)": (*OURS, "float(anisoscope.metrics.anisotropy(x))"),
    "metrics.twonn(x)": (*OURS, "float(anisoscope.metrics.twonn(x))"),
    "measure(x)": (*OURS, "anisoscope.measure(x)"),
    'measure(x, families="all")': (*OURS, 'anisoscope.measure(x, families="all")'),
    "scikit-dimension TwoNN": (sys.executable, "import skdim", SKDIM),
    "DADApy 2NN": (DADAPY, "from dadapy.data import Data", DADAPY_2NN),
}


def time_row(python: str, setup: str, call: str) -> list[float] | None:
    """Time the columns of a row; None where the library is not installed."""
    shapes = json.dumps([(POINTS, WIDTH), (POINTS, WIDTH), OTHER])
    code = TIMED.format(setup=setup, call=call)
    if not pathlib.Path(python).exists():
        return None
    with tempfile.TemporaryDirectory() as home:
        env = os.environ | {"HOME": home, "PYTHONPATH": os.getcwd()}
        command, times = [python, "-c", code, shapes], []
        for _ in range(2):  # the second process finds what the first compiled
            done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
            if "ModuleNotFoundError" in done.stderr:
                return None
            if done.returncode:
                raise SystemExit(done.stderr)
            times.append(json.loads(done.stdout.splitlines()[-1]))
    return [*times[0], times[1][1]]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    found: dict[str, list[list[float]]] = {name: [] for name in ROWS}
    for _ in range(rounds):
        for name, row in ROWS.items():
            if (taken := time_row(*row)) is not None:
                found[name].append(taken)
    print(f"{POINTS:,} x {WIDTH}, medians of {rounds} rounds, in seconds")
    print(f"{'':28}" + "".join(f"{name:>13}" for name in COLUMNS))
    for name, taken in found.items():
        medians = [statistics.median(column) for column in zip(*taken, strict=True)]
        print(f"{name:28}" + ("".join(f"{value:13.2f}" for value in medians) or "not installed"))


if __name__ == "__main__":
    main()
