"""Show a user that work goes on: a progress bar, and a line while programs compile.

In a log the bar moves every ten seconds. Calls of the library show a bar only after ten seconds and
a line only after three, through the logger "anisoscope".
"""

import contextlib
import contextvars
import logging
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

from tqdm.auto import tqdm

from anisoscope.utils import compiled

LOGGER = logging.getLogger("anisoscope")
if LOGGER.level == logging.NOTSET:  # else the user chose
    LOGGER.setLevel(logging.INFO)  # the command silences the root logger
LOWERED, COMPILED = (
    f"/jax/core/compile/{name}_duration" for name in ("jaxpr_to_mlir_module", "backend_compile")
)
COMPILING = "Anisoscope is compiling (5 to 20 seconds of idle cores); later calls are quick"
PATIENCE = 3.0  # seconds of compiling, or of another stage, until a line says so
DELAY = 10.0  # seconds until a call of the library shows a bar

# whether the current call of the library is quiet; None in the command
_quiet: contextvars.ContextVar[bool | None] = contextvars.ContextVar("quiet", default=None)


def progress_bar(work: Iterable | None, label: str, unit: str, **options: Any) -> tqdm:
    """Wrap `work` in a progress bar; with None, return a bar to move by `update`.

    Without a label nothing is shown; the options are tqdm's.
    """
    import jax  # late: settings are checked without it

    quiet = _quiet.get()
    options["disable"] = bool(quiet) or not label or jax.process_index() > 0
    options["delay"] = 0.0 if quiet is None else DELAY
    interval = 0.1 if sys.stderr.isatty() else 10.0
    return tqdm(work, desc=label, unit=unit, mininterval=interval, **options)


@contextlib.contextmanager
def report_stage(label: str) -> Iterator[None]:
    """Log a line if the block takes longer than `PATIENCE`, unless the call is quiet."""
    timer = threading.Timer(PATIENCE, write_line, [f"{label} …"])
    timer.daemon = True
    if not _quiet.get():
        timer.start()
    try:
        yield
    finally:
        timer.cancel()


@contextlib.contextmanager
def library_call(quiet: bool = False) -> Iterator[None]:
    """Report on a call of the library, and keep what it compiles (utils/compiled.py).

    `quiet`: without bars and lines, but with warnings. A call inside another call is as quiet as
    the outer one.
    """
    outer = _quiet.get()
    token = _quiet.set(quiet or bool(outer))
    reported = contextlib.nullcontext() if quiet or outer is not None else compile_notice()
    try:
        with compiled.library_programs, reported:
            yield
    finally:
        _quiet.reset(token)


@contextlib.contextmanager
def compile_notice() -> Iterator[None]:
    """Log a line once programs have been compiled for `PATIENCE` seconds in the block."""
    import jax  # late: the command checks its input before JAX loads

    lock, compiling = threading.Lock(), set()  # threads that compile
    began, spent, timer = 0.0, 0.0, threading.Timer(PATIENCE, log_compiling)

    def follow(event: str, _: float, **__: Any) -> None:
        nonlocal began, spent, timer
        with lock:
            if event == LOWERED:
                if not compiling and spent < PATIENCE:
                    began = time.monotonic()
                    timer = threading.Timer(PATIENCE - spent, log_compiling)
                    timer.daemon = True
                    timer.start()
                compiling.add(threading.get_ident())
            elif event == COMPILED and threading.get_ident() in compiling:
                compiling.remove(threading.get_ident())
                if not compiling:
                    timer.cancel()
                    spent += time.monotonic() - began

    jax.monitoring.register_event_duration_secs_listener(follow)
    try:
        yield
    finally:
        jax.monitoring.unregister_event_duration_listener(follow)
        timer.cancel()


def log_compiling() -> None:
    """Say that programs are compiled, and where they are kept."""
    import jax

    folder = jax.config.jax_compilation_cache_dir
    kept = f"kept in {folder} for later processes" if folder else "not kept for later processes"
    write_line(f"{COMPILING}; programs are {kept}")


def write_line(line: str) -> None:
    """Log a line where somebody has configured logging; else print it to stderr."""
    if LOGGER.hasHandlers():
        LOGGER.info(line)
    elif LOGGER.isEnabledFor(logging.INFO):
        print(line, file=sys.stderr)


def format_duration(seconds: float) -> str:
    """Format a rough duration: 100 seconds, 2 minutes, 3 days."""
    for size, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} seconds" if seconds >= 1 else "less than a second"
