"""How processes share a sweep out: each takes checkpoints of its own, or all of them work on every
one.
"""

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
# seconds until a file must be seen elsewhere: network file systems remember that it was not there
PATIENCE = 60.0


def parts(steps: Sequence[int], count: int) -> list[list[int]]:
    """Of contiguous steps, since a checkpoint is compared with the one before it; the first parts
    are the longest.
    """
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
    """keep(step, begin()(step)) for every step, which writes the files named; `what` is it in a
    bar, and at a stop.

    Where processes go `apart`, each of them does and writes its own part; else all do every step,
    and the first writes. They meet between any two steps: there all stop if one is asked to, and
    all fail if one has failed.
    """
    listing = [(step, [path.name for path in paths]) for step, paths in written.items()]
    processes.agree(listing, f"checkpoints or tables of {name}")
    if not written:
        return
    share = parts(list(written), jax.process_count() if apart else 1)
    mine = share[jax.process_index() if apart else 0]
    writes, of_step = apart or processes.is_first(), functools.cache(begin)
    if len(share) > 1:
        print(
            f"{name}: {what[0]}: checkpoints of each process: {', '.join(str(len(part)) for part in share)}"
        )

    def turn(number: int) -> None:
        if number < len(mine):
            result = of_step()(mine[number])
            if writes:
                keep(mine[number], result)

    for number in bar(range(len(share[0])), f"{name}: {what[0]}", "checkpoint"):
        now = [part[number] for part in share if number < len(part)]
        stop.check(
            f"{name}: stopped before {what[1]} step{'s' * (len(now) > 1)} {', '.join(map(str, now))}"
        )
        processes.on_each(functools.partial(turn, number))
    if jax.process_count() > 1:
        _meet(written, mine if writes else [])


def _meet(written: dict[int, list[pathlib.Path]], mine: list[int]) -> None:
    """Wait until every process sees the files as they were written; UserError where one never
    does.
    """
    files = [(path, step in mine) for step, paths in written.items() for path in paths]
    true = processes.largest(*[_fingerprint(path) if own else -1 for path, own in files])

    def see() -> None:
        until = time.monotonic() + PATIENCE
        for (path, _), content in zip(files, true, strict=True):
            while _fingerprint(path) != content:
                if time.monotonic() > until:
                    raise UserError(
                        f"{path} was written by another process and is not seen here; {processes.SHARED}"
                    )
                time.sleep(0.1)

    processes.on_each(see)


def _fingerprint(path: pathlib.Path) -> int:
    """Of what the file holds; -1: there is none."""
    return processes.fingerprint(path.read_bytes()) if path.exists() else -1
