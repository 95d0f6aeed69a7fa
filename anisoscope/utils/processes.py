"""Coordinate the processes of a run: which writes, how all agree and stop, and who does which steps.

The first SIGINT or SIGTERM requests a stop, the second interrupts.
"""

import functools
import os
import pathlib
import re
import signal
import time
import zlib
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from anisoscope.utils.errors import LostProcessError, RunError, Stopped, UserError
from anisoscope.utils.progress import progress_bar

T = TypeVar("T")
WHOLE = 2**24  # float32, which processes exchange, is exact for integers below
BROKEN = re.compile(
    r"gloo|nccl|coordination service|barrier|heartbeat|connection|socket closed", re.IGNORECASE
)
# seconds until a new file must be visible elsewhere: network file systems cache its absence
PATIENCE = 60.0
SHARED = "--workdir must lie on a file system that all hosts see"


def is_first() -> bool:
    """Return whether this process prints and writes for all."""
    return jax.process_index() == 0


@functools.cache
def _gatherer() -> tuple[NamedSharding, Callable[[jax.Array], jax.Array]]:
    """Return how an array lies on one device of each process, and a program that copies it to all."""
    first = {device.process_index: device for device in reversed(jax.devices())}
    mesh = Mesh(np.array([first[process] for process in sorted(first)]), "process")
    everywhere = NamedSharding(mesh, PartitionSpec())
    copy = jax.jit(lambda x: x, out_shardings=everywhere)
    return NamedSharding(mesh, PartitionSpec("process")), copy


def gather(x: np.ndarray) -> np.ndarray:
    """Stack the arrays of all processes on a new first axis.

    `multihost_utils.process_allgather` uses all devices and waits for the first: the next one may
    begin while the last still runs on another device, and gloo then mixes up their messages.
    """
    sharding, copy = _gatherer()
    parts = jax.make_array_from_process_local_data(sharding, x[None])
    return np.asarray(copy(parts).addressable_data(0))


def largest_over_processes(*values: float) -> list[float]:
    """Return the maximum of each value over all processes."""
    if jax.process_count() == 1:
        return list(values)
    try:
        return gather(np.asarray(values, np.float32)).max(axis=0).tolist()
    except (jax.errors.JaxRuntimeError, ValueError) as error:  # a broken connection
        raise _lost(error) from error


def lost(error: BaseException) -> LostProcessError | None:
    """Return a `LostProcessError` if an error in collective work means that another process has ended."""
    if isinstance(error, LostProcessError):
        return error
    return _lost(error) if BROKEN.search(str(error)) and jax.process_count() > 1 else None


def _lost(error: BaseException) -> LostProcessError:
    why = str(error).splitlines()[0][:200]
    advice = "the same command, started on every host, resumes from what is saved"
    return LostProcessError(f"another process has ended ({why}); {advice}")


def on_each(work: Callable[[], T]) -> T:
    """Run `work` on every process; if it fails on any, raise an error on all."""
    result, failure = None, None
    try:
        result = work()
    except Exception as error:  # any error: the others would wait for this process forever
        failure = error
    kind = 0 if failure is None else 2 if isinstance(failure, UserError) else 1
    worst, number = largest_over_processes(kind, jax.process_index() if kind else -1)
    if worst:
        what = f"process {int(number)} has failed; see its message"
        raise failure or (UserError(what) if worst == 2 else RunError(what))
    return result


def on_first(work: Callable[[], None]) -> None:
    """Run `work` on the first process while the others wait; if it fails, raise an error on all."""
    on_each(lambda: work() if is_first() else None)


def agree(content: Any, what: str) -> None:
    """Raise UserError unless all processes find the same content on their disks."""
    found = fingerprint(repr(content).encode())
    most, least = largest_over_processes(found, -found)
    if most != -least:
        raise UserError(f"processes find different {what}; {SHARED}")


def fingerprint(content: bytes) -> int:
    """Compute a checksum that `largest` can exchange."""
    return zlib.crc32(content) % WHOLE


class Stop:
    """A context in which SIGINT and SIGTERM set `requested`, which long work checks."""

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> "Stop":
        self._before = {s: signal.signal(s, self._request) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _request(self, signum: int, frame: FrameType | None) -> None:
        self.requested = True
        self._restore()
        # print is not safe in a handler
        os.write(2, b"\nstopping after the current step; press Ctrl-C again to interrupt\n")

    def _restore(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def check(self, where: str) -> None:
        """Raise Stopped on every process if a stop was requested in any."""
        if any(largest_over_processes(self.requested)):
            raise Stopped(where)


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
    """Call work(step, writes) for every step {step: files that it writes}.

    A stop or an error in any process stops all, which synchronize after each step. `what` names the
    work, for the progress bar and for a stop. If `independent`, each process writes its own steps,
    else the first writes all.
    """
    listing = [(step, [path.name for path in paths]) for step, paths in written.items()]
    agree(listing, f"checkpoints or tables of {name}")
    if not written:
        return
    share = parts(list(written), jax.process_count() if independent else 1)
    mine = share[jax.process_index() if independent else 0]
    writes = independent or is_first()
    if len(share) > 1:
        counts = ", ".join(str(len(part)) for part in share)
        print(f"{name}: {what[0]}: checkpoints per process: {counts}")

    def run_step(number: int) -> None:
        if number < len(mine):
            work(mine[number], writes)

    for number in progress_bar(range(len(share[0])), f"{name}: {what[0]}", "checkpoint"):
        steps = [str(part[number]) for part in share if number < len(part)]
        plural = "s" * (len(steps) > 1)
        stop.check(f"{name}: stopped before {what[1]} step{plural} {', '.join(steps)}")
        on_each(functools.partial(run_step, number))
    if jax.process_count() > 1:
        _meet(written, mine if writes else [])


def _meet(written: dict[int, list[pathlib.Path]], mine: list[int]) -> None:
    """Wait until every process sees the files that were written, or raise UserError."""
    files = [(path, step in mine) for step, paths in written.items() for path in paths]
    contents = largest_over_processes(*[_fingerprint(path) if own else -1 for path, own in files])

    def look() -> None:
        until = time.monotonic() + PATIENCE
        for (path, _), content in zip(files, contents, strict=True):
            while _fingerprint(path) != content:
                if time.monotonic() > until:
                    why = "was written by another process and is not visible here"
                    raise UserError(f"{path} {why}; {SHARED}")
                time.sleep(0.1)

    on_each(look)


def _fingerprint(path: pathlib.Path) -> int:
    return fingerprint(path.read_bytes()) if path.exists() else -1
