"""The configuration schema: every setting of a run and its default, stated here and nowhere else.

An experiment file defines `get_config()` and returns a `Config`. An experiment of several runs names them in
`variants`: name -> {dotted field: value}, applied over the shared settings (`experiments/variants.py`).
"""

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any, get_args, get_origin, get_type_hints

from errors import UserError

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
