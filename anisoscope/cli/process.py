"""The command: dispatch, error lines, exit codes and signals."""

import contextlib
import errno
import io
import logging
import os
import pathlib
import signal
import sys
import traceback
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

import anisoscope
from anisoscope.utils import extras, memory
from anisoscope.utils.errors import (
    LostProcessError,
    RunError,
    Stopped,
    UserError,
    format_os_error,
)

# JAX reads these at import, and results depend on them.
IGNORED = (
    "JAX_DEFAULT_DTYPE_BITS",
    "JAX_DEFAULT_MATMUL_PRECISION",
    "JAX_DEFAULT_PRNG_IMPL",
    "JAX_DISABLE_JIT",
    "JAX_ENABLE_X64",
    "JAX_LEGACY_PRNG_KEY",
    "JAX_NUMPY_DTYPE_PROMOTION",
    "JAX_NUMPY_RANK_PROMOTION",
    "JAX_RANDOM_SEED_OFFSET",
    "JAX_THREEFRY_PARTITIONABLE",
)
SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = "interrupted; the same command resumes from the last checkpoint"


def start() -> NoReturn:
    """Run the program `anisoscope`, or main.py."""
    try:
        code = main(sys.argv)
    except Exception:
        traceback.print_exc()
        code = 1
    end(code)


def main(argv: list[str]) -> int:
    """Run a command and return its exit code.

    Returns:
        0: done, or stopped on request. 1: a run cannot continue. 2: bad input. 130: interrupted.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):  # paths may not fit the terminal's encoding
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        prepare_environment()
        with interruptible():
            dispatch(argv)
            sys.stdout.flush()
    except Stopped as stopped:
        print(f"{stopped}; the same command resumes there")
    except BrokenPipeError:  # the reader of the output has gone, as in `--list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (Exception, KeyboardInterrupt) as error:
        error = find_lost(error)
        line, code = explain(error)
        if not line:
            raise
        fail(line)
        if isinstance(error, LostProcessError):  # JAX would wait for the other process
            end(code)
        return code
    return 0


def prepare_environment() -> None:
    """Set the variables of this process that libraries read when they are first imported."""
    # LAPACK's matrices are small, and each core decomposes its own
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    os.environ["MPLBACKEND"] = "Agg"  # figures are only written to files
    for name in IGNORED:
        if (value := os.environ.pop(name, None)) is not None:
            print(f"{name}={value} is ignored: results would depend on it")


def dispatch(argv: list[str]) -> None:
    """Run a command line: a file, help, a list, a comparison of two runs, or an experiment.

    Imports are late: they take seconds, and a signal must end the process meanwhile.
    """
    import absl.logging

    from anisoscope.cli import flags
    from anisoscope.config.experiment_config import Config

    absl.logging.set_verbosity(absl.logging.FATAL)  # Orbax logs tracebacks; the user gets one line
    logging.getLogger().setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    if argv[1:2] == ["measure"]:
        from anisoscope.cli import measure_file

        measure_file.run(argv[1:])
        return
    values, experiment, overridden = flags.parse(argv)
    if values.version:
        print(f"anisoscope {anisoscope.__version__}")
    elif values.help:
        print(*flags.format_help(experiment), sep="\n")
    elif values.list:
        for name, title in flags.list_experiments():
            print(f"--config={name}\n    {title}")
    elif values.similarity:
        if len(values.similarity) != 2:
            example = "--similarity=runs/a,runs/b@256"
            raise UserError(f"--similarity compares two runs; name two, such as {example}")
        from anisoscope.cli import untrained_stages

        begin_writing()
        untrained_stages.compare_runs(*values.similarity, values.workdir, values.figures)
    else:
        flags.check_flags(values)
        title = flags.experiment_name(values.config)
        root = pathlib.Path(values.workdir or f"runs/{title}")
        request = flags.Request(values, overridden, root, title)
        if type(experiment) is Config:
            from anisoscope.cli import training_stages as stages

            stages.check(experiment, request)
        else:
            flags.check_without_training(experiment, values)
            from anisoscope.cli import untrained_stages as stages
        if values.dry_run:
            stages.dry_run(experiment, request)
            return
        begin_writing()
        stage = stages.verify if "verify" in values.stages else stages.run
        stage(experiment, request)


def explain(error: BaseException) -> tuple[str, int]:
    """Return the line and exit code for an error; the line is empty for an unexpected error."""
    if isinstance(error, KeyboardInterrupt):
        return str(error) or INTERRUPTED, 130
    if isinstance(error, UserError):
        return str(error), 2
    if isinstance(error, ImportError) and (line := extras.advise(error)):
        return line, 2
    if isinstance(error, RunError | LostProcessError):
        return str(error), 1
    if isinstance(error, OSError):
        return format_os_error(error), 2 if error.errno == errno.ENAMETOOLONG else 1
    if memory.is_out(error):
        why = (str(error).splitlines() or [type(error).__name__])[0][:200]
        advice = "measure.points, or in a new --workdir train.batch_size or model.width"
        return f"out of memory ({why}): lower {advice}", 1
    return "", 1


def find_lost(error: BaseException) -> BaseException:
    """Return the LostProcessError that an error of JAX means, or the error itself."""
    if "jax" not in sys.modules or isinstance(error, UserError | RunError | OSError):
        return error
    from anisoscope.utils import processes  # late: it takes seconds

    return processes.lost(error) or error


def fail(error: str) -> None:
    """Print an error as one line in a single write, since JAX's threads write to stderr too."""
    print(f"error: {' '.join(error.split()) or 'failed'}\n", end="", file=sys.stderr)


def end(code: int) -> NoReturn:
    """Exit, without Python's shutdown after errors: Orbax would print tracebacks."""
    if code in (1, 130):
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Handle signals from the start; `begin_writing` and utils/processes.py change the handlers."""
    before = {signum: signal.signal(signum, leave) for signum in SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)


def leave(signum: int, frame: FrameType | None) -> None:
    """Exit at once: a library interrupted during its import crashes or prints tracebacks."""
    os.write(2, f"error: {INTERRUPTED}\n".encode())
    os._exit(130)


def begin_writing() -> None:
    """Turn signals into exceptions from now on, so that half-written files are removed."""
    for signum in SIGNALS:
        signal.signal(signum, signal.default_int_handler)
