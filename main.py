"""Train, measure and draw: python main.py --config=experiments/decoder_small.py [--config.train.steps=100 …]"""

import contextlib
import errno
import io
import os
import pathlib
import re
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import FrameType
from typing import Any, NoReturn

# LAPACK's, before anything loads it: what is decomposed is small, each core has its own, and threads wait for others.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from anisoscope.utils.errors import UNSTOPPABLE, Lost, RunError, Stopped, UserError, of_system

SIGNALS = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = "interrupted; the same command goes on from the last checkpoint"
UNTRAINED = {  # kinds of experiment that train nothing: in words, and what of `stages` works on them
    "UntrainedConfig": ("untrained blocks", "untrained_blocks"),
    "CurvedConfig": ("curved manifolds", "curved_manifolds"),
    "VectorsConfig": ("vectors of a file", "vectors_of_file"),
    "PretrainedConfig": ("pretrained models", "pretrained_model"),
    "ModelsConfig": ("pretrained models", "pretrained_models"),
}
WITH_TANGENTS = ("pretrained_model",)  # of these, what has gradients


def main(argv: list[str]) -> int:
    """The exit code: 0 done, or stopped when asked to; 1 a run that cannot go on; 2 bad input; 130 interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):  # of whatever encoding, and for paths that are no text
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        with interruptible():
            obey(argv)
            sys.stdout.flush()
        return 0
    except UserError as error:
        return fail(error, 2)
    except Lost as error:
        sys.stdout.flush()
        os._exit(fail(error, 1))
    except RunError as error:
        return fail(error, 1)
    except BrokenPipeError:  # whoever read the output has gone, as in `main.py --list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return fail(of_system(error), 2 if error.errno == errno.ENAMETOOLONG else 1)
    except Stopped as stopped:
        print(f"{stopped}; the same command goes on from there")
        return 0
    except KeyboardInterrupt:
        return fail(INTERRUPTED, 130)
    except Exception as error:
        why = (str(error).splitlines() or [type(error).__name__])[0][:200]
        if "Unable to initialize backend" in why:
            return fail(f"{why}: set JAX_PLATFORMS to a device that is there, or unset it", 2)
        if not out_of_memory(error):
            raise
        advice = "lower train.batch_size, measure.points or model.width; the same command goes on from what is saved"
        return fail(f"out of memory ({why}): {advice}", 1)


def fail(error: Exception | str, code: int) -> int:
    print(f"error: {' '.join(str(error).split()) or type(error).__name__}", file=sys.stderr)
    return code


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGINT and SIGTERM are heard from the beginning; `loaded` and utils/stop.py say how later on."""
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


def loaded() -> None:
    """Files are written from here on, and whatever is half written is removed."""
    for one in SIGNALS:
        signal.signal(one, signal.default_int_handler)


def out_of_memory(error: Exception) -> bool:
    """Python's and NumPy's, or XLA's, which has no class of its own."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error) or "Out of memory" in str(error)


def obey(argv: list[str]) -> None:
    # Imported late, here and below: this takes seconds, in which a signal is to be heard.
    import logging

    import absl.logging

    from anisoscope.cli import flags, options

    absl.logging.set_verbosity(absl.logging.FATAL)  # Orbax logs tracebacks of what is told in one line here
    logging.getLogger().setLevel(logging.CRITICAL)
    words, settings = flags.split(argv)
    given = options.parse(words)
    options.check_settings(given, settings)
    if given.help:
        say((__doc__, "", *options.explained(given, settings)))
    elif given.list:
        from anisoscope.cli import listing

        say(listing.told())
    elif given.status is not None:
        from anisoscope.cli import status

        say(status.told(pathlib.Path(given.status)))
    elif given.similarity:
        from anisoscope.cli import stages_untrained

        loaded()
        stages_untrained.similarity_of_runs(*given.similarity, given.workdir, given.figures)
    else:
        experiment = flags.override(flags.load(given.config), settings)
        run_kind(experiment, given, settings)


def say(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def run_kind(experiment: Any, given: Any, settings: dict[str, str | None]) -> None:
    """What an experiment is run by, which its kind says."""
    kind = type(experiment)
    if kind.__name__ in UNTRAINED:
        run_untrained(experiment, given, sys.modules[kind.__module__].check, *UNTRAINED[kind.__name__])
    else:
        run(experiment, given, settings)


def workdir_of(given: Any) -> pathlib.Path:
    return pathlib.Path(given.workdir or f"runs/{experiment_name(given.config)}")


def foretell(experiment: Any, given: Any) -> Iterator[str]:
    """What a dry run says of a kind without an estimate: where it would work, what its file says of cost, settings."""
    from anisoscope.cli import explained, listing

    path = pathlib.Path(given.config.partition(":")[0])
    yield f"folder: {workdir_of(given)}"
    for entry in listing.entries(path.parent):
        if entry.path.name == path.name:
            yield from (f"cost: {size + ': ' if size else ''}{what}" for size, what in entry.cost.items())
    yield from explained.settings(experiment)


def run(experiment: Any, given: Any, settings: dict[str, str | None]) -> None:
    from anisoscope.cli import options
    from anisoscope.cli.limits import check
    from anisoscope.config import variants

    configs = variants.expand(experiment, settings)
    for config in (
        *configs.values(),
        *variants.groups(experiment, settings).values(),
    ):  # single runs, and seeds together
        check(config)

    options.check_tangents(given, any(config.tangents.enabled for config in configs.values()))

    # Later still: a wrong setting should be told without waiting for what trains and draws.
    from anisoscope.cli import drawing, stages
    from anisoscope.utils import folder, mesh

    loaded()

    if given.distributed:
        stages.join_cluster()
    else:
        mesh.take_cores_for_devices(stages.units(experiment))
    title = experiment_name(given.config)
    root = workdir_of(given)
    experiment, configs = stages.resolve_types(experiment, configs, root)
    if given.dry_run:
        stages.foretell(experiment, configs, root, given.stages)
        return
    stages.keep_compiled(experiment.data.cache)
    to = drawing.folder_of(given.figures, root)
    shown = drawing.named(configs, root, title, given.compare)
    if set(given.stages) >= {"train", "figures"} and "measure" not in given.stages:
        drawing.check_measured(configs, root)
    if set(given.stages) != {"figures"}:
        stages.work(experiment, configs, root, title, given.stages)
    if "figures" in given.stages:
        stages.check_folders(experiment, configs, root, False, folder.check)
        drawing.draw_figures(shown, to, root, given.over)


def run_untrained(config: Any, given: Any, check: Callable[[Any], None], what: str, stage: str) -> None:
    """A kind of experiment that has nothing to do in `train`."""
    from anisoscope.cli import options

    check(config)
    refuse_training(given, what, ("measure", *["tangents"] * (stage in WITH_TANGENTS), "figures"))
    if stage in WITH_TANGENTS:
        options.check_tangents(given, config.tangents.enabled)
    if given.dry_run:
        say(foretell(config, given))
        return
    from anisoscope.cli import drawing, stages_untrained  # late, as in `run`

    loaded()
    root = workdir_of(given)
    to = drawing.folder_of(given.figures, root)
    getattr(stages_untrained, stage)(config, root, experiment_name(given.config), given.stages, to)


def refuse_training(given: Any, what: str, stages: tuple[str, ...]) -> None:
    from anisoscope.cli.options import FURTHER

    for name in ("compare", "distributed", "over"):
        if given[name].value != given[name].default:
            raise UserError(f"--{name} is for training runs; leave it out with an experiment on {what}")
    if asked := [stage for stage in FURTHER if stage in given.stages]:
        raise UserError(f"--stages={asked[0]}: {what} are not trained here; leave it out")
    if given["stages"].present and (asked := [stage for stage in given.stages if stage not in stages]):
        raise UserError(f"--stages={asked[0]}: {what} are not trained; choose from {', '.join(stages)}")


def experiment_name(config: str) -> str:
    """Stem of the experiment file, with its argument, as a folder may be called: decoder_small.py:tiny ->
    decoder_small_tiny, pretrained.py:EleutherAI/pythia-160m -> pretrained_EleutherAI_pythia-160m, and of a path its
    end."""
    path, _, argument = config.partition(":")
    argument = pathlib.Path(argument).name if pathlib.Path(argument).exists() else argument
    words = pathlib.Path(path).stem, re.sub(r"[^\w.=-]+", "_", argument).strip("_.")
    return "_".join(filter(None, words))


def end(code: int) -> NoReturn:
    """At once where a run cannot go on or is interrupted, or where Python would wait for what cannot be stopped.

    Threads of Orbax that a failed save left behind would print tracebacks after the one line.
    """
    if code in (1, 130) or any(one.name == UNSTOPPABLE for one in threading.enumerate()):
        with contextlib.suppress(BrokenPipeError):
            sys.stdout.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    try:
        ended = main(sys.argv)
    except Exception:
        traceback.print_exc()
        ended = 1
    end(ended)
