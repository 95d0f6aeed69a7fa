"""Seconds of `--stages=measure` by one process, and by several that share the checkpoints out, each on its own core.

python -m dev.hosts [--processes 2 --rounds 3]

Nothing compiled is kept, so every process compiles. Of a busy machine, processor time tells what an idle one takes.
"""

import argparse
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

from benchmarks.rounds import hardware
from tests.cluster import cluster

ROOT = pathlib.Path(__file__).parent.parent
RUN = [
    "--config=experiments/decoder_small.py:tiny",
    "--config.data.source=pydoc",
    "--config.model.layers=4",
    "--config.train.steps=64",
    "--config.train.batch_size=8",
    "--config.measure.points=2048",
    "--config.measure.batches=2",
    "--config.measure.folds=4",
    "--config.measure.families=spectrum,dimension,similarity,comparison",
]


class Took(NamedTuple):
    wall: float
    processor: float  # of the process that took most


def measure(workdir: pathlib.Path, count: int) -> Took:
    """With so many processes, the first on core 0, the next on core 1 …"""
    flags = [*RUN, "--stages=measure", f"--workdir={workdir}", *["--distributed"] * (count > 1)]
    begin, processes, seconds = time.perf_counter(), [], []
    with tempfile.TemporaryFile() as said:
        for core, env in enumerate(cluster(count) if count > 1 else [{}]):
            command = ["taskset", "-c", str(core), sys.executable, "main.py", *flags]
            env = os.environ | env | {"JAX_COMPILATION_CACHE_DIR": "", "XLA_FLAGS": ""}
            processes.append(subprocess.Popen(command, cwd=ROOT, env=env, stdout=said, stderr=said))
        for process in processes:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            seconds.append(usage.ru_utime + usage.ru_stime)
        if any(process.returncode for process in processes):
            said.seek(0)
            sys.exit(said.read().decode()[-2000:])
    return Took(time.perf_counter() - begin, max(seconds))


def told(took: dict[int, list[Took]], checkpoints: int) -> list[str]:
    """A row for each number of processes, as medians; and what of it every checkpoint costs."""
    lines = ["| processes | wall, s | processor time of the busiest, s |", "| --- | --- | --- |"]
    for count, rounds in took.items():
        cells = (_spread([getattr(one, name) for one in rounds]) for name in Took._fields)
        lines.append(f"| {count} | {' | '.join(cells)} |")
    (one, alone), (several, shared) = (
        (count, statistics.median(r.processor for r in rounds)) for count, rounds in took.items()
    )
    of_each = (alone - shared) / (checkpoints - -(-checkpoints // several))
    ratios = [b.processor / a.processor for a, b in zip(took[one], took[several], strict=True)]
    lines.append(
        f"\n{several} processes take {_spread(ratios, 2)} of the processor time of one (the busiest, by round)."
    )
    rest = alone - checkpoints * of_each
    lines.append(
        f"A checkpoint takes {of_each:.1f} s; to start, compile and join tables, every process takes {rest:.0f} s."
    )
    return lines


def _spread(values: list[float], digits: int = 0) -> str:
    middle, low, high = (f"{one:.{digits}f}" for one in (statistics.median(values), min(values), max(values)))
    return f"{middle} ({low}–{high})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trained = pathlib.Path(folder) / "trained"
        subprocess.run(
            [sys.executable, "main.py", *RUN, "--stages=train", f"--workdir={trained}"], cwd=ROOT, check=True
        )
        checkpoints = sum(path.name.isdecimal() for path in (trained / "checkpoints").iterdir())
        took: dict[int, list[Took]] = {1: [], given.processes: []}
        for number in range(given.rounds):
            for count, rounds in took.items():
                workdir = shutil.copytree(trained, pathlib.Path(folder) / f"{number}_{count}")
                rounds.append(measure(workdir, count))
    print(
        f"{checkpoints} checkpoints on {hardware('cpu')}; median (least–most) of {given.rounds} rounds that alternate\n"
    )
    print("\n".join(told(took, checkpoints)))


if __name__ == "__main__":
    main()
