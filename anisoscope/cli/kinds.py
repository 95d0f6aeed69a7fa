"""The kinds of experiments: how each is checked, and which functions run it."""

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

from anisoscope.cli import flags
from anisoscope.cli.flags import Request
from anisoscope.config import (
    curved_config,
    pretrained_config,
    pretrained_models,
    untrained_config,
    variants,
    vectors_config,
)
from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import check_measure


class Kind(NamedTuple):
    module: str  # of anisoscope.cli; imported late: a wrong setting is refused without waiting
    functions: dict[str, str]  # run, dry_run and verify -> name in that module
    check: Callable[[Any, Request], None]  # UserError, one line, where it cannot be run

    def load(self, work: str) -> Callable[[Any, Request], None]:
        module = importlib.import_module(f"anisoscope.cli.{self.module}")
        return getattr(module, self.functions[work])


def find_kind(experiment: Any) -> Kind:
    return KINDS[type(experiment)]


def check_training(experiment: Config, request: Request) -> None:
    """Check every run by itself, and seeds together."""
    runs = variants.expand(experiment, request.overridden)
    for config in (*runs.values(), *variants.groups(experiment, request.overridden).values()):
        check_experiment(config)
    flags.check_tangents(request.given, any(run.tangents.enabled for run in runs.values()))


def check_experiment(config: Config) -> None:
    """Raise UserError where a run cannot be trained, measured and read for tangents."""
    from anisoscope.subspaces import tangent_limits as tangents
    from anisoscope.training import step_limits as training

    training.check_run(config)
    check_measure(config.measure, config.model.heads, config.train.steps)
    tangents.check_tangents(config, config.tangents)


def without_training(what: str, check: Callable[[Any], None], run: str, *further: str) -> Kind:
    """Make the entry of a kind that trains nothing, with stages apart from measure and figures."""

    def check_request(experiment: Any, request: Request) -> None:
        check(experiment)
        flags.refuse_training(request.given, what, ("measure", *further, "figures"))
        if further:
            flags.check_tangents(request.given, experiment.tangents.enabled)

    functions = {"run": run, "dry_run": "dry_run", "verify": "verify"}
    return Kind("untrained_stage", functions, check_request)


KINDS = {
    Config: Kind(
        "training_stages", {"run": "run", "dry_run": "dry_run", "verify": "run"}, check_training
    ),
    untrained_config.UntrainedConfig: without_training(
        "untrained blocks", untrained_config.check_untrained, "untrained_blocks"
    ),
    curved_config.CurvedConfig: without_training(
        "curved manifolds", curved_config.check_curved, "curved_manifolds"
    ),
    vectors_config.VectorsConfig: without_training(
        "vectors of a file", vectors_config.check_vectors, "vectors_of_file"
    ),
    pretrained_config.PretrainedConfig: without_training(
        "pretrained models", pretrained_config.check_pretrained, "pretrained_model", "tangents"
    ),
    pretrained_models.ModelsConfig: without_training(
        "pretrained models", pretrained_models.check_models, "pretrained_models"
    ),
}
