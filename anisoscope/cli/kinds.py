"""The kinds of experiments, an entry each: how one is checked, what a dry run says of it, and how it is run.

What works on them is imported late: a wrong setting is told without waiting for what trains, measures and draws.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from anisoscope.cli import explained, flags, listing, options
from anisoscope.cli.request import Request
from anisoscope.config import curved, pretrained, pretrained_models, untrained, variants, vectors
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


def kind_of(experiment: Any) -> Kind:
    return next(kind for kind in KINDS if kind.config is type(experiment))


def check_training(experiment: Config, request: Request) -> None:
    """Every run by itself, and seeds together."""
    from anisoscope.cli.limits import check_experiment

    runs = variants.expand(experiment, request.settings)
    for config in (*runs.values(), *variants.groups(experiment, request.settings).values()):
        check_experiment(config)
    options.check_tangents(request.given, any(config.tangents.enabled for config in runs.values()))


def dry_run_training(experiment: Config, request: Request) -> None:
    from anisoscope.cli import training

    training.dry_run(experiment, request)


def load_training() -> Runs:
    from anisoscope.cli import training

    return training.run


def without_training(
    config: type,
    words: str,
    check: Callable[[Any], None],
    load: Callable[[], Runs],
    stages: tuple[str, ...] = ("measure", "figures"),
) -> Kind:
    """A kind that trains nothing: in words, what its settings may be, and which stages work on it."""

    def checked(experiment: Any, request: Request) -> None:
        check(experiment)
        options.refuse_training(request.given, words, stages)
        if "tangents" in stages:
            options.check_tangents(request.given, experiment.tangents.enabled)

    return Kind(config, checked, dry_run_untrained, load)


def dry_run_untrained(experiment: Any, request: Request) -> None:
    for line in cost_and_settings(experiment, request):
        print(line)


def cost_and_settings(experiment: Any, request: Request) -> Iterator[str]:
    """Where it would work, what the experiment's file says of its cost, and the settings."""
    yield f"folder: {request.root}"
    path = flags.file_of(request.given.config.partition(":")[0])
    for entry in listing.entries(path.parent):
        if entry.path.name == path.name:
            yield from (f"cost: {size + ': ' if size else ''}{what}" for size, what in entry.cost.items())
    yield from explained.settings(experiment)


def load_untrained_blocks() -> Runs:
    from anisoscope.cli import untrained

    return untrained.untrained_blocks


def load_curved_manifolds() -> Runs:
    from anisoscope.cli import untrained

    return untrained.curved_manifolds


def load_vectors() -> Runs:
    from anisoscope.cli import untrained

    return untrained.vectors_of_file


def load_pretrained() -> Runs:
    from anisoscope.cli import untrained

    return untrained.pretrained_model


def load_pretrained_models() -> Runs:
    from anisoscope.cli import untrained

    return untrained.pretrained_models


KINDS = (
    Kind(Config, check_training, dry_run_training, load_training),
    without_training(UntrainedConfig, "untrained blocks", untrained.check_untrained, load_untrained_blocks),
    without_training(CurvedConfig, "curved manifolds", curved.check_curved, load_curved_manifolds),
    without_training(VectorsConfig, "vectors of a file", vectors.check_vectors, load_vectors),
    without_training(
        PretrainedConfig,
        "pretrained models",
        pretrained.check_pretrained,
        load_pretrained,
        ("measure", "tangents", "figures"),
    ),
    without_training(ModelsConfig, "pretrained models", pretrained_models.check_models, load_pretrained_models),
)
