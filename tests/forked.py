"""A command as a process of its own, forked from one that has imported all: a start takes no seconds."""

import contextlib
import multiprocessing
import os
import pathlib
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["anisoscope.cli.command", "anisoscope.cli.training", "anisoscope.cli.untrained"])


class Hang(BaseException):
    """No Exception, so that nothing takes it for an error of its own."""


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Raise Hang after so long."""

    def ring(*_: object) -> None:
        raise Hang

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class Forked:
    """As subprocess.Popen."""

    def __init__(self, process: multiprocessing.process.BaseProcess):
        self._process = process
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def wait(self, timeout: float) -> int:
        self._process.join(timeout)
        if self._process.exitcode is None:
            raise subprocess.TimeoutExpired("main.py", timeout)
        return self._process.exitcode

    def poll(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, signum: int) -> None:
        os.kill(self.pid, signum)


class Command:
    def __init__(self, flags: Sequence[str], said: pathlib.Path):
        self.flags, self.said = flags, said

    def start(self, *more: str) -> tuple[Forked, pathlib.Path]:
        """The process, and the file that holds what it says."""
        self.said.unlink(missing_ok=True)
        process = context.Process(target=run, args=(["main.py", *self.flags, *more], str(self.said)))
        process.start()
        while process.exitcode is None and not self.said.exists():
            time.sleep(0.001)
        return Forked(process), self.said


def run(argv: list[str], said: str) -> None:
    from anisoscope.cli import process, signals

    for one in signals.SIGNALS:  # as main.py has it from its first moment
        signal.signal(one, signals.leave)
    with open(said, "wb") as file:
        for one in (1, 2):
            os.dup2(file.fileno(), one)
    process.end(process.main(argv))
