"""A model of ours as transformers' GPT-2 or, with rotary positions, GPT-NeoX: the same weights."""

import numpy as np
import tokenizers
import torch
import transformers
from transformers.convert_slow_tokenizer import bytes_to_unicode

OUTSIDE = {
    "learned": ({"tokens": "wte", "positions": "wpe"}, "ln_f", "h"),
    "rotary": ({"tokens": "embed_in"}, "final_layer_norm", "layers"),
}
BLOCK = {
    "norm_attention": ("ln_1", "input_layernorm"),
    "qkv": ("attn.c_attn", "attention.query_key_value"),
    "attention_out": ("attn.c_proj", "attention.dense"),
    "norm_mlp": ("ln_2", "post_attention_layernorm"),
    "mlp_up": ("mlp.c_fc", "mlp.dense_h_to_4h"),
    "mlp_down": ("mlp.c_proj", "mlp.dense_4h_to_h"),
}


def in_torch(model, params):
    """The model of transformers with these parameters."""
    rotary = model.position_encoding == "rotary"
    shared = {"tie_word_embeddings": True, "vocab_size": len(params["tokens"])}
    shared |= dict.fromkeys(("bos_token_id", "eos_token_id"))
    if rotary:
        settings = transformers.GPTNeoXConfig(
            hidden_size=model.width,
            num_hidden_layers=model.layers,
            num_attention_heads=model.heads,
            intermediate_size=4 * model.width,
            max_position_embeddings=model.context,
            use_parallel_residual=False,
            rotary_pct=1.0,
            **shared,
        )
        made = transformers.GPTNeoXForCausalLM(settings).eval()
    else:
        sizes = {"n_embd": model.width, "n_layer": model.layers, "n_head": model.heads}
        settings = transformers.GPT2Config(
            **sizes, n_positions=model.context, activation_function="gelu", **shared
        )
        made = transformers.GPT2LMHeadModel(settings).eval()
    tables, norm, blocks = OUTSIDE[model.position_encoding]
    weights = {f"{theirs}.weight": np.asarray(params[ours]) for ours, theirs in tables.items()}
    layers = {norm: params["norm_final"]}
    for ours, theirs in BLOCK.items():
        for n in range(model.layers):
            leaves = {leaf: x[n] for leaf, x in params["blocks"][ours].items()}
            layers[f"{blocks}.{n}.{theirs[rotary]}"] = leaves
    for name, leaves in layers.items():
        for leaf, x in leaves.items():
            x = np.asarray(x)
            if rotary and name.endswith("query_key_value"):  # which it stores head by head
                x = np.moveaxis(x.reshape(*x.shape[:-1], 3, model.heads, -1), -2, -3)
                x = x.reshape(*x.shape[:-3], -1)
            weights[f"{name}.{'bias' if leaf == 'bias' else 'weight'}"] = x.T if rotary else x
    tensors = {name: torch.tensor(np.ascontiguousarray(x)) for name, x in weights.items()}
    made.base_model.load_state_dict(tensors)
    return made


def byte_tokenizer(vocabulary):
    """A tokenizer whose tokens are the bytes of a vocabulary, in its order."""
    ids = {bytes_to_unicode()[byte]: i for i, byte in enumerate(vocabulary)}
    ids["[MASK]"] = len(vocabulary)
    made = tokenizers.Tokenizer(tokenizers.models.BPE(ids, [], unk_token="[MASK]"))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False, use_regex=False
    )
    names = {"mask_token": "[MASK]", "unk_token": "[MASK]"}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=made, **names)
