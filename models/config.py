"""What a model is: every setting and its default."""

from dataclasses import dataclass

from workdir.errors import UserError
from workdir.settings import LARGEST_SEED, at_least, choose, within

MASKS = ("causal", "bidirectional", "prefix", "window", "leak")
ATTENTIONS = ("softmax", "softmax_one", "sigmoid")
NORMS = ("pre", "post")
POSITIONS = ("learned", "rotary")
DTYPES = ("auto", "float32", "bfloat16")


@dataclass(frozen=True, slots=True, kw_only=True)
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


def check(model: ModelConfig) -> None:
    """Raise UserError, one line, where a model cannot be built."""
    choose("model.mask", model.mask, MASKS)
    choose("model.attention", model.attention, ATTENTIONS)
    choose("model.norm", model.norm, NORMS)
    choose("model.positions", model.positions, POSITIONS)
    choose("model.dtype", model.dtype, DTYPES)
    for name, least in (("layers", 1), ("width", 1), ("heads", 1), ("context", 2), ("expansion", 1)):
        at_least(f"model.{name}", getattr(model, name), least)
    within("model.leak", model.leak, 0.0, 1.0)
    within("model.leak_seed", model.leak_seed, 0, LARGEST_SEED)
    if model.width % model.heads:
        raise UserError(f"model.heads is {model.heads}; it must divide model.width ({model.width})")
    if model.positions == "rotary" and (model.width // model.heads) % 2:
        raise UserError(f"model.positions=rotary needs an even head width; width/heads is {model.width // model.heads}")
    if model.sink and model.attention != "softmax":
        raise UserError(f"model.sink is one more key of a softmax; it does not go with attention={model.attention}")
    for mask in ("prefix", "window"):
        value = getattr(model, mask)
        if model.mask == mask and not 1 <= value <= model.context:
            raise UserError(f"model.{mask} is {value}; model.mask={mask} needs 1 to model.context={model.context}")
    for mask in ("prefix", "window", "leak"):
        if model.mask != mask and getattr(model, mask) != 0:
            raise UserError(f"model.{mask} does nothing under model.mask={model.mask}; leave it 0 or set mask={mask}")
