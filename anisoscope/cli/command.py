"""What one command asks for: help, a list, a status, a comparison of two runs, or an experiment."""

import logging
import pathlib
import re
import warnings

import absl.logging

import anisoscope
from anisoscope.cli import flags
from anisoscope.cli.flags import Request
from anisoscope.cli.kinds import find_kind
from anisoscope.cli.signals import begin_writing
from anisoscope.utils.errors import UserError

USAGE = "Train, measure and draw: anisoscope --config=decoder_small [--config.train.steps=100 …]\n"


def run(argv: list[str]) -> None:
    """Do what the words of a command line ask for; what takes seconds to import is imported
    late.
    """
    absl.logging.set_verbosity(absl.logging.FATAL)  # Orbax logs tracebacks of what is one line here
    logging.getLogger().setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    given, experiment, overridden = flags.parse(argv)
    if given.version:
        print(f"anisoscope {anisoscope.__version__}")
    elif given.help:
        print(USAGE, *flags.format_help(experiment), sep="\n")
    elif given.list:
        print(*flags.format_experiments(), sep="\n")
    elif given.status is not None:
        from anisoscope.cli import status

        print(*status.format_status(pathlib.Path(given.status)), sep="\n")
    elif given.similarity:
        compare_runs(given)
    else:
        flags.check_flags(given)
        title = experiment_name(given.config)
        root = pathlib.Path(given.workdir or f"runs/{title}")
        request, kind = Request(given, overridden, root, title), find_kind(experiment)
        kind.check(experiment, request)
        if given.dry_run:
            kind.load("dry_run")(experiment, request)
            return
        work = kind.load("verify" if "verify" in given.stages else "run")
        begin_writing()
        work(experiment, request)


def compare_runs(given: flags.flags.FlagValues) -> None:
    if len(given.similarity) != 2:
        raise UserError(
            "--similarity compares two runs; name two, as --similarity=runs/a,runs/b@256"
        )
    from anisoscope.cli import untrained_stage

    begin_writing()
    untrained_stage.similarity_of_runs(*given.similarity, given.workdir, given.figures)


def experiment_name(config: str) -> str:
    """Name an experiment's folder: decoder_small.py:tiny -> decoder_small_tiny; of a path its
    end.
    """
    path, _, argument = config.partition(":")
    argument = pathlib.Path(argument).name if pathlib.Path(argument).exists() else argument
    words = pathlib.Path(path).stem, re.sub(r"[^\w.=-]+", "_", argument).strip("_.")
    return "_".join(filter(None, words))
