"""How processes share a sweep: each takes checkpoints of its own, or all work on every one."""

import functools
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import jax
import numpy as np

from anisoscope.utils import processes
from anisoscope.utils.errors import UserError
from anisoscope.utils.progress import bar
from anisoscope.utils.stop import Stop

T = TypeVar("T")
# seconds until a file must be seen elsewhere: network file systems remember that it was missing
PATIENCE = 60.0


def parts(steps: Sequence[int], count: int) -> list[list[int]]:
    """Split steps into contiguous parts, as a checkpoint is compared with the one before it."""
    return [part.tolist() for part in np.array_split(np.asarray(steps, int), count)]


def each(
    written: dict[int, list[pathlib.Path]],
    begin: Callable[[], Callable[[int], T]],
    keep: Callable[[int, T], None],
    name: str,
    what: tuple[str, str],
    stop: Stop,
    apart: bool,
) -> None:
    """Do keep(step, begin()(step)) for every step; processes meet between any two.

    There all stop if one is asked to, and all fail if one has failed.

    Args:
        written: The files that each step writes.
        begin: Makes the function of a step, once, where there is something to do.
        keep: Writes the result of a step.
        name: The run.
        what: The work, in a bar and at a stop.
        stop: Asked between two steps.
        apart: Whether each process does and writes its own part; else the first writes.
    """
    listing = [(step, [path.name for path in paths]) for step, paths in written.items()]
    processes.agree(listing, f"checkpoints or tables of {name}")
    if not written:
        return
    share = parts(list(written), jax.process_count() if apart else 1)
    mine = share[jax.process_index() if apart else 0]
    writes, work = apart or processes.is_first(), functools.cache(begin)
    if len(share) > 1:
        counts = ", ".join(str(len(part)) for part in share)
        print(f"{name}: {what[0]}: checkpoints of each process: {counts}")

    def turn(number: int) -> None:
        if number < len(mine):
            result = work()(mine[number])
            if writes:
                keep(mine[number], result)

    for number in bar(range(len(share[0])), f"{name}: {what[0]}", "checkpoint"):
        steps = [str(part[number]) for part in share if number < len(part)]
        plural = "s" * (len(steps) > 1)
        stop.check(f"{name}: stopped before {what[1]} step{plural} {', '.join(steps)}")
        processes.on_each(functools.partial(turn, number))
    if jax.process_count() > 1:
        _meet(written, mine if writes else [])


def _meet(written: dict[int, list[pathlib.Path]], mine: list[int]) -> None:
    """Wait until every process sees the files as they were written, or raise UserError."""
    files = [(path, step in mine) for step, paths in written.items() for path in paths]
    contents = processes.largest(*[_fingerprint(path) if own else -1 for path, own in files])

    def look() -> None:
        until = time.monotonic() + PATIENCE
        for (path, _), content in zip(files, contents, strict=True):
            while _fingerprint(path) != content:
                if time.monotonic() > until:
                    why = "was written by another process and is not seen here"
                    raise UserError(f"{path} {why}; {processes.SHARED}")
                time.sleep(0.1)

    processes.on_each(look)


def _fingerprint(path: pathlib.Path) -> int:
    return processes.fingerprint(path.read_bytes()) if path.exists() else -1
