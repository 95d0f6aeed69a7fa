"""GGUF files of a tiny Llama whose keys and tensors transformers drops: applied, or refused by
name.
"""

import collections

import gguf
import numpy as np
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models
from tokenizers.pre_tokenizers import ByteLevel
from transformers import modeling_gguf_pytorch_utils as reading

from anisoscope.sources.hf import gguf_file, load_model, pretrained_weights
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models

TOKENS = [*tiny_models.SPECIAL, *tiny_models.LETTERS]
SPLIT = "split.count"
FACTORS = np.array([1, 4, 8, 8], np.float32)


def write(path, model, keys, tensors, splitting=""):
    config = model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_name("tiny")
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.0] * len(TOKENS))
    writer.add_token_merges([])
    if splitting:
        writer.add_tokenizer_pre(splitting)
    add = {str: writer.add_string, bool: writer.add_bool}
    add |= {int: writer.add_uint32, float: writer.add_float32}
    for name, value in keys.items():
        add[type(value)](f"llama.{name}", value)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, config.num_hidden_layers)
    for name, weight in model.state_dict().items():
        path, _, part = name.rpartition(".")
        x = weight.numpy()
        heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
        if path.endswith(("q_proj", "k_proj")):  # whose halves GGUF interleaves
            x = x.reshape(heads[path[-6]], 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
        writer.add_tensor(f"{names.get_name(path)}.{part}", np.ascontiguousarray(x))
    for name, x in tensors.items():
        writer.add_tensor(name, x)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def loaded(path, keys, tensors=None):
    write(path, tiny_models.model("llama"), keys, tensors or {})
    return tiny_models.load(path)


def logits(model):
    with torch.no_grad():
        return model(input_ids=torch.as_tensor(tiny_models.tokens(2, 24)).long()).logits.numpy()


def scaled(kind, **more):
    return {"rope_parameters": {"rope_type": kind, "factor": 4.0, "rope_theta": 10_000.0} | more}


SCALE = {"rope.scaling.factor": 4.0}
YARN = SCALE | {"rope.scaling.type": "yarn", "rope.scaling.original_context_length": 16}


@pytest.mark.parametrize(
    ("keys", "changes"),
    [
        ({"attention.causal": True, "attention.key_length": 8, "rope.scaling.type": "none"}, {}),
        ({"attention.causal": False}, {"is_causal": False}),
        (SCALE | {"rope.scaling.type": "linear"}, scaled("linear")),
        ({"rope.scale_linear": 4.0}, scaled("linear")),
        (YARN, scaled("yarn", original_max_position_embeddings=16)),
    ],
)
def test_keys_that_transformers_drops_are_applied(tmp_path, keys, changes):
    found = loaded(tmp_path / "a.gguf", keys)
    own = logits(tiny_models.model("llama", **changes))
    np.testing.assert_allclose(logits(found.model), own, atol=1e-5)
    assert (found.attributes["weights_file"], found.attributes["weights_type"]) == ("GGUF", "F32")
    if changes:
        assert np.abs(logits(found.model) - logits(tiny_models.model("llama"))).max() > 1


def test_rotary_frequencies_are_divided_by_the_factors_of_the_file(tmp_path):
    own = tiny_models.model("llama")
    own.model.rotary_emb.inv_freq /= torch.as_tensor(FACTORS)
    found = loaded(tmp_path / "a.gguf", {}, {"rope_freqs.weight": FACTORS})
    np.testing.assert_allclose(logits(found.model), logits(own), atol=1e-5)


@pytest.mark.parametrize(
    ("keys", "tensors", "words"),
    [
        ({"logit_scale": 0.5}, {}, r"llama\.logit_scale \(0\.5\)"),
        ({"attention.key_length": 16}, {}, r"llama\.attention\.key_length \(16\)"),
        (YARN | {"rope.scaling.attn_factor": 0.5}, {}, r"llama\.rope\.scaling\.attn_factor"),
        (SCALE | {"rope.scaling.type": "longrope"}, {}, r"llama\.rope\.scaling\.factor \(4\.0\)"),
        ({}, {"blk.0.attn_q.bias": np.ones(32, np.float32)}, r"the tensors blk\.0\.attn_q\.bias"),
        ({}, {"rope_freqs.weight": FACTORS[:2]}, r"the tensors rope_freqs\.weight"),
    ],
)
def test_what_is_not_applied_is_refused_by_name(tmp_path, keys, tensors, words):
    with pytest.raises(UserError, match=f"transformers ignores .*{words}.*; name another file"):
        loaded(tmp_path / "a.gguf", keys, tensors)


def test_a_file_is_read_once_for_settings_tokenizer_and_weights(tmp_path, monkeypatch):
    """Its header, its keys, each of its tensors, and the names of tensors."""
    path, calls = tmp_path / "a.gguf", collections.Counter()
    write(path, tiny_models.model("llama"), {}, {})

    def count(owner, name):
        function = getattr(owner, name)

        def counted(*args, **options):
            calls[name, bool(options)] += 1
            return function(*args, **options)

        monkeypatch.setattr(owner, name, counted)
        return counted

    counted = {name: count(gguf, name) for name in ("dequantize", "get_tensor_name_map")}
    load = count(reading, "load_gguf_checkpoint")
    count(gguf_file, "Reader")
    location = pretrained_weights.find_weights(str(path), None)
    load_model.read_tokenizer(location)
    load_model.read_settings(location)
    found = tiny_models.load(path)
    assert calls == {
        ("Reader", False): 1,
        ("load_gguf_checkpoint", False): 1,  # the keys
        ("load_gguf_checkpoint", True): 1,  # the weights
        ("dequantize", False): len(found.model.state_dict()),
        ("get_tensor_name_map", False): 1,
    }
    assert {name: getattr(gguf, name) for name in counted} == counted
    assert reading.load_gguf_checkpoint is load


def test_a_part_of_a_file_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "a-00001-of-00002.gguf"
    monkeypatch.setattr(gguf.GGUFWriter, "add_name", lambda self, _: self.add_uint16(SPLIT, 2))
    write(path, tiny_models.model("llama"), {}, {})
    with pytest.raises(UserError, match=r"is one of 2 files; join them with llama-gguf-split"):
        tiny_models.load(path)


@pytest.mark.parametrize("splitting", ["", "gpt-2", "qwen2", "smollm", "deepseek-coder"])
def test_text_is_split_as_the_file_says_or_the_file_is_refused(tmp_path, splitting):
    """Beside transformers' own splitting of Qwen2, that of GPT-2, and one before every digit."""
    write(tmp_path / "a.gguf", tiny_models.model("llama"), {}, {}, splitting)
    header, tokenizer = gguf_file.read_header(tmp_path / "a.gguf"), Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer)
    if splitting == "deepseek-coder":
        with pytest.raises(UserError, match="not as deepseek-coder does; name the model's folder"):
            gguf_file.complete_tokenizer(header, tokenizer)
    else:
        gguf_file.complete_tokenizer(header, tokenizer)
        found = tokenizer.backend_tokenizer.pre_tokenizer.pre_tokenize_str("a 12")
        parts = ["a", "\u0120", "1", "2"] if splitting == "smollm" else ["a", "\u012012"]
        assert [part for part, _ in found] == parts
