"""The one progress bar: it moves on a terminal, and speaks every ten seconds in a log; the first
process has it.
"""

import contextlib
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm import tqdm

from anisoscope.utils import processes


def bar(work: Iterable | None, label: str, unit: str, **options: Any) -> tqdm:
    """`work`, or with None a bar to be moved by `update`, with tqdm's options; an empty label shows
    nothing.
    """
    quiet = not label or not processes.is_first()
    interval = 0.1 if sys.stderr.isatty() else 10.0
    return tqdm(work, desc=label, unit=unit, mininterval=interval, disable=quiet, **options)


@contextlib.contextmanager
def notice(line: str, seconds: float = 2.0) -> Iterator[None]:
    """Write the line to stderr if the block takes longer than this."""
    timer = threading.Timer(seconds, lambda: print(line, file=sys.stderr, flush=True))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def format_duration(seconds: float) -> str:
    """Write a time as exactly as a rough number may be: 100 seconds, 2 minutes, 3 days."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds"
