"""What one command asks for: help, a list, a status, a comparison of two runs, or an experiment."""

import logging
import pathlib
import re
import warnings
from collections.abc import Iterable

import absl.logging

import anisoscope
from anisoscope.cli import explained, flags, options
from anisoscope.cli.kinds import kind_of
from anisoscope.cli.options import Request
from anisoscope.cli.signals import begin_writing

USAGE = "Train, measure and draw: anisoscope --config=decoder_small [--config.train.steps=100 …]"


def run(argv: list[str]) -> None:
    absl.logging.set_verbosity(absl.logging.FATAL)  # Orbax logs tracebacks of what is told in one line here
    logging.getLogger().setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)  # nor what it broke off then
    words, settings = flags.split(argv)
    given = options.parse(words)
    options.check_settings(given, settings)
    if given.version:
        print_lines((f"anisoscope {anisoscope.__version__}",))
    elif given.help:
        print_lines((USAGE, "", *options.explained(given, settings)))
    elif given.list:
        print_lines(explained.format_experiments())
    elif given.status is not None:
        from anisoscope.cli import status  # late, as what is below: it takes seconds

        print_lines(status.format_status(pathlib.Path(given.status)))
    elif given.similarity:
        from anisoscope.cli import untrained

        begin_writing()
        untrained.similarity_of_runs(*given.similarity, given.workdir, given.figures)
    else:
        experiment = flags.override(flags.load(given.config), settings)
        title = experiment_name(given.config)
        root = pathlib.Path(given.workdir or f"runs/{title}")
        kind = kind_of(experiment)
        request = Request(given, settings, root, title)
        kind.check(experiment, request)
        if given.dry_run:
            kind.dry_run(experiment, request)
        else:
            run_it = (kind.verify if "verify" in given.stages else kind.load)()
            begin_writing()
            run_it(experiment, request)


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def experiment_name(config: str) -> str:
    """decoder_small.py:tiny -> decoder_small_tiny, pretrained.py:org/a -> pretrained_org_a; of a path its end."""
    path, _, argument = config.partition(":")
    argument = pathlib.Path(argument).name if pathlib.Path(argument).exists() else argument
    words = pathlib.Path(path).stem, re.sub(r"[^\w.=-]+", "_", argument).strip("_.")
    return "_".join(filter(None, words))
