"""Share a sweep among processes: each takes some checkpoints, or all work on every one."""

import functools
import pathlib
import time
from collections.abc import Callable, Sequence

import jax
import numpy as np

from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar
from anisoscope.utils.stop import Stop

# seconds until a new file must be visible elsewhere: network file systems cache its absence
PATIENCE = 60.0


def parts(steps: Sequence[int], count: int) -> list[list[int]]:
    """Split steps into contiguous parts, since a checkpoint is compared with its predecessor."""
    return [part.tolist() for part in np.array_split(np.asarray(steps, int), count)]


def map_steps(
    written: dict[int, list[pathlib.Path]],
    work: Callable[[int, bool], None],
    name: str,
    what: tuple[str, str],
    stop: Stop,
    independent: bool,
) -> None:
    """Call work(step, writes) for every step; processes synchronize after each step.

    If a stop is requested in any process, or an error occurs there, all processes stop.

    Args:
        written: The files that each step writes.
        work: Does a step, and writes its files if its second argument is True.
        name: Name of the run.
        what: Names of the work, for the progress bar and for a stop.
        stop: Checked before each step.
        independent: Whether each process writes its own steps; else the first writes all.
    """
    listing = [(step, [path.name for path in paths]) for step, paths in written.items()]
    processes.agree(listing, f"checkpoints or tables of {name}")
    if not written:
        return
    share = parts(list(written), jax.process_count() if independent else 1)
    mine = share[jax.process_index() if independent else 0]
    writes = independent or processes.is_first()
    if len(share) > 1:
        counts = ", ".join(str(len(part)) for part in share)
        print(f"{name}: {what[0]}: checkpoints per process: {counts}")

    def run_step(number: int) -> None:
        if number < len(mine):
            work(mine[number], writes)

    for number in bar(range(len(share[0])), f"{name}: {what[0]}", "checkpoint"):
        steps = [str(part[number]) for part in share if number < len(part)]
        plural = "s" * (len(steps) > 1)
        stop.check(f"{name}: stopped before {what[1]} step{plural} {', '.join(steps)}")
        processes.on_each(functools.partial(run_step, number))
    if jax.process_count() > 1:
        _meet(written, mine if writes else [])


def _meet(written: dict[int, list[pathlib.Path]], mine: list[int]) -> None:
    """Wait until every process sees the files that were written, or raise UserError."""
    files = [(path, step in mine) for step, paths in written.items() for path in paths]
    contents = processes.largest(*[_fingerprint(path) if own else -1 for path, own in files])

    def look() -> None:
        until = time.monotonic() + PATIENCE
        for (path, _), content in zip(files, contents, strict=True):
            while _fingerprint(path) != content:
                if time.monotonic() > until:
                    why = "was written by another process and is not visible here"
                    raise UserError(f"{path} {why}; {processes.SHARED}")
                time.sleep(0.1)

    processes.on_each(look)


def _fingerprint(path: pathlib.Path) -> int:
    return processes.fingerprint(path.read_bytes()) if path.exists() else -1
