"""The kinds of experiments, an entry each: how one is checked, what a dry run says of it, and how it is run.

What works on them is imported late: a wrong setting is told without waiting for what trains, measures and draws.
"""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from anisoscope.cli import explained, flags, options
from anisoscope.cli.options import Request
from anisoscope.config import curved, measure, pretrained, pretrained_models, untrained, variants, vectors
from anisoscope.config.curved import CurvedConfig
from anisoscope.config.experiment import Config
from anisoscope.config.pretrained import PretrainedConfig
from anisoscope.config.pretrained_models import ModelsConfig
from anisoscope.config.untrained import UntrainedConfig
from anisoscope.config.vectors import VectorsConfig

Runs = Callable[[Any, Request], None]


class Kind(NamedTuple):
    config: type
    check: Runs  # UserError, one line, where it cannot be run so
    dry_run: Runs  # --dry_run: prints what would be done, and does nothing
    load: Callable[[], Runs]  # imports what runs it, which takes seconds, and gives that
    verify: Callable[[], Runs]  # the same for the stage of this name


def late(module: str, name: str) -> Callable[[], Runs]:
    """A function of this package, imported when it is asked for."""
    return lambda: getattr(importlib.import_module(f"anisoscope.cli.{module}"), name)


def kind_of(experiment: Any) -> Kind:
    return next(kind for kind in KINDS if kind.config is type(experiment))


def check_training(experiment: Config, request: Request) -> None:
    """Every run by itself, and seeds together."""
    runs = variants.expand(experiment, request.settings)
    for config in (*runs.values(), *variants.groups(experiment, request.settings).values()):
        check_experiment(config)
    options.check_tangents(request.given, any(config.tangents.enabled for config in runs.values()))


def check_experiment(config: Config) -> None:
    """Raise UserError, one line, where it cannot be trained, measured and read for tangents."""
    from anisoscope.tangents import limits as tangents
    from anisoscope.training import limits as training

    training.check_run(config)
    measure.check_measure(config.measure, config.model.heads, config.train.steps)
    tangents.check_tangents(config, config.tangents)


def without_training(
    config: type,
    words: str,
    check: Callable[[Any], None],
    run: str,
    stages: tuple[str, ...] = ("measure", "figures"),
) -> Kind:
    """A kind that trains nothing: in words, what its settings may be, who runs it, and which stages work on it."""

    def checked(experiment: Any, request: Request) -> None:
        check(experiment)
        options.refuse_training(request.given, words, stages)
        if "tangents" in stages:
            options.check_tangents(request.given, experiment.tangents.enabled)

    return Kind(config, checked, dry_run_untrained, late("untrained", run), late("untrained", "verify"))


def dry_run_untrained(experiment: Any, request: Request) -> None:
    """Where it would work, what the experiment's file says of its cost, and the settings."""
    print(f"folder: {request.root}")
    path = flags.file_of(request.given.config.partition(":")[0])
    for entry in explained.entries(path.parent):
        if entry.path.name == path.name:
            for size, what in entry.cost.items():
                print(f"cost: {size + ': ' if size else ''}{what}")
    print(*explained.settings(experiment), sep="\n")


KINDS = (
    Kind(
        Config,
        check_training,
        lambda experiment, request: late("training", "dry_run")()(experiment, request),
        *[late("training", "run")] * 2,
    ),
    without_training(UntrainedConfig, "untrained blocks", untrained.check_untrained, "untrained_blocks"),
    without_training(CurvedConfig, "curved manifolds", curved.check_curved, "curved_manifolds"),
    without_training(VectorsConfig, "vectors of a file", vectors.check_vectors, "vectors_of_file"),
    without_training(
        PretrainedConfig,
        "pretrained models",
        pretrained.check_pretrained,
        "pretrained_model",
        ("measure", "tangents", "figures"),
    ),
    without_training(ModelsConfig, "pretrained models", pretrained_models.check_models, "pretrained_models"),
)
