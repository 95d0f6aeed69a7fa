"""Stopping politely: the first SIGINT or SIGTERM asks, the second one interrupts at once."""

import os
import signal
from types import FrameType

from anisoscope.utils import processes
from anisoscope.utils.errors import Stopped


class Stop:
    """A context in which SIGINT and SIGTERM only set `asked`, which long work looks at."""

    def __init__(self) -> None:
        self.asked = False

    def __enter__(self) -> "Stop":
        self._before = {s: signal.signal(s, self._ask) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _ask(self, signum: int, frame: FrameType | None) -> None:
        self.asked = True
        self._restore()
        # print is not safe in a handler
        os.write(2, b"\nstopping after the work at hand; once more to interrupt\n")

    def _restore(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def check(self, where: str) -> None:
        """Raise Stopped on every process if any of them was asked to stop."""
        if any(processes.largest(self.asked)):
            raise Stopped(where)
