"""The progress bar of the first process: live on a terminal, every ten seconds in a log."""

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm import tqdm

from anisoscope.utils import processes


def bar(work: Iterable | None, label: str, unit: str, **options: Any) -> tqdm:
    """Wrap `work` in a progress bar; with None, return a bar to move by `update`.

    Args:
        work: The iterable, or None.
        label: Text before the bar; empty: show nothing.
        unit: What is counted.
        **options: Options of tqdm.
    """
    quiet = not label or not processes.is_first()
    interval = 0.1 if sys.stderr.isatty() else 10.0
    return tqdm(work, desc=label, unit=unit, mininterval=interval, disable=quiet, **options)


@contextlib.contextmanager
def notice(line: str, seconds: float = 2.0) -> Iterator[None]:
    """Print the line to stderr if the block takes longer than `seconds`."""
    timer = threading.Timer(seconds, lambda: print(line, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def format_duration(seconds: float) -> str:
    """Format a rough duration: 100 seconds, 2 minutes, 3 days."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
