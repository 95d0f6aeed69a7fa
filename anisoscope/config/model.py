"""What a model is: every setting and its default."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    layers: int = 6  # blocks, one after another
    width: int = 512  # of the residual stream
    heads: int = 8  # must divide the width
    context: int = 512  # characters of a window
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
    same_first: bool = False  # [MASK] in the place of the first character of each window that the model reads
    norm: str = "pre"  # LayerNorm before each sublayer (GPT-2) or after the residual sum (BERT)
    positions: str = "learned"  # learned embeddings or rotary
    activation: str = "gelu"  # of the feed-forward layer: gelu; or gelu_tanh, the approximation of OpenAI's GPT-2
    tied: bool = True  # the output head is the embedding table
    bias: bool = True  # biases in linear layers and LayerNorm
    remat: bool = False  # recompute activations in the backward pass: less memory, more time
    dtype: str = "auto"  # compute type; auto: float32 on a CPU, bfloat16 on an accelerator
