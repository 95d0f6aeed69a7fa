"""How a run is trained: every setting and its default, and all that a training run is made of."""

from dataclasses import dataclass, field

from anisoscope.config.data_config import DataConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.utils.errors import UserError
from anisoscope.utils.layout import MeshConfig
from anisoscope.utils.settings import LARGEST_SEED, setting, within

MOST_SEEDS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    steps: int = setting(10_000, "updates, of batch_size windows each", low=0, high=LARGEST_SEED)
    batch_size: int = setting(64, "windows per step, over all devices", low=1)
    optimizer: str = setting(
        "adamw", "adamw, muon or sgd; muon and sgd for the matrices of blocks, AdamW for the rest"
    )
    learning_rate: float = setting(
        1e-3, "at the end of the warm-up; of muon and sgd the blocks' matrices'", low=0, high=1e30
    )
    other_learning_rate: float | None = setting(
        None, "of the rest; left out: with adamw the same, else a tenth", low=0, high=1e30
    )
    schedule: str = setting("cosine", "cosine decay, or constant with a decay at the end")
    warmup_fraction: float = setting(0.05, "of the steps, linear from 0", low=0, high=1)
    decay_fraction: float = setting(
        0.2, "schedule=constant: of the steps, at the end", low=0, high=1
    )
    final_fraction: float = setting(0.1, "of the learning rate, at the end", low=0, high=1)
    weight_decay: float = setting(0.1, "on matrices only, × the rate of the rest", low=0, high=1e30)
    beta1: float = setting(0.9, "decay of the mean of gradients, AdamW", low=0, high=0.999999)
    beta2: float = setting(0.99, "decay of the mean of squares, AdamW", low=0, high=0.999999)
    clip_norm: float = setting(1.0, "global gradient norm; 0 for none", low=0, high=1e30)
    penalty: float = setting(
        0.0, "weight of 1 - IsoScore* of the residual stream in the loss", low=-1e30, high=1e30
    )
    penalty_layers: tuple[int, ...] = setting(
        (), "0: embedding, l: after block l; (): all blocks", low=0
    )
    accumulate: int = setting(1, "micro-batches per step", low=1)
    skip_nonfinite: int = setting(
        0, "updates in a row that may be left out as not finite", low=0, high=LARGEST_SEED
    )
    steps_per_call: int = setting(32, "most steps per call to the device", low=1, high=100_000)
    log_every: int = setting(10, "steps between lines of the log", low=1)
    seed: int = setting(0, "initial parameters", low=0, high=LARGEST_SEED)
    data_seed: int | None = setting(
        None, "of windows and masks; left out: seed", low=0, high=LARGEST_SEED
    )
    num_seeds: int = setting(1, "weight seeds seed, seed + 1 …, each with every data seed", low=1)
    num_data_seeds: int | None = setting(
        None, "data seeds data_seed, …; left out: as many as num_seeds", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig:
    every: int = setting(250, "steps between validations; more stand at checkpoints", low=1)
    windows: int = setting(64, "fixed validation windows", low=1)
    draws: int = setting(
        16, "draws of masks in each validation window; 1 or an even number", low=1, high=1000
    )
    stride: int | None = setting(
        None, "objective=next: new characters per test window; left out: half the context", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    every: int = setting(1000, "beside 0, 1, 2, 4 ... 512 and the last step", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchConfig:
    """Cheap geometry of training batches, in the log (training/watch.py)."""

    every: int = setting(0, "steps from one look to the next; 0: none", low=0, high=LARGEST_SEED)
    points: int = setting(256, "positions of the batch that make up a cloud", low=8, high=1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """One training run; `experiment_config.Config` adds what is measured of it."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: str = setting("next", "predict the next character, or masked ones")
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)


def seeds(train: TrainConfig) -> list[tuple[int, int]]:
    """List the (weight seed, data seed) of every run, weight seed by weight seed."""
    first = train.seed if train.data_seed is None else train.data_seed
    count = train.num_seeds if train.num_data_seeds is None else train.num_data_seeds
    for name, value in (("num_seeds", train.num_seeds), ("num_data_seeds", count)):
        within(f"train.{name}", value, 1, None)
    if train.num_seeds * count > MOST_SEEDS:
        what = f"train.num_seeds × num_data_seeds is {train.num_seeds} × {count}"
        raise UserError(f"{what}; {MOST_SEEDS} runs at most")
    return [(train.seed + i, first + j) for i in range(train.num_seeds) for j in range(count)]


def checkpoint_steps(config: RunConfig) -> list[int]:
    """List the steps whose checkpoints are kept: 0, 1, 2, 4 … 512, every k-th, and the last."""
    last, every = config.train.steps, config.checkpoint.every
    powers = (2**power for power in range(10) if 2**power <= last)
    return sorted({0, *powers, *range(every, last + 1, every), last})
