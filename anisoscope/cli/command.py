"""Dispatch a command line: help, a list, a status, a comparison of two runs, or an experiment."""

import logging
import pathlib
import re
import warnings
from typing import Any

import absl.logging

import anisoscope
from anisoscope.cli import flags
from anisoscope.cli.flags import Request
from anisoscope.cli.process import begin_writing
from anisoscope.config import variants
from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import check_measure
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.utils.errors import UserError

USAGE = "Train, measure and draw: anisoscope --config=decoder_small [--config.train.steps=100 …]\n"


def run(argv: list[str]) -> None:
    """Run the command line; slow imports happen only where they are needed."""
    absl.logging.set_verbosity(absl.logging.FATAL)  # Orbax logs tracebacks; the user gets one line
    logging.getLogger().setLevel(logging.CRITICAL)
    warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
    values, experiment, overridden = flags.parse(argv)
    if values.version:
        print(f"anisoscope {anisoscope.__version__}")
    elif values.help:
        print(USAGE, *flags.format_help(experiment), sep="\n")
    elif values.list:
        for name, title in flags.list_experiments():
            print(f"--config={name}\n    {title}")
    elif values.status is not None:
        from anisoscope.cli import status

        print(*status.format_status(pathlib.Path(values.status)), sep="\n")
    elif values.similarity:
        if len(values.similarity) != 2:
            example = "--similarity=runs/a,runs/b@256"
            raise UserError(f"--similarity compares two runs; name two, as {example}")
        from anisoscope.cli import untrained_stages

        begin_writing()
        untrained_stages.compare_runs(*values.similarity, values.workdir, values.figures)
    else:
        flags.check_flags(values)
        title = experiment_name(values.config)
        root = pathlib.Path(values.workdir or f"runs/{title}")
        run_experiment(experiment, Request(values, overridden, root, title))


def run_experiment(experiment: Any, request: Request) -> None:
    """Check the settings and run the stages of an experiment."""
    values = request.flags
    if type(experiment) is Config:
        check_trained(experiment, request)
        from anisoscope.cli import training_stages as stages
    else:
        check_untrained(experiment, values)
        from anisoscope.cli import untrained_stages as stages
    if values.dry_run:
        stages.dry_run(experiment, request)
        return
    begin_writing()
    if "verify" in values.stages:
        stages.verify(experiment, request)
    else:
        stages.run(experiment, request)


def check_trained(experiment: Config, request: Request) -> None:
    """Check the settings of every run of an experiment, and of its seeds jointly."""
    runs = variants.expand(experiment, request.overridden)
    for config in (*runs.values(), *variants.groups(experiment, request.overridden).values()):
        check_run(config)
    enabled = any(config.tangents.enabled for config in runs.values())
    flags.check_tangents(request.flags, enabled)


def check_run(config: Config) -> None:
    """Raise UserError if a run cannot be trained, measured or analyzed by the stage tangents."""
    from anisoscope.subspaces import tangent_windows
    from anisoscope.training import step_limits

    step_limits.check_run(config)
    check_measure(config.measure, config.model.heads, config.train.steps)
    tangent_windows.check_tangents(config, config.tangents)


def check_untrained(experiment: Any, values: flags.flags.FlagValues) -> None:
    """Check an experiment that trains nothing; reject flags of training."""
    what, check = flags.UNTRAINED[type(experiment)]
    check(experiment)
    single = type(experiment) is PretrainedConfig
    flags.refuse_stages(values, what, ("measure", *["tangents"] * single, "figures"))
    if single:
        flags.check_tangents(values, experiment.tangents.enabled)


def experiment_name(config: str) -> str:
    """Name an experiment's folder: decoder_small.py:tiny -> decoder_small_tiny."""
    path, _, argument = config.partition(":")
    argument = pathlib.Path(argument).name if pathlib.Path(argument).exists() else argument
    words = pathlib.Path(path).stem, re.sub(r"[^\w.=-]+", "_", argument).strip("_.")
    return "_".join(filter(None, words))
