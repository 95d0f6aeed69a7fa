"""SIGINT and SIGTERM, from the first moment of the command; utils/stop.py hears them while a run
trains or measures.
"""

import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = "interrupted; the same command resumes from the last checkpoint"
LATER = 0.05  # seconds
_AGAIN: list[threading.Timer] = []


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM are heard from the beginning; `begin_writing` and utils/stop.py say how
    later on.
    """
    before, hook = {one: signal.signal(one, leave) for one in SIGNALS}, sys.unraisablehook
    try:
        yield
    finally:
        sys.unraisablehook = hook
        while _AGAIN:
            _AGAIN.pop().cancel()
        for one, handler in before.items():
            signal.signal(one, handler)


def leave(signum: int, frame: FrameType | None) -> None:
    """At once: libraries that are interrupted while they are loaded end in a crash or many
    words.
    """
    os.write(2, f"error: {INTERRUPTED}\n".encode())
    os._exit(130)


def begin_writing() -> None:
    """Files are written from here on: a signal is an exception, so that whatever is half written is
    removed.
    """
    for one in SIGNALS:
        signal.signal(one, signal.default_int_handler)
    sys.unraisablehook = functools.partial(once_more, sys.unraisablehook)


def once_more(otherwise: Callable[[Any], Any], unraisable: Any) -> None:
    """An interruption where nothing can be raised, as while memory is collected, comes again a
    moment later.
    """
    if not issubclass(unraisable.exc_type, KeyboardInterrupt):
        otherwise(unraisable)
        return
    timer = threading.Timer(LATER, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    _AGAIN.append(timer)
    timer.start()
