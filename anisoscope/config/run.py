"""How a run is trained: every setting and its default, and all that a training run is made of."""

from dataclasses import dataclass, field

from anisoscope.config.data import DataConfig
from anisoscope.config.model import ModelConfig
from anisoscope.utils.errors import UserError
from anisoscope.utils.layout import MeshConfig

MOST_SEEDS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    steps: int = 10_000  # updates; what is trained on is steps × batch_size windows
    batch_size: int = 64  # windows per step, over all devices
    optimizer: str = "adamw"  # an entry of training/optimizer.py
    learning_rate: float = 1e-3  # at the end of the warm-up; of muon and sgd that of the blocks' matrices
    rest_learning_rate: float | None = None  # of what is no matrix of a block; left out: adamw the same, else a tenth
    schedule: str = "cosine"  # decay after the warm-up; constant: none before the last decay_fraction of the steps
    warmup_fraction: float = 0.05  # of the steps, linear from 0
    decay_fraction: float = 0.2  # schedule=constant: of the steps, linear, at the end
    final_fraction: float = 0.1  # decay ends at this fraction of the learning rate
    weight_decay: float = 0.1  # on matrices only; a step takes this × the learning rate of the rest
    beta1: float = 0.9  # decay of the mean of gradients, under AdamW
    beta2: float = 0.99  # decay of the mean of their squares, under AdamW
    clip_norm: float = 1.0  # global gradient norm; 0 for none
    penalty: float = 0.0  # weight of 1 - IsoScore* of the residual stream in the training loss; < 0 rewards anisotropy
    penalty_layers: tuple[int, ...] = ()  # 0 is the embedding, l is after block l; none given: after every block
    accumulate: int = 1  # micro-batches per step
    skip_nonfinite: int = 0  # updates in a row that may be left out as not finite; 0: the first one ends the run
    dispatch: int = 32  # at most this many steps per call to the device
    log_every: int = 10  # steps between lines of the log
    seed: int = 0  # initial parameters
    data_seed: int | None = None  # windows and masked characters; left out: as seed
    num_seeds: int = 1  # weight seeds seed, seed + 1 … each with every data seed: runs that are trained together
    num_data_seeds: int | None = None  # data seeds data_seed, data_seed + 1 …; left out: as many as num_seeds


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig:
    every: int = 250  # steps between validations; also where a checkpoint is kept, or the decay of the rate begins
    windows: int = 64  # fixed validation windows
    draws: int = 16  # masked characters: how often they are drawn in each validation window; 1 or an even number
    stride: int | None = None  # test protocol of objective=next: new characters per window; left out: half the context


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    every: int = 1000  # beside 0, 1, 2, 4 ... 512 and the last step


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchConfig:
    """Cheap geometry of training batches, in the log (training/watch.py)."""

    every: int = 0  # steps from one look to the next; 0: none. 16 takes about 1 % of the time
    points: int = 256  # positions of the batch that make up a cloud
    keep: str = ""  # a watched quantity: where its mean over blocks turns, a checkpoint beyond the schedule is kept
    keep_share: float = 0.2  # it has turned when it has come back by this share of its range so far


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One training run; `anisoscope.config.experiment.Config` adds what is measured of it."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: str = "next"  # next (character) or masked (characters)
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)


def seeds(train: TrainConfig) -> list[tuple[int, int]]:
    """(weight seed, data seed) of every run, weight seed by weight seed."""
    first = train.seed if train.data_seed is None else train.data_seed
    count = train.num_seeds if train.num_data_seeds is None else train.num_data_seeds
    for name, value in (("num_seeds", train.num_seeds), ("num_data_seeds", count)):
        if value < 1:
            raise UserError(f"train.{name} is {value}; it must be at least 1")
    if train.num_seeds * count > MOST_SEEDS:
        raise UserError(f"train.num_seeds × num_data_seeds is {train.num_seeds} × {count}; {MOST_SEEDS} runs at most")
    return [(train.seed + i, first + j) for i in range(train.num_seeds) for j in range(count)]


def schedule(steps: int, every: int) -> list[int]:
    """Steps kept for good: 0, 1, 2, 4 … 512, then every `every`-th, and the last."""
    powers = [2**i for i in range(10)]
    return sorted({0, *(p for p in powers if p <= steps), *range(every, steps + 1, every), steps})
