"""Check the settings of a training run; entries of objectives have checks of their own."""

from anisoscope.config.run_config import RunConfig
from anisoscope.models import model_limits as model_limits
from anisoscope.training.objective import OBJECTIVES
from anisoscope.training.optimizer import OPTIMIZERS, SCHEDULES
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import check_fields, choose, within

MOST_CHECKPOINTS = 10_000  # each has files and folders, and is measured


def check_run(config: RunConfig) -> None:
    """Raise UserError, one line, where a run cannot be trained."""
    train, layers = config.train, config.model.layers
    check_fields(config)
    choose("objective", config.objective, OBJECTIVES)
    choose("train.optimizer", train.optimizer, OPTIMIZERS)
    choose("train.schedule", train.schedule, SCHEDULES)
    model_limits.check_model(config.model)
    if config.evaluate.draws > 1 and config.evaluate.draws % 2:
        why = "two halves of the draws are compared; set 1 or an even number"
        raise UserError(f"evaluate.draws is {config.evaluate.draws}, and {why}")
    within("evaluate.stride", config.evaluate.stride, 1, config.model.context)
    OBJECTIVES[config.objective].check(config.model, config.evaluate.stride)
    if (count := train.steps // config.checkpoint.every) > MOST_CHECKPOINTS:
        what = f"train.steps={train.steps} and checkpoint.every={config.checkpoint.every}"
        limit = f"would save {count:,} checkpoints, and {MOST_CHECKPOINTS:,} is the limit"
        raise UserError(f"{what} {limit}; lower train.steps or raise checkpoint.every")
    if train.other_learning_rate is not None and not train.learning_rate:
        why = "train.other_learning_rate needs train.learning_rate above 0"
        raise UserError(f"train.learning_rate is 0, and {why}")
    if train.batch_size % train.accumulate:
        limit = f"it must divide train.batch_size ({train.batch_size})"
        raise UserError(f"train.accumulate is {train.accumulate}; {limit}")
    for name, used in (("train.penalty", train.penalty), ("watch.every", config.watch.every)):
        if used and train.accumulate > 1:
            why = f"train.accumulate={train.accumulate} splits them; set it to 1"
            raise UserError(f"{name} needs whole batches, and {why}")
    if train.penalty and config.model.width < 2:
        raise UserError("train.penalty compares directions, and model.width is 1; set 2 or more")
    if train.penalty_layers and not train.penalty:
        why = "has no effect while train.penalty is 0; set train.penalty, or leave it out"
        raise UserError(f"train.penalty_layers {why}")
    for layer in train.penalty_layers:
        if layer not in range(layers + 1):
            raise UserError(f"train.penalty_layers has {layer}; pass 0 to model.layers={layers}")
