"""Coordinate the processes of a run: which process writes, and how all agree."""

import re
import zlib
from collections.abc import Callable
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental import multihost_utils

from anisoscope.utils.errors import LostProcessError, RunError, UserError

T = TypeVar("T")
WHOLE = 2**24  # float32, which processes exchange, is exact for integers below
BROKEN = re.compile(
    r"gloo|nccl|coordination service|barrier|heartbeat|connection|socket closed", re.IGNORECASE
)
SHARED = "--workdir must lie on a file system that all hosts see"


def is_first() -> bool:
    """Whether this process prints and writes for all."""
    return jax.process_index() == 0


def largest(*values: float) -> list[float]:
    """Return the maximum of each value over all processes."""
    if jax.process_count() == 1:
        return list(values)
    try:
        return multihost_utils.process_allgather(np.asarray(values, np.float32)).max(0).tolist()
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
    except Exception as error:  # of any kind: the others would wait for this process forever
        failure = error
    kind = 0 if failure is None else 2 if isinstance(failure, UserError) else 1
    worst, number = largest(kind, jax.process_index() if kind else -1)
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
    most, least = largest(found, -found)
    if most != -least:
        raise UserError(f"processes find different {what}; {SHARED}")


def fingerprint(content: bytes) -> int:
    """Compute a checksum that `largest` can exchange."""
    return zlib.crc32(content) % WHOLE
