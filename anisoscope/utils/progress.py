"""Show a user that work goes on: a progress bar, and a line while programs compile.

In a log the bar moves every ten seconds. Calls of the library show a bar only after ten seconds,
and log through the logger "anisoscope".
"""

import contextlib
import contextvars
import logging
import sys
import threading
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm.auto import tqdm

LOGGER = logging.getLogger("anisoscope")
if LOGGER.level == logging.NOTSET:  # else the user chose
    LOGGER.setLevel(logging.WARNING)  # the command silences the root logger
LOWERED, COMPILED = (
    f"/jax/core/compile/{name}_duration" for name in ("jaxpr_to_mlir_module", "backend_compile")
)
COMPILING = "Anisoscope is compiling; later calls with arrays of this shape are quick"
PATIENCE = 2.0  # seconds of compiling until a line says so
DELAY = 10.0  # seconds until a call of the library shows a bar

# whether the current call of the library is quiet; None in the command
_quiet: contextvars.ContextVar[bool | None] = contextvars.ContextVar("quiet", default=None)


def progress_bar(work: Iterable | None, label: str, unit: str, **options: Any) -> tqdm:
    """Wrap `work` in a progress bar; with None, return a bar to move by `update`.

    Without a label nothing is shown; the options are tqdm's.
    """
    from anisoscope.utils import processes  # late: settings are checked without JAX

    quiet = _quiet.get()
    options["disable"] = bool(quiet) or not label or not processes.is_first()
    options["delay"] = 0.0 if quiet is None else DELAY
    interval = 0.1 if sys.stderr.isatty() else 10.0
    return tqdm(work, desc=label, unit=unit, mininterval=interval, **options)


@contextlib.contextmanager
def library_call(quiet: bool) -> Iterator[None]:
    """Report on a call of the library; `quiet`: without bars and lines, but with warnings.

    A call inside another call is as quiet as the outer one.
    """
    outer = _quiet.get()
    token = _quiet.set(quiet or bool(outer))
    try:
        with contextlib.nullcontext() if quiet or outer is not None else compile_notice():
            yield
    finally:
        _quiet.reset(token)


@contextlib.contextmanager
def compile_notice() -> Iterator[None]:
    """Log a line if a program compiles for longer than `PATIENCE` in the block."""
    import jax  # late: the command checks its input before JAX loads

    timers: dict[int, threading.Timer] = {}  # timers of the threads that compile
    logged = threading.Event()

    def log() -> None:
        if not logged.is_set():
            logged.set()
            LOGGER.warning(COMPILING)

    def follow(event: str, _: float, **__: Any) -> None:
        if event == LOWERED:
            timer = timers[threading.get_ident()] = threading.Timer(PATIENCE, log)
            timer.daemon = True
            timer.start()
        elif event == COMPILED and (timer := timers.pop(threading.get_ident(), None)):
            timer.cancel()

    jax.monitoring.register_event_duration_secs_listener(follow)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_duration_listener(follow)
        for timer in [*timers.values()]:
            timer.cancel()


def format_duration(seconds: float) -> str:
    """Format a rough duration: 100 seconds, 2 minutes, 3 days."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 1 else "less than a second"
