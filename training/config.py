"""How a run is trained: every setting and its default, and all that a training run is made of."""

from dataclasses import dataclass, field

from data import config as data_config
from data.config import DataConfig
from models import config as model_config
from models.config import ModelConfig
from workdir import mesh
from workdir.errors import UserError
from workdir.mesh import MeshConfig
from workdir.settings import LARGEST_SEED, at_least, choose, within

OBJECTIVES = ("next", "masked")
MOST_MEMBERS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig:
    every: int = 250  # steps between validations
    windows: int = 64  # fixed validation windows
    stride: int | None = None  # test protocol: new characters per window; left out: half the context


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    every: int = 1000  # beside 0, 1, 2, 4 ... 512 and the last step


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One training run; `experiments.config.Config` adds what is measured of it."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: str = "next"  # next character, or masked character
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)


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


def check(config: RunConfig) -> None:
    """Raise UserError, one line, where a run cannot be trained."""
    data_config.check(config.data)
    model_config.check(config.model)
    mesh.check(config.mesh)
    choose("objective", config.objective, OBJECTIVES)
    _check_objective(config)
    _check_train(config)
    for name, value in (("evaluate.every", config.evaluate.every), ("evaluate.windows", config.evaluate.windows)):
        at_least(name, value, 1)
    within("evaluate.stride", config.evaluate.stride, 1, config.model.context)
    at_least("checkpoint.every", config.checkpoint.every, 1)


def _check_objective(config: RunConfig) -> None:
    """A next character that is shown is no task.

    A leak shows targets through other positions where not directly: one pair in a hundred leaves none hidden inside a
    window of 256 from 4 layers on.
    """
    model = config.model
    if config.objective != "next":
        return
    if model.mask == "bidirectional" or model.leak > 0 or (model.mask == "prefix" and model.prefix == model.context):
        raise UserError(f"objective=next under model.mask={model.mask} shows the answer; use objective=masked")
    if model.mask == "prefix" and (config.evaluate.stride or 1) > model.context - model.prefix + 1:
        most = model.context - model.prefix + 1
        raise UserError(f"evaluate.stride is {config.evaluate.stride}; the prefix leaves {most} targets hidden at most")


def _check_train(config: RunConfig) -> None:
    train, layers = config.train, config.model.layers
    at_least("train.steps", train.steps, 0)
    for name in ("batch_size", "accumulate", "dispatch", "log_every"):
        at_least(f"train.{name}", getattr(train, name), 1)
    for name, low, high in (
        ("learning_rate", 0.0, 1e30),
        ("warmup_fraction", 0.0, 1.0),
        ("final_fraction", 0.0, 1.0),
        ("weight_decay", 0.0, 1e30),
        ("beta1", 0.0, 0.999999),
        ("beta2", 0.0, 0.999999),
        ("clip_norm", 0.0, 1e30),
        ("penalty", -1e30, 1e30),
        ("seed", 0, LARGEST_SEED),
        ("data_seed", 0, LARGEST_SEED),
    ):
        within(f"train.{name}", getattr(train, name), low, high)
    if train.batch_size % train.accumulate:
        raise UserError(f"train.accumulate is {train.accumulate}; it must divide train.batch_size ({train.batch_size})")
    if train.penalty and train.accumulate > 1:
        raise UserError(
            f"train.penalty scores the whole batch; it does not go with train.accumulate={train.accumulate}"
        )
    for layer in train.penalty_layers:
        if layer not in range(layers + 1) or train.penalty_layers.count(layer) > 1:
            raise UserError(f"train.penalty_layers has {layer!r}; give each once, 0 to model.layers={layers}")
