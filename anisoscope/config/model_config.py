"""What a model is: every setting and its default."""

from dataclasses import dataclass

from anisoscope.utils.settings import LARGEST_SEED, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    layers: int = setting(6, "blocks, one after another", low=1, high=LARGEST_SEED)
    width: int = setting(512, "of the residual stream", low=1, high=LARGEST_SEED)
    heads: int = setting(8, "must divide the width", low=1, high=LARGEST_SEED)
    context: int = setting(512, "characters of a window", low=2, high=LARGEST_SEED)
    expansion: int = setting(4, "feed-forward width / width", low=1, high=LARGEST_SEED)
    mask: str = setting(
        "causal", "causal (decoder), bidirectional (encoder), prefix, window or leak"
    )
    prefix: int = setting(0, "mask=prefix: causal, with this many first positions seen by all")
    window: int = setting(0, "mask=window: positions that a query sees, its own and earlier")
    leak: float = setting(0.0, "mask=leak: fraction of the later keys that a query sees")
    leak_seed: int = setting(0, "mask=leak: which pairs", low=0, high=LARGEST_SEED)
    attention: str = setting(
        "softmax", "softmax; softmax_one adds 1 to the denominator; or sigmoid of each key"
    )
    qk_norm: bool = setting(False, "LayerNorm of queries and keys over the head width")
    center_queries: bool = setting(False, "take from a query the mean query of what it sees")
    sink: bool = setting(False, "a learned key and value per head, of no position")
    same_first: bool = setting(False, "[MASK] in place of each window's first character")
    norm: str = setting("pre", "LayerNorm pre (GPT-2) or post (BERT) each sublayer")
    position_encoding: str = setting("learned", "learned embeddings, or rotary")
    activation: str = setting("gelu", "of the feed-forward layer: gelu, or GPT-2's gelu_tanh")
    tied: bool = setting(True, "the output head is the embedding table")
    bias: bool = setting(True, "biases in linear layers and LayerNorm")
    remat: bool = setting(False, "recompute activations in the backward pass")
    dtype: str = setting(
        "auto", "auto: float32 on a CPU, else bfloat16", choices=("auto", "float32", "bfloat16")
    )
