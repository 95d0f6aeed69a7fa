"""The configuration schema: every setting of a run, its default (stated here and nowhere else) and its limits.

An experiment file defines `get_config()` and returns a `Config`. An experiment of several runs names them in
`variants`: name -> {dotted field: value}, applied over the shared settings. A variant of several seeds is several runs,
its members: `expand` gives them all.
"""

import dataclasses
import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin, get_type_hints

from errors import UserError

LARGEST_SEED = 2**32 - 1
MOST_MEMBERS = 1024
SOURCES = ("enwik8", "pydoc")
MASKS = ("causal", "bidirectional", "prefix", "window", "leak")
ATTENTIONS = ("softmax", "softmax_one", "sigmoid")
NORMS = ("pre", "post")
POSITIONS = ("learned", "rotary")
DTYPES = ("auto", "float32", "bfloat16")
OBJECTIVES = ("next", "masked")
FAMILIES = ("spectrum", "outliers", "dimension", "scale", "similarity", "comparison", "attention", "projection")
NULLS = ("gaussian", "shuffled", "untrained")


@dataclass(slots=True, kw_only=True)
class DataConfig:
    source: str = "enwik8"  # enwik8, or pydoc (the language reference inside every CPython, needs no network)
    path: str | None = None  # a local copy of enwik8, or any text: plain, .zip, .gz, .bz2 or .xz
    clean: bool = False  # strip markup, code and media, as The Shape of Learning does
    cache: str = "~/.cache/anisoscope"  # where a downloaded enwik8 is kept


@dataclass(slots=True, kw_only=True)
class ModelConfig:
    layers: int = 6
    width: int = 512
    heads: int = 8
    context: int = 512
    expansion: int = 4  # feed-forward width / width
    mask: str = "causal"  # the keys a query sees: causal (decoder), bidirectional (encoder), prefix, window or leak
    prefix: int = 0  # mask=prefix: causal, and this many first positions are seen by all
    window: int = 0  # mask=window: causal, but only this many last positions, the query's own among them
    leak: float = 0.0  # mask=leak: causal, and this fraction of the pairs (query, later key), the same everywhere
    leak_seed: int = 0  # mask=leak: which pairs
    attention: str = "softmax"  # softmax; softmax_one, with 1 more in the denominator; or sigmoid, each key for itself
    qk_norm: bool = False  # LayerNorm of queries and keys over the head width, with a learned scale
    centre_queries: bool = False  # take from each query the mean query of the positions it sees
    sink: bool = False  # a learned key and value per head, seen by all, that belong to no position
    norm: str = "pre"  # LayerNorm before each sublayer (GPT-2) or after the residual sum (BERT)
    positions: str = "learned"  # learned embeddings or rotary
    tied: bool = True  # the output head is the embedding table
    bias: bool = True  # biases in linear layers and LayerNorm
    remat: bool = False  # recompute activations in the backward pass: less memory, more time
    dtype: str = "auto"  # compute type; auto: float32 on a CPU, bfloat16 on an accelerator


@dataclass(slots=True, kw_only=True)
class TrainConfig:
    steps: int = 10_000
    batch_size: int = 64  # windows per step, over all devices
    learning_rate: float = 1e-3  # at the end of the warm-up
    warmup_fraction: float = 0.05  # of the steps, linear from 0
    final_fraction: float = 0.1  # cosine decay ends at this fraction of the learning rate
    weight_decay: float = 0.1  # on matrices only
    beta1: float = 0.9
    beta2: float = 0.99
    clip_norm: float = 1.0  # global gradient norm; 0 for none
    penalty: float = 0.0  # weight of 1 - IsoScore* of the residual stream in the training loss; < 0 rewards anisotropy
    penalty_layers: tuple[int, ...] = ()  # 0 is the embedding, l is after block l; none given: after every block
    accumulate: int = 1  # micro-batches per step
    dispatch: int = 32  # at most this many steps per call to the device
    log_every: int = 10
    seed: int = 0  # initial parameters
    data_seed: int | None = None  # windows and masked characters; left out: as seed
    num_seeds: int = 1  # weight seeds seed, seed + 1 … each with every data seed: runs that are trained together
    num_data_seeds: int | None = None  # data seeds data_seed, data_seed + 1 …; left out: as many as num_seeds


@dataclass(slots=True, kw_only=True)
class EvaluateConfig:
    every: int = 250  # steps between validations
    windows: int = 64  # fixed validation windows
    stride: int | None = None  # test protocol: new characters per window; left out: half the context


@dataclass(slots=True, kw_only=True)
class CheckpointConfig:
    every: int = 1000  # beside 0, 1, 2, 4 ... 512 and the last step


@dataclass(slots=True, kw_only=True)
class MeasureConfig:
    points: int = 4096  # vectors per cloud
    batches: int = 4  # clouds per checkpoint, over disjoint windows
    groups: int = 8  # groups of whole windows in a batch, resampled for the intervals; 1: by batches alone
    families: tuple[str, ...] = FAMILIES
    nulls: tuple[str, ...] = NULLS  # what every value is compared with
    projected_head: int = 0  # family projection: whose queries and keys are kept, the same head of every block
    seed: int = 0  # which validation windows and positions are probed


@dataclass(slots=True, kw_only=True)
class MeshConfig:
    data: int = -1  # devices that split the batch; -1: all that fsdp leaves
    fsdp: int = 1  # devices that split parameters and batch
    members: int | None = None  # seeds worked on at a time (vmapped); left out: 1 on a CPU, all on an accelerator


@dataclass(slots=True, kw_only=True)
class Config:
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: str = "next"  # next character, or masked character
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict)


def expand(config: Config, overridden: Iterable[str] = ()) -> dict[str, Config]:
    """The runs of an experiment, variants × members: {name: single-run Config}; a plain config is the one run named ''.

    A field that the variants set must not be among the `overridden`: it would have no effect.
    """
    runs = {}
    for variant, varied in groups(config, overridden).items():
        for name, run in run_names(variant, members(varied)).items():
            if name in runs:
                raise UserError(f"two runs of this experiment are named {name}; rename the variant {variant}")
            runs[name] = run
    return runs


def run_names(variant: str, configs: dict[str, Config]) -> dict[str, Config]:
    """The members of a variant by the names of their runs, which are those of their folders."""
    return {"_".join(filter(None, (variant, member))): config for member, config in configs.items()}


def members(config: Config) -> dict[str, Config]:
    """Every weight seed with every data seed of a variant, as single runs: {"weights_0_data_0": Config, …}.

    They differ in seeds alone and are trained together. A config of one seed is its own only member, named ''.
    """
    pairs = seeds(config.train)
    if len(pairs) == 1:
        return {"": config}
    single = {"num_seeds": 1, "num_data_seeds": None}
    runs = {}
    for weights, data in pairs:
        values = to_dict(config)
        values["train"] |= single | {"seed": weights, "data_seed": data}
        runs[f"weights_{weights}_data_{data}"] = from_dict(values)
    return runs


def seeds(train: TrainConfig) -> list[tuple[int, int]]:
    """(weight seed, data seed) of every member, weight seed by weight seed."""
    first = train.seed if train.data_seed is None else train.data_seed
    count = train.num_seeds if train.num_data_seeds is None else train.num_data_seeds
    for name, value in (("num_seeds", train.num_seeds), ("num_data_seeds", count)):
        if value < 1:
            raise UserError(f"train.{name} is {value}; it must be at least 1")
    if train.num_seeds * count > MOST_MEMBERS:
        raise UserError(f"train.num_seeds × num_data_seeds is {train.num_seeds} × {count}; {MOST_MEMBERS} runs at most")
    return [(train.seed + i, first + j) for i in range(train.num_seeds) for j in range(count)]


def groups(config: Config, overridden: Iterable[str] = ()) -> dict[str, Config]:
    """The variants of an experiment, each of one seed or several: {name: Config}; a plain config is named ''."""
    if not config.variants:
        return {"": config}
    configs = {}
    for name, changes in config.variants.items():
        if not name.isidentifier():
            raise UserError(f"variant {name!r}: a run's name becomes a folder; use letters, digits and _")
        values = to_dict(config) | {"variants": {}}
        for path, value in changes.items():
            if path in overridden:
                raise UserError(f"--config.{path} differs between the runs of this experiment and cannot be overridden")
            *groups, leaf = path.split(".")
            target = values
            for group in groups:
                target = target.get(group) if isinstance(target, dict) else None
            if not isinstance(target, dict):
                raise UserError(f"variant {name!r}: there is no config field {path}")
            target[leaf] = value
        configs[name] = from_dict(values)
    return configs


def to_dict(config: Config) -> dict[str, Any]:
    """Nested plain dict, as JSON would hold it (tuples become lists)."""
    return json.loads(json.dumps(dataclasses.asdict(config)))


def flat(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested settings by dotted name."""
    found = {}
    for name, value in values.items():
        found |= flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found


def from_dict(values: dict[str, Any], kind: type = Config, where: str = "") -> Any:
    """Rebuild a config dataclass; an unknown, missing or ill-typed field is a UserError."""
    hints = get_type_hints(kind)
    for name in (*values.keys() - hints.keys(), *hints.keys() - values.keys()):
        raise UserError(f"config field {where}{name} is {'unknown' if name in values else 'missing'}")
    made = {}
    for name, hint in hints.items():
        value = values[name]
        if dataclasses.is_dataclass(hint):
            value = from_dict(value, hint, f"{where}{name}.")
        elif get_origin(hint) is tuple and _is_tuple_of(get_args(hint)[0], value):
            value = tuple(value)
        elif hint is float and type(value) is int:
            value = float(value)
        elif not _has_type(value, hint):
            raise UserError(f"config field {where}{name} is {value!r}, not {getattr(hint, '__name__', hint)}")
        made[name] = value
    return kind(**made)


def _is_tuple_of(kind: type, value: Any) -> bool:
    return isinstance(value, list | tuple) and all(type(item) is kind for item in value)


def _has_type(value: Any, hint: Any) -> bool:
    if hint == dict[str, dict[str, Any]]:
        return isinstance(value, dict)
    if isinstance(hint, type):
        return type(value) is hint
    return get_origin(hint) is not tuple and any(type(value) is option for option in get_args(hint))


def validate(config: Config) -> None:
    """Raise UserError, one line, where a single-run config cannot be trained or measured."""
    model, train, measure = config.model, config.train, config.measure
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
    for name, chosen in (("measure.families", measure.families), ("measure.nulls", measure.nulls)):
        if len(set(chosen)) < len(chosen):
            raise UserError(f"{name} is {chosen}; name each once")
    if not measure.families:
        raise UserError(f"measure.families is empty; choose from {', '.join(FAMILIES)}")
    if measure.families == ("projection",):
        raise UserError("measure.families=projection keeps vectors and no numbers; name another family beside it")
    if not 0 <= measure.projected_head < model.heads:
        raise UserError(f"measure.projected_head is {measure.projected_head}; model.heads={model.heads}, from 0 on")
    if measure.points % measure.groups:
        raise UserError(f"measure.groups is {measure.groups}; it must divide measure.points ({measure.points})")
    if model.width % model.heads:
        raise UserError(f"model.heads is {model.heads}; it must divide model.width ({model.width})")
    if model.positions == "rotary" and (model.width // model.heads) % 2:
        raise UserError(f"model.positions=rotary needs an even head width; width/heads is {model.width // model.heads}")
    if train.batch_size % train.accumulate:
        raise UserError(f"train.accumulate is {train.accumulate}; it must divide train.batch_size ({train.batch_size})")
    if config.mesh.data != -1 and config.mesh.data < 1:
        raise UserError(f"mesh.data is {config.mesh.data}; it must be at least 1, or -1 for all devices")
    if config.evaluate.stride is not None and not 1 <= config.evaluate.stride <= model.context:
        raise UserError(
            f"evaluate.stride is {config.evaluate.stride}; it must lie in [1, model.context={model.context}]"
        )
    _validate_mask(config)
    if model.sink and model.attention != "softmax":
        raise UserError(f"model.sink is one more key of a softmax; it does not go with attention={model.attention}")
    if train.penalty and train.accumulate > 1:
        raise UserError(
            f"train.penalty scores the whole batch; it does not go with train.accumulate={train.accumulate}"
        )
    for layer in train.penalty_layers:
        if layer not in range(model.layers + 1) or train.penalty_layers.count(layer) > 1:
            raise UserError(f"train.penalty_layers has {layer!r}; give each once, 0 to model.layers={model.layers}")


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
