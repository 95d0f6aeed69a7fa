"""What a run can be: `validate` refuses the settings that cannot be trained or measured."""

from errors import UserError
from experiments.base import (
    ATTENTIONS,
    DTYPES,
    FAMILIES,
    MASKS,
    NORMS,
    NULLS,
    OBJECTIVES,
    POSITIONS,
    SOURCES,
    Config,
)

LARGEST_SEED = 2**32 - 1


def validate(config: Config) -> None:
    """Raise UserError, one line, where a single-run config cannot be trained or measured."""
    _validate_choices(config)
    _validate_ranges(config)
    _validate_model(config)
    _validate_mask(config)
    _validate_train(config)
    _validate_measure(config)


def _validate_choices(config: Config) -> None:
    model, measure = config.model, config.measure
    for name, value, allowed in (
        ("data.source", config.data.source, SOURCES),
        ("model.mask", model.mask, MASKS),
        ("model.attention", model.attention, ATTENTIONS),
        ("model.norm", model.norm, NORMS),
        ("model.positions", model.positions, POSITIONS),
        ("model.dtype", model.dtype, DTYPES),
        ("objective", config.objective, OBJECTIVES),
        *(("measure.families", family, FAMILIES) for family in measure.families),
        *(("measure.nulls", null, NULLS) for null in measure.nulls),
    ):
        if value not in allowed:
            raise UserError(f"{name} is {value!r}; choose one of {', '.join(allowed)}")


def _validate_ranges(config: Config) -> None:
    model, train, measure = config.model, config.train, config.measure
    for name, value, least in (
        ("model.layers", model.layers, 1),
        ("model.width", model.width, 1),
        ("model.heads", model.heads, 1),
        ("model.context", model.context, 2),
        ("model.expansion", model.expansion, 1),
        ("train.steps", train.steps, 0),
        ("train.batch_size", train.batch_size, 1),
        ("train.accumulate", train.accumulate, 1),
        ("train.dispatch", train.dispatch, 1),
        ("train.log_every", train.log_every, 1),
        ("evaluate.every", config.evaluate.every, 1),
        ("evaluate.windows", config.evaluate.windows, 1),
        ("checkpoint.every", config.checkpoint.every, 1),
        ("measure.points", measure.points, 8),
        ("measure.batches", measure.batches, 1),
        ("measure.groups", measure.groups, 1),
        ("mesh.fsdp", config.mesh.fsdp, 1),
        ("mesh.members", 1 if config.mesh.members is None else config.mesh.members, 1),
    ):
        if value < least:
            raise UserError(f"{name} is {value}; it must be at least {least}")
    for name, value, low, high in (
        ("train.learning_rate", train.learning_rate, 0.0, 1e30),
        ("train.warmup_fraction", train.warmup_fraction, 0.0, 1.0),
        ("train.final_fraction", train.final_fraction, 0.0, 1.0),
        ("train.weight_decay", train.weight_decay, 0.0, 1e30),
        ("train.beta1", train.beta1, 0.0, 0.999999),
        ("train.beta2", train.beta2, 0.0, 0.999999),
        ("train.clip_norm", train.clip_norm, 0.0, 1e30),
        ("train.penalty", train.penalty, -1e30, 1e30),
        ("train.seed", train.seed, 0, LARGEST_SEED),
        ("train.data_seed", train.data_seed or 0, 0, LARGEST_SEED),
        ("model.leak", model.leak, 0.0, 1.0),
        ("model.leak_seed", model.leak_seed, 0, LARGEST_SEED),
        ("measure.seed", measure.seed, 0, LARGEST_SEED),
    ):
        if not low <= value <= high:
            raise UserError(f"{name} is {value}; it must lie in [{low}, {high}]")


def _validate_model(config: Config) -> None:
    model = config.model
    if model.width % model.heads:
        raise UserError(f"model.heads is {model.heads}; it must divide model.width ({model.width})")
    if model.positions == "rotary" and (model.width // model.heads) % 2:
        raise UserError(f"model.positions=rotary needs an even head width; width/heads is {model.width // model.heads}")
    if model.sink and model.attention != "softmax":
        raise UserError(f"model.sink is one more key of a softmax; it does not go with attention={model.attention}")


def _validate_mask(config: Config) -> None:
    """Each mask has its own setting; and a next character that is shown is no task.

    A leak shows targets through other positions where not directly: one pair in a hundred leaves none hidden inside a
    window of 256 from 4 layers on.
    """
    model = config.model
    for mask in ("prefix", "window"):
        value = getattr(model, mask)
        if model.mask == mask and not 1 <= value <= model.context:
            raise UserError(f"model.{mask} is {value}; model.mask={mask} needs 1 to model.context={model.context}")
    for mask in ("prefix", "window", "leak"):
        if model.mask != mask and getattr(model, mask) != 0:
            raise UserError(f"model.{mask} does nothing under model.mask={model.mask}; leave it 0 or set mask={mask}")
    if config.objective != "next":
        return
    if model.mask == "bidirectional" or model.leak > 0 or (model.mask == "prefix" and model.prefix == model.context):
        raise UserError(f"objective=next under model.mask={model.mask} shows the answer; use objective=masked")
    if model.mask == "prefix" and (config.evaluate.stride or 1) > model.context - model.prefix + 1:
        most = model.context - model.prefix + 1
        raise UserError(f"evaluate.stride is {config.evaluate.stride}; the prefix leaves {most} targets hidden at most")


def _validate_train(config: Config) -> None:
    train, layers, stride = config.train, config.model.layers, config.evaluate.stride
    if train.batch_size % train.accumulate:
        raise UserError(f"train.accumulate is {train.accumulate}; it must divide train.batch_size ({train.batch_size})")
    if train.penalty and train.accumulate > 1:
        raise UserError(
            f"train.penalty scores the whole batch; it does not go with train.accumulate={train.accumulate}"
        )
    for layer in train.penalty_layers:
        if layer not in range(layers + 1) or train.penalty_layers.count(layer) > 1:
            raise UserError(f"train.penalty_layers has {layer!r}; give each once, 0 to model.layers={layers}")
    if config.mesh.data != -1 and config.mesh.data < 1:
        raise UserError(f"mesh.data is {config.mesh.data}; it must be at least 1, or -1 for all devices")
    if stride is not None and not 1 <= stride <= config.model.context:
        raise UserError(f"evaluate.stride is {stride}; it must lie in [1, model.context={config.model.context}]")


def _validate_measure(config: Config) -> None:
    measure, heads = config.measure, config.model.heads
    for name, chosen in (("measure.families", measure.families), ("measure.nulls", measure.nulls)):
        if len(set(chosen)) < len(chosen):
            raise UserError(f"{name} is {chosen}; name each once")
    if not measure.families:
        raise UserError(f"measure.families is empty; choose from {', '.join(FAMILIES)}")
    if measure.families == ("projection",):
        raise UserError("measure.families=projection keeps vectors and no numbers; name another family beside it")
    if not 0 <= measure.projected_head < heads:
        raise UserError(f"measure.projected_head is {measure.projected_head}; model.heads={heads}, from 0 on")
    if measure.points % measure.groups:
        raise UserError(f"measure.groups is {measure.groups}; it must divide measure.points ({measure.points})")
