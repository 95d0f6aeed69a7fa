"""Stop on request: the first SIGINT or SIGTERM requests a stop, the second interrupts."""

import os
import signal
from types import FrameType

from anisoscope.utils import processes
from anisoscope.utils.errors import Stopped


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
        os.write(2, b"\nstopping after the current step; press again to interrupt\n")

    def _restore(self) -> None:
        for signum, handler in self._before.items():
            signal.signal(signum, handler)

    def __exit__(self, *exception: object) -> None:
        self._restore()

    def check(self, where: str) -> None:
        """Raise Stopped on every process if a stop was requested in any."""
        if any(processes.largest(self.requested)):
            raise Stopped(where)
