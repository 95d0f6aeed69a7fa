import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from anisoscope.config.pretrained_config import WeightsConfig
from anisoscope.sources.hf import load_model
from anisoscope.sources.hf.adapters import UNKNOWN, Adapter
from anisoscope.sources.hf.reading import guards, logits
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny
from tests.sources.hf.rows import __main__ as rows
from tests.sources.hf.rows.row import made
from tests.sources.hf.tiny import windows

TOKENS = tiny.tokens()[:2]
WEIGHTS = WeightsConfig(name="here")


def test_what_else_attention_does_is_refused():
    """A sink beside the keys, as in gpt-oss, which no mask tells."""
    settings = tiny.SIZES | {
        "num_key_value_heads": 2,
        "head_dim": 8,
        "num_local_experts": 2,
        "num_experts_per_tok": 1,
    }
    settings |= {"layer_types": ["full_attention"] * 3}
    made = transformers.GptOssForCausalLM(transformers.GptOssConfig(**settings)).eval()
    with pytest.raises(UserError, match="enters"):
        guards.check_attention(tiny.as_loaded(made, Adapter("GptOssDecoderLayer", "norm")), TOKENS)


def test_blocks_that_lost_heads_are_refused():
    loaded = tiny.loaded("bert")
    heads = loaded.model.encoder.layer[1].attention
    for x in (heads.self.query, heads.self.key, heads.self.value):
        x.weight.data, x.bias.data = x.weight.data[:16], x.bias.data[:16]
    heads.output.dense.weight.data = heads.output.dense.weight.data[:, :16]
    with pytest.raises(
        UserError, match=r"blocks have heads of \[\(2, 8\), \(4, 8\)\], \(number, width\)"
    ):
        guards.check_attention(loaded, TOKENS)


def test_each_block_sees_keys_of_its_own():
    layers = ["full_attention", "sliding_attention", "full_attention"]
    changes = {
        "use_sliding_window": True,
        "sliding_window": 4,
        "max_window_layers": 1,
        "layer_types": layers,
    }
    seen, words = guards.check_attention(tiny.loaded("qwen2", **changes), TOKENS)
    causal = np.tril(np.ones((12, 12), bool))
    local = causal & ~np.tril(causal, -4)
    np.testing.assert_array_equal(seen.visible_NTT, [causal, local, causal])
    assert "42 or 78 visible pairs" in words


def test_weights_are_read_in_float32_whatever_the_file_holds(training, tmp_path):
    half = transformers.LlamaForCausalLM.from_pretrained(training / "step60").to(torch.bfloat16)
    half.save_pretrained(tmp_path)
    assert {
        x.dtype for x in safetensors.torch.load_file(tmp_path / "model.safetensors").values()
    } == {torch.bfloat16}
    loaded = load_model.load_model(load_model.find_weights(str(tmp_path), None), WEIGHTS)
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.float32}
    assert (loaded.about["weights_type"], loaded.about["computed_in"]) == ("BF16", "float32")


def changed(training, to, change):
    """A copy of the trained model with other weights."""
    shutil.copytree(training / "step60", to)
    weights = safetensors.torch.load_file(to / "model.safetensors")
    change(weights)
    safetensors.torch.save_file(weights, to / "model.safetensors", {"format": "pt"})
    return load_model.find_weights(str(to), None)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda w: w["model.norm.weight"].fill_(torch.nan),
            "model.norm.weight holds numbers that are not finite",
        ),
        (
            lambda w: w.pop("model.layers.1.self_attn.q_proj.weight"),
            "lacks weights of LlamaForCausalLM",
        ),
        (
            lambda w: w.update({"model.norm.weight": torch.ones(31)}),
            r"or has others: model\.norm\.weight",
        ),
    ],
)
def test_weights_that_are_damaged_or_missing_are_refused(training, tmp_path, change, words):
    with pytest.raises(UserError, match=words):
        load_model.load_model(changed(training, tmp_path / "model", change), WEIGHTS)


def test_a_model_that_knows_the_text_passes_and_says_its_bits(training):
    loaded = load_model.load_model(load_model.find_weights(str(training / "step60"), None), WEIGHTS)
    found = guards.check_bits_per_byte(loaded, windows(), 8, None)
    ids = torch.as_tensor(windows().probe.tokens_GWT[0], dtype=torch.long)
    with torch.no_grad():
        own = loaded.model(input_ids=ids, labels=ids).loss.item() / np.log(2)
    assert found["bits_per_byte"] == pytest.approx(own, rel=1e-4)  # a letter is a byte
    assert found["bits_per_byte"] < 0.8 * found["bits_bound"]
    assert found["bits_bound"] == pytest.approx(4.4, abs=0.4)  # 26 letters, and blanks for a tenth


def test_a_decoder_that_sees_its_answer_has_no_loss():
    full = tiny.loaded("llama", is_causal=False)
    assert guards.check_bits_per_byte(full, windows(), 8, None)["bits_per_byte"] == guards.SHOWN
    assert not guards.sees_later(tiny.loaded("llama"), TOKENS[0])
    with pytest.raises(UserError, match="sees the tokens that it is to predict"):
        logits.check_logits(full, logits.make_readout(full), TOKENS[0])


def test_a_wrong_tokenizer_is_refused(training):
    loaded = load_model.load_model(load_model.find_weights(str(training / "step60"), None), WEIGHTS)
    other = tiny.tokenizer("".join(np.random.default_rng(0).permutation(list(tiny.LETTERS))))
    with pytest.raises(UserError, match="wrong tokenizer, wrong weights"):
        guards.check_bits_per_byte(loaded, windows(other), 8, None)
    assert guards.check_bits_per_byte(loaded, windows(other), 8, 100.0)["bits_per_byte"] > 4


def test_masked_models_say_their_bits_and_others_that_they_were_not_checked():
    albert = tiny.loaded("albert")
    found = guards.check_bits_per_byte(albert, windows(), 8, 100.0)
    assert 3 < found["bits_per_byte"] < 12
    assert "masked" in found["bits_of"]
    assert (
        "not checked"
        in guards.check_bits_per_byte(tiny.loaded("bert"), windows(), 8, None)["bits_per_byte"]
    )


def test_tokens_without_embedding_and_windows_without_positions_are_refused():
    with pytest.raises(
        UserError, match=f"gives token {tiny.VOCABULARY}, the model has {tiny.VOCABULARY}"
    ):
        guards.check_vocabulary(
            tiny.loaded("llama"), windows(tiny.tokenizer(tiny.LETTERS + "A"), tiny.text(6000) + "A")
        )
    found = windows()  # whose frame has a token that the model lacks
    probe = found.probe._replace(tokens_GWT=np.full_like(found.probe.tokens_GWT, tiny.VOCABULARY))
    with pytest.raises(
        UserError, match=f"the tokenizer gives token {tiny.VOCABULARY}, the model has"
    ):
        guards.check_vocabulary(tiny.loaded("llama"), found._replace(probe=probe))
    with pytest.raises(UserError, match="window is 65; this model has 64 positions"):
        guards.check_window(tiny.loaded("gpt2"), 65, 0)
    with pytest.raises(UserError, match="window is 63; this model has 62 positions"):
        guards.check_window(
            made(rows.ROWS["RoBERTa"]._replace(settings=tiny.SIZES | {"pad_token_id": 1})), 63, 0
        )
    with pytest.raises(UserError, match="projected_head is 4; the model has 4 heads"):
        guards.check_window(tiny.loaded("gpt2"), 64, 4)


def test_the_noise_floor_is_the_largest_move_of_a_value():
    def values(x):
        return {
            "measured": {
                "anisotropy": np.full((1, 2, 3, 5), x),
                "duplicate_points": np.full((1, 2, 3), x),
            }
        }

    one, other = values(1.0), values(1.0)
    other["measured"]["anisotropy"][0, 0, 1, 0] = 1.25
    other["measured"]["anisotropy"][0, 0, 2, 3] = 9.0  # of a resample
    found = guards.noise_floor(one, other)
    assert found == {"anisotropy": 0.25, "duplicate_points": 0.0}


def unknown(name, **settings):
    """A tiny model of a class without an entry."""
    torch.manual_seed(0)
    made = getattr(transformers, name)
    sizes = {
        "vocab_size": tiny.VOCABULARY,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    return tiny.as_loaded(
        made(made.config_class(**sizes | {"intermediate_size": 32} | settings)).eval(), UNKNOWN
    )


def test_a_model_of_two_inputs_is_refused_in_a_line():
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
    with pytest.raises(
        UserError,
        match=r"MT5Model cannot read input_ids alone \(.*adapters\.py must say which layers",
    ):
        guards.check_final_norm(unknown("MT5Model", **sizes), TOKENS[0])


def test_a_model_of_several_parts_is_refused_in_a_line():
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
    }
    parts = {
        "text_config": sizes | {"vocab_size": 32},
        "vision_config": sizes | {"image_size": 8, "patch_size": 4},
    }
    loaded = tiny.as_loaded(
        transformers.CLIPModel(transformers.CLIPConfig(**parts)).eval(), UNKNOWN
    )
    with pytest.raises(UserError, match="its settings do not say how many layers it has"):
        _ = loaded.blocks


def test_positions_of_robertas_family_begin_after_padding():
    loaded = unknown("XLMRobertaModel", max_position_embeddings=18, pad_token_id=1)
    assert guards.max_positions(loaded) == 16
    guards.check_final_norm(loaded, np.full(16, 7))
    with pytest.raises(UserError, match="window is 17; this model has 16 positions"):
        guards.check_window(loaded, 17, 0)
    assert guards.max_positions(unknown("BertModel", max_position_embeddings=18)) == 18


def test_a_model_whose_passes_are_random_is_refused():
    loaded = unknown("BertModel", hidden_dropout_prob=0.5)
    guards.check_final_norm(loaded, TOKENS[0])
    loaded.model.train()
    with pytest.raises(UserError, match="gives other vectors each time that it reads one window"):
        guards.check_final_norm(loaded, TOKENS[0])
