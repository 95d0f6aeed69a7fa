"""The command as a process: its error lines and its exit codes."""

import contextlib
import errno
import io
import os
import sys
import threading
import traceback
from typing import NoReturn

# LAPACK's, before anything loads it: what is decomposed is small, each core has its own, and
# threads wait for others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from anisoscope.cli.signals import INTERRUPTED, interruptible
from anisoscope.utils import memory
from anisoscope.utils.errors import UNSTOPPABLE, Lost, RunError, Stopped, UserError, of_system

os.environ["MPLBACKEND"] = "Agg"  # figures are files, whatever windows there are
# What JAX reads at its import and numbers hang on: a run goes on as it began, whoever starts it.
FIXED = (
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
# none of it is imported yet
unused = {name: os.environ.pop(name) for name in FIXED if name in os.environ}


def start() -> NoReturn:
    """The program `anisoscope`, and main.py."""
    try:
        code = main(sys.argv)
    except Exception:
        traceback.print_exc()
        code = 1
    end(code)


def main(argv: list[str]) -> int:
    """The exit code: 0 done, or stopped when asked to; 1 a run that cannot go on; 2 bad input; 130
    interrupted.
    """
    # of whatever encoding, and for paths that are no text
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        for name, value in unused.items():
            print(f"{name}={value} is not used: numbers would depend on it")
        with interruptible():
            # late: this takes seconds, in which a signal is to be heard
            from anisoscope.cli import command

            command.run(argv)
            sys.stdout.flush()
        return 0
    except UserError as error:
        return fail(error, 2)
    except Lost as error:
        sys.stdout.flush()
        os._exit(fail(error, 1))
    except RunError as error:
        return fail(error, 1)
    except BrokenPipeError:  # whoever read the output has gone, as in `--list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return fail(of_system(error), 2 if error.errno == errno.ENAMETOOLONG else 1)
    except Stopped as stopped:
        print(f"{stopped}; the same command resumes there")
        return 0
    except KeyboardInterrupt:
        return fail(INTERRUPTED, 130)
    except Exception as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:200]
        # JAX's, without a word
        if isinstance(error, AssertionError) and os.environ.get("JAX_PLATFORMS"):
            platforms = os.environ["JAX_PLATFORMS"]
            return fail(
                f"JAX_PLATFORMS={platforms}: there is no such device; name one that is there, or unset it",
                2,
            )
        if "Unable to initialize backend" in why:
            return fail(f"{why}: set JAX_PLATFORMS to a device that is there, or unset it", 2)
        if "jax" in sys.modules:
            from anisoscope.utils import processes  # late: it takes seconds

            if lost := processes.lost(error):
                sys.stdout.flush()
                os._exit(fail(lost, 1))
        if not memory.is_out(error):
            raise
        advice = "lower train.batch_size, measure.points or model.width; the same command resumes from what is saved"
        return fail(f"out of memory ({why}): {advice}", 1)


def fail(error: Exception | str, code: int) -> int:
    line = " ".join(str(error).split()) or type(error).__name__
    # in one piece: JAX's own threads write there too
    print(f"error: {line}\n", end="", file=sys.stderr)
    return code


def end(code: int) -> NoReturn:
    """At once where a run cannot go on (Orbax's threads would print tracebacks) or a thread cannot
    be stopped.
    """
    if code in (1, 130) or any(one.name == UNSTOPPABLE for one in threading.enumerate()):
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)
