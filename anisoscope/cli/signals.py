"""SIGINT and SIGTERM, from the first moment of the command; utils/stop.py hears them while a run trains or measures."""

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = "interrupted; the same command resumes from the last checkpoint"


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM are heard from the beginning; `begin_writing` and utils/stop.py say how later on."""
    before = {one: signal.signal(one, leave) for one in SIGNALS}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def leave(signum: int, frame: FrameType | None) -> None:
    """At once: libraries that are interrupted while they are loaded end in a crash or many words."""
    os.write(2, f"error: {INTERRUPTED}\n".encode())
    os._exit(130)


def begin_writing() -> None:
    """Files are written from here on: a signal is an exception, so that whatever is half written is removed."""
    for one in SIGNALS:
        signal.signal(one, signal.default_int_handler)
