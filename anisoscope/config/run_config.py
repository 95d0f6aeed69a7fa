"""Settings of a training run."""

from dataclasses import dataclass, field

from anisoscope.config.model_config import ModelConfig
from anisoscope.utils.compiled import CACHE
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import check_range, fraction, seed_setting, setting

SOURCES = ("enwik8", "pydoc")
OBJECTIVE_LABELS = {"next": "next character", "masked": "masked characters"}  # what is predicted
# What `watch` logs of every layer (0: the embedding), then of every block: (label, units). Names
# that are also quantities of tables are the same quantities.
WATCHED_LAYERS = {
    "anisotropy": ("anisotropy", "1"),
    "participation_ratio": ("participation ratio", "dimensions"),
    "mean_cosine": ("mean cosine", "1"),
    "drift": ("drift |E x|", "activation"),
    "mean_norm": ("mean norm", "activation"),
}
WATCHED_BLOCKS = {
    "attention_first_token": ("attention on the first token", "1"),
    "gradient_norm": ("norm of the gradient", "1"),
}
MOST_RUNS = 1000  # of an experiment's variant, one for each pair of seeds
MOST_CHECKPOINTS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DataConfig:
    source: str = setting(
        "enwik8", "training text: enwik8, or pydoc (CPython's language reference)", choices=SOURCES
    )
    path: str | None = setting(
        None, "local file of text: plain, .zip, .gz, .bz2 or .xz; None: `data.source`"
    )
    clean: bool = setting(False, "remove wiki markup, code and media links (The Shape of Learning)")
    cache: str = setting(CACHE, "folder for downloaded text and compiled programs")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainConfig:
    steps: int = setting(10_000, "training steps (parameter updates)", low=0, high=10**9)
    batch_size: int = setting(64, "windows per training step, over all devices", low=1)
    optimizer: str = setting(
        "adamw", "adamw, muon or sgd; muon and sgd update the blocks' matrices, AdamW the rest"
    )
    learning_rate: float = setting(
        1e-3, "peak learning rate; with muon or sgd only of the blocks' matrices", low=0
    )
    other_learning_rate: float | None = setting(
        None,
        "learning rate of embedding, biases and norms; None: learning_rate with adamw, else a tenth",
        low=0,
    )
    schedule: str = setting("cosine", "cosine: decay after warm-up; constant: only at the end")
    warmup_fraction: float = fraction(0.05, "fraction of the steps with linear warm-up from 0")
    decay_fraction: float = fraction(0.2, "schedule=constant: fraction of steps in the final decay")
    final_fraction: float = fraction(0.1, "final learning rate as a fraction of the peak")
    weight_decay: float = setting(
        0.1, "decoupled weight decay of matrices, multiplied by other_learning_rate", low=0
    )
    beta1: float = setting(0.9, "AdamW: decay rate of the first moment", low=0, high=0.999999)
    beta2: float = setting(0.99, "AdamW: decay rate of the second moment", low=0, high=0.999999)
    clip_norm: float = setting(1.0, "clip gradients to this global norm; 0: no clipping", low=0)
    penalty: float = setting(
        0.0, "weight of 1 - IsoScore of the residual stream in the loss; below 0 favors anisotropy"
    )
    penalty_layers: tuple[int, ...] = setting(
        (), "layers with the penalty; 0: embedding, l: after block l; (): all blocks", low=0
    )
    accumulate: int = setting(1, "micro-batches per step (gradient accumulation)", low=1)
    steps_per_call: int = setting(
        32, "largest number of steps in a compiled call", low=1, high=10_000
    )
    log_every: int = setting(10, "steps between log lines", low=1)
    seed: int = seed_setting(0, "random seed of the initial parameters")
    data_seed: int | None = seed_setting(None, "random seed of windows and masks; None: seed")
    num_seeds: int = setting(
        1,
        "number of weight seeds, counted up from seed; each runs with every data seed",
        low=1,
        high=MOST_RUNS,
    )
    num_data_seeds: int | None = setting(
        None,
        "number of data seeds, counted up from data_seed; None: num_seeds",
        low=1,
        high=MOST_RUNS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluateConfig:
    every: int = setting(250, "steps between validations; every checkpoint is validated too", low=1)
    windows: int = setting(64, "number of validation windows", low=1)
    draws: int = setting(
        16,
        "objective=masked: random masks per validation window; 1 or an even number",
        low=1,
        high=1000,
    )
    stride: int | None = setting(
        None, "objective=next: characters scored per test window; None: half the context", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointConfig:
    every: int = setting(
        1000, "steps between checkpoints, in addition to 0, 1, 2, 4 … 512 and the last", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchConfig:
    """Geometry of training batches, computed cheaply during training (training/watch.py)."""

    every: int = setting(0, "steps between measurements of the batch; 0: never", low=0, high=10**9)
    points: int = setting(256, "positions of the batch in a point cloud", low=8)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeshConfig:
    data: int = setting(
        -1, "data parallelism: devices that split the batch; -1: all devices / fsdp", low=-1
    )
    fsdp: int = setting(1, "fully sharded: devices that split parameters and batch", low=1)
    seeds: int | None = setting(
        None, "seeds trained at a time; None: 1 on a CPU, all on an accelerator", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """A training run; `experiment_config.Config` adds its measurement."""

    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    objective: str = setting("next", "predict the next character (next) or masked ones (masked)")
    train: TrainConfig = field(default_factory=TrainConfig)
    evaluate: EvaluateConfig = field(default_factory=EvaluateConfig)
    checkpoint: CheckpointConfig = field(default_factory=CheckpointConfig)
    watch: WatchConfig = field(default_factory=WatchConfig)
    mesh: MeshConfig = field(default_factory=MeshConfig)


def seed_pairs(train: TrainConfig) -> list[tuple[int, int]]:
    """List the (weight seed, data seed) of every run, grouped by weight seed."""
    first = train.seed if train.data_seed is None else train.data_seed
    count = train.num_seeds if train.num_data_seeds is None else train.num_data_seeds
    for name, value in (("num_seeds", train.num_seeds), ("num_data_seeds", count)):
        check_range(f"train.{name}", value, 1, MOST_RUNS)
    if train.num_seeds * count > MOST_RUNS:
        what = f"train.num_seeds={train.num_seeds} × {count} data seeds"
        raise UserError(f"{what} are more than {MOST_RUNS:,} runs; lower train.num_seeds")
    return [(train.seed + i, first + j) for i in range(train.num_seeds) for j in range(count)]


def checkpoint_steps(config: RunConfig) -> list[int]:
    """List the steps of the kept checkpoints: 0, 1, 2, 4 … 512, every k-th, and the last."""
    last, every = config.train.steps, config.checkpoint.every
    powers = (2**power for power in range(10) if 2**power <= last)
    return sorted({0, *powers, *range(every, last + 1, every), last})


def check_checkpoints(config: RunConfig) -> None:
    """Raise UserError where a run would keep too many checkpoints to list."""
    if (count := config.train.steps // config.checkpoint.every) > MOST_CHECKPOINTS:
        what = f"checkpoint.every={config.checkpoint.every} keeps {count:,} checkpoints"
        raise UserError(f"{what}, {MOST_CHECKPOINTS:,} at most; raise it or lower train.steps")
