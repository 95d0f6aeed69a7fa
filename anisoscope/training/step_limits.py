"""What the settings of a training run may be. Of an objective or an optimizer, their entry is
asked.
"""

from anisoscope.config import data_config as data_config
from anisoscope.config.run_config import RunConfig
from anisoscope.models import model_limits as model_limits
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.optimizer import OPTIMIZERS, SCHEDULES
from anisoscope.utils import layout
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import check_fields, choose, within

MOST_STEPS = 2**31 - 1  # counted in int32
MOST_CHECKPOINTS = 10_000  # files and folders; each is measured


def check_run(config: RunConfig) -> None:
    """Raise UserError, one line, where a run cannot be trained."""
    check_fields(config)
    choose("objective", config.objective, OBJECTIVES)
    choose("train.optimizer", config.train.optimizer, OPTIMIZERS)
    choose("train.schedule", config.train.schedule, SCHEDULES)
    data_config.check_data(config.data)
    model_limits.check_model(config.model)
    layout.check_mesh(config.mesh)
    if config.evaluate.draws > 1 and config.evaluate.draws % 2:
        raise UserError(
            f"evaluate.draws is {config.evaluate.draws}; two halves are compared: 1 or an even number"
        )
    within("evaluate.stride", config.evaluate.stride, 1, config.model.context)
    OBJECTIVES[config.objective].check(config.model, config.evaluate.stride)
    _check_train(config)
    _check_watch(config)


def _check_train(config: RunConfig) -> None:
    train, layers = config.train, config.model.layers
    if (count := train.steps // config.checkpoint.every) > MOST_CHECKPOINTS:
        words = f"would keep {count:,} checkpoints, {MOST_CHECKPOINTS:,} at most: lower the first or raise the second"
        raise UserError(
            f"train.steps={train.steps} and checkpoint.every={config.checkpoint.every} {words}"
        )
    if train.rest_learning_rate is not None and not train.learning_rate:
        raise UserError(
            "train.learning_rate is 0, and train.rest_learning_rate is given; set the first above 0"
        )
    if train.batch_size % train.accumulate:
        raise UserError(
            f"train.accumulate is {train.accumulate}; it must divide train.batch_size ({train.batch_size})"
        )
    if train.penalty and train.accumulate > 1:
        words = f"it does not go with train.accumulate={train.accumulate}"
        raise UserError(f"train.penalty scores the whole batch; {words}")
    if train.penalty and config.model.width < 2:
        raise UserError("train.penalty needs directions to compare: model.width is 1")
    if train.penalty_layers and not train.penalty:
        raise UserError(
            "train.penalty_layers does nothing while train.penalty is 0; set that, or leave it out"
        )
    for layer in train.penalty_layers:
        if layer not in range(layers + 1) or train.penalty_layers.count(layer) > 1:
            raise UserError(
                f"train.penalty_layers has {layer!r}; give each once, 0 to model.layers={layers}"
            )


def _check_watch(config: RunConfig) -> None:
    watch, train = config.watch, config.train
    if watch.every and train.accumulate > 1:
        raise UserError(
            f"watch.every looks at whole batches; it does not go with train.accumulate={train.accumulate}"
        )
