"""List the classes of transformers whose block equals ours; only these are exported and read."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from anisoscope.models.norms import EPSILON

ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_new"}  # ours -> theirs
SUPPORTED = {"mask": "causal", "attention": "softmax", "norm": "pre"} | dict.fromkeys(
    ("qk_norm", "center_queries", "sink", "same_first"), False
)  # settings that a model must have to be exported


class HfClass(NamedTuple):
    """One class of transformers: names of its settings and weights, and how to convert them."""

    name: str
    positions: str  # as ModelConfig names them
    # our setting -> their setting, and its default where a file lacks it
    fields: dict[str, tuple[str, Any]]
    # width of the feed-forward layer; None: 4 times the width of the stream
    inner: tuple[str, int | None]
    activation: tuple[str, str]
    # their setting -> its required value, and its default where a file lacks it
    fixed: dict[str, tuple[Any, Any]]
    dropouts: tuple[str, ...]
    whole: dict[str, str]  # our leaf or layer outside the blocks -> theirs
    block: dict[str, str]  # our layer of a block -> theirs
    blocks: str  # prefix of the block names
    head: str
    prefix: str  # of all names but the head; some files omit it
    # (our layer, leaf of one block, heads) -> their weight
    to_theirs: Callable[[str, np.ndarray, int], np.ndarray]
    to_ours: Callable[[str, np.ndarray, int], np.ndarray]


def keep(layer: str, leaf: np.ndarray, heads: int) -> np.ndarray:
    """Return a weight unchanged."""
    return leaf


def to_neox(layer: str, leaf: np.ndarray, heads: int) -> np.ndarray:
    """Transpose a kernel to (out, in), and reorder queries, keys and values.

    GPT-NeoX stores them head by head; our model stores all queries, then all keys, then all values.
    """
    if layer == "qkv":
        leaf = np.moveaxis(leaf.reshape(*leaf.shape[:-1], 3, heads, -1), -2, -3).reshape(leaf.shape)
    return leaf.T


def from_neox(layer: str, weight: np.ndarray, heads: int) -> np.ndarray:
    """Invert `to_neox`."""
    leaf = weight.T
    if layer == "qkv":
        leaf = np.moveaxis(leaf.reshape(*leaf.shape[:-1], heads, 3, -1), -2, -3).reshape(leaf.shape)
    return leaf


CLASSES = {
    "gpt2": HfClass(
        "GPT2LMHeadModel",
        "learned",
        fields={
            "layers": ("n_layer", 12),
            "width": ("n_embd", 768),
            "heads": ("n_head", 12),
            "context": ("n_positions", 1024),
            "tied": ("tie_word_embeddings", True),
        },
        inner=("n_inner", None),
        activation=("activation_function", "gelu_new"),
        fixed={
            "layer_norm_epsilon": (EPSILON, EPSILON),
            "scale_attn_weights": (True, True),
            "scale_attn_by_inverse_layer_idx": (False, False),
            "add_cross_attention": (False, False),
        },
        dropouts=("resid_pdrop", "embd_pdrop", "attn_pdrop"),
        whole={"tokens": "wte.weight", "positions": "wpe.weight", "norm_final": "ln_f"},
        block={
            "norm_attention": "ln_1",
            "qkv": "attn.c_attn",
            "attention_out": "attn.c_proj",
            "norm_mlp": "ln_2",
            "mlp_up": "mlp.c_fc",
            "mlp_down": "mlp.c_proj",
        },
        blocks="h",
        head="lm_head.weight",
        prefix="transformer.",
        to_theirs=keep,
        to_ours=keep,
    ),
    "gpt_neox": HfClass(
        "GPTNeoXForCausalLM",
        "rotary",
        fields={
            "layers": ("num_hidden_layers", 44),
            "width": ("hidden_size", 6144),
            "heads": ("num_attention_heads", 64),
            "context": ("max_position_embeddings", 2048),
            "tied": ("tie_word_embeddings", False),
        },
        inner=("intermediate_size", 24_576),
        activation=("hidden_act", "gelu"),
        fixed={
            "layer_norm_eps": (EPSILON, EPSILON),
            "use_parallel_residual": (False, True),
            "attention_bias": (True, True),
            "rotary_pct": (1.0, 0.25),
            "rotary_emb_base": (10_000, 10_000),
        },
        dropouts=("hidden_dropout", "attention_dropout", "classifier_dropout"),
        whole={"tokens": "embed_in.weight", "norm_final": "final_layer_norm"},
        block={
            "norm_attention": "input_layernorm",
            "qkv": "attention.query_key_value",
            "attention_out": "attention.dense",
            "norm_mlp": "post_attention_layernorm",
            "mlp_up": "mlp.dense_h_to_4h",
            "mlp_down": "mlp.dense_4h_to_h",
        },
        blocks="layers",
        head="embed_out.weight",
        prefix="gpt_neox.",
        to_theirs=to_neox,
        to_ours=from_neox,
    ),
}
# keys inside rope_parameters
ROPE_SETTINGS = {"rope_theta": "rotary_emb_base", "partial_rotary_factor": "rotary_pct"}
