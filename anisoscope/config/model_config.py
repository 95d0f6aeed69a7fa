"""Settings of the model."""

from dataclasses import dataclass

from anisoscope.utils.settings import seed_setting, setting

# With larger settings sizes of arrays overflow before memory can be counted.
MOST_WIDTH, MOST_CONTEXT, MOST_EXPANSION = 2**17, 2**16, 64


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    layers: int = setting(6, "number of Transformer blocks", low=1, high=4096)
    width: int = setting(512, "width of the residual stream", low=1, high=MOST_WIDTH)
    heads: int = setting(8, "attention heads per block; a divisor of width", low=1)
    context: int = setting(512, "context length in characters", low=2, high=MOST_CONTEXT)
    expansion: int = setting(
        4, "feed-forward width as a multiple of the model width", low=1, high=MOST_EXPANSION
    )
    mask: str = setting(
        "causal", "attention mask: causal (decoder), bidirectional (encoder), prefix, window, leak"
    )
    prefix: int = setting(0, "mask=prefix: first positions that all queries attend to; else causal")
    window: int = setting(0, "mask=window: positions a query attends to, its own and those before")
    leak: float = setting(0.0, "mask=leak: fraction of later positions that a query attends to")
    leak_seed: int = seed_setting(0, "mask=leak: random seed of the query-key pairs")
    attention: str = setting(
        "softmax", "attention weights: softmax, softmax_one (1 added to the denominator) or sigmoid"
    )
    qk_norm: bool = setting(False, "apply LayerNorm to queries and keys in each head")
    center_queries: bool = setting(
        False, "subtract from each query the mean query of the visible positions"
    )
    sink: bool = setting(False, "add a learned key and value per head that belong to no position")
    same_first: bool = setting(False, "replace the first character of each window by [MASK]")
    norm: str = setting("pre", "LayerNorm before (pre, GPT-2) or after (post, BERT) each sublayer")
    position_encoding: str = setting("learned", "position encoding: learned or rotary")
    activation: str = setting("gelu", "feed-forward activation: gelu, or GPT-2's gelu_tanh")
    tied: bool = setting(True, "share the output head's weights with the embedding table")
    bias: bool = setting(True, "use biases in linear layers and LayerNorm")
    remat: bool = setting(False, "recompute activations in the backward pass to save memory")
    dtype: str = setting(
        "auto",
        "computation dtype; auto: float32 on a CPU, bfloat16 on an accelerator",
        choices=("auto", "float32", "bfloat16"),
    )
