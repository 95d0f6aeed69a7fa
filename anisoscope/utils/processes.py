"""Coordinate the processes of a run: which writes, and how all stop.

The first SIGINT or SIGTERM requests a stop, the second interrupts.
"""

import functools
import os
import re
import signal
from collections.abc import Callable
from types import FrameType
from typing import TypeVar

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from anisoscope.utils.errors import LostProcessError, RunError, Stopped, UserError

T = TypeVar("T")
BROKEN = re.compile(
    r"gloo|nccl|coordination service|barrier|heartbeat|connection|socket closed", re.IGNORECASE
)


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
