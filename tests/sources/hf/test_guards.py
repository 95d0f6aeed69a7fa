import shutil

import numpy as np
import pytest
import safetensors.torch
import torch
import transformers

from anisoscope.sources.hf import guards, logits
from anisoscope.sources.hf.adapters import UNKNOWN
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models
from tests.sources.hf.architectures import SIZES, Row, build
from tests.sources.hf.tiny_models import windows

TOKENS = tiny_models.tokens()[:2]


def test_each_block_sees_keys_of_its_own():
    layers = ["full_attention", "sliding_attention", "full_attention"]
    changes = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 1}
    loaded = tiny_models.loaded("qwen2", layer_types=layers, **changes)
    pattern, _ = guards.check_attention(loaded, TOKENS)
    causal = np.tril(np.ones((12, 12), bool))
    local = causal & ~np.tril(causal, -4)
    np.testing.assert_array_equal(pattern.visible_NTT, [causal, local, causal])


def test_weights_are_read_in_float32_whatever_the_file_holds(training, tmp_path):
    half = transformers.LlamaForCausalLM.from_pretrained(training / "step60").to(torch.bfloat16)
    half.save_pretrained(tmp_path)
    loaded = tiny_models.load(tmp_path)
    assert {weight.dtype for weight in loaded.model.parameters()} == {torch.float32}
    kinds = loaded.attributes["weights_type"], loaded.attributes["computed_in"]
    assert kinds == ("BF16", "float32")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda w: w["model.norm.weight"][5].fill_(torch.nan), "norm.weight holds .* not finite"),
        (lambda w: w["model.norm.weight"][5].fill_(-torch.inf), "norm.weight holds .* not finite"),
        (lambda w: w.pop("model.layers.1.self_attn.q_proj.weight"), "are missing"),
        (lambda w: w.update({"model.norm.weight": torch.ones(31)}), "another shape"),
    ],
)
def test_weights_that_are_damaged_or_missing_are_refused(training, tmp_path, change, words):
    shutil.copytree(training / "step60", tmp_path / "model")
    path = tmp_path / "model" / "model.safetensors"
    change(weights := safetensors.torch.load_file(path))
    safetensors.torch.save_file(weights, path, {"format": "pt"})
    with pytest.raises(UserError, match=words):
        tiny_models.load(tmp_path / "model")


def test_a_file_without_the_head_that_its_settings_name_is_read_without_it(tmp_path):
    full = transformers.BertForMaskedLM(transformers.BertConfig(**tiny_models.SIZES))
    full.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    weights = safetensors.torch.load_file(path)
    body = {name: x for name, x in weights.items() if name.startswith("bert.")}
    safetensors.torch.save_file(body, path, {"format": "pt"})
    loaded = tiny_models.load(tmp_path)
    assert loaded.class_name == loaded.attributes["model_class"] == "BertModel"
    for name, weight in loaded.model.state_dict().items():
        torch.testing.assert_close(weight, full.bert.state_dict()[name], rtol=0, atol=0)
    safetensors.torch.save_file(dict([*body.items()][1:]), path, {"format": "pt"})
    with pytest.raises(UserError, match="are missing"):
        tiny_models.load(tmp_path)


def test_a_model_that_knows_the_text_passes_and_a_wrong_tokenizer_is_refused(training):
    loaded = tiny_models.load(training / "step60")
    found = guards.check_bits_per_byte(loaded, windows(), 8, None)
    ids = torch.as_tensor(windows().probe.tokens_GWT[0], dtype=torch.long)
    with torch.no_grad():
        own = loaded.model(input_ids=ids, labels=ids).loss.item() / np.log(2)
    assert found["bits_per_byte"] == pytest.approx(own, rel=1e-4)  # a letter is a byte
    assert found["bits_per_byte"] < 0.8 * found["bits_bound"]
    assert found["bits_bound"] == pytest.approx(4.4, abs=0.4)  # 26 letters, and blanks for a tenth
    letters = np.random.default_rng(0).permutation(list(tiny_models.LETTERS))
    other = windows(tiny_models.tokenizer("".join(letters)))
    with pytest.raises(UserError, match="check tokenizer") as refusal:
        guards.check_bits_per_byte(loaded, other, 8, None)
    advised = float(str(refusal.value).rpartition("max_bits_per_byte=")[2])
    assert guards.check_bits_per_byte(loaded, other, 8, advised)["bits_per_byte"] > 4


def test_the_bits_of_a_masked_model_are_its_loss_at_masked_tokens():
    loaded, tokens_WT = tiny_models.loaded("albert"), windows().probe.tokens_GWT[0]
    found = guards.check_bits_per_byte(loaded, windows(), 8, 100.0)
    masked_WT = np.random.default_rng(0).random(tokens_WT.shape) < guards.MASKED
    texts = (
        np.where(masked_WT, windows().mask_token, tokens_WT),
        np.where(masked_WT, tokens_WT, -100),
    )
    ids, labels = (torch.as_tensor(x_WT, dtype=torch.long) for x_WT in texts)
    with torch.no_grad():
        own = loaded.model(input_ids=ids, labels=labels).loss.item() / np.log(2)
    assert found["bits_per_byte"] == pytest.approx(own, rel=1e-4)  # a letter is a byte
    assert found["bits_of"] == f"{guards.MASKED_TOKEN}, {masked_WT.sum()} tokens"


def test_what_has_no_loss_says_so():
    full = tiny_models.loaded("llama", is_causal=False)
    assert (
        guards.check_bits_per_byte(full, windows(), 8, None)["bits_per_byte"] == guards.SEES_TARGET
    )
    assert not guards.sees_later(tiny_models.loaded("llama"), TOKENS[0])
    with pytest.raises(UserError, match="sees the tokens that it is to predict"):
        logits.check_logits(full, logits.make_unembedding(full), TOKENS[0])
    found = guards.check_bits_per_byte(tiny_models.loaded("bert"), windows(), 8, None)
    assert "not checked" in found["bits_per_byte"]


def test_tokens_without_embedding_are_refused():
    wider = windows(tiny_models.tokenizer(tiny_models.LETTERS + "A"), tiny_models.text(6000) + "A")
    framed = windows()  # whose frame has a token that the model lacks
    tokens_GWT = np.full_like(framed.probe.tokens_GWT, tiny_models.VOCABULARY)
    framed = framed._replace(probe=framed.probe._replace(tokens_GWT=tokens_GWT))
    words = f"returns token {tiny_models.VOCABULARY}, the model has"
    for found in (wider, framed):
        with pytest.raises(UserError, match=words):
            guards.check_vocabulary(tiny_models.loaded("llama"), found.largest_token)


@pytest.mark.parametrize(
    ("name", "longest"),
    [
        ("BertModel", 18),
        ("CamembertForMaskedLM", 16),
        ("RobertaForMaskedLM", 16),
        ("XLMRobertaModel", 16),
    ],
)
def test_windows_without_positions_are_refused(name, longest):
    """Positions of RoBERTa's family begin after padding."""
    loaded = build(Row(name, SIZES | {"max_position_embeddings": 18, "pad_token_id": 1}))
    guards.check_final_norm(loaded, np.full(longest, 7))
    guards.check_window(loaded, longest)
    with pytest.raises(UserError, match=f"this model has {longest} positions"):
        guards.check_window(loaded, longest + 1)


def test_the_noise_floor_is_the_largest_move_of_a_value():
    def values():
        shape = (1, 2, 3)
        return {"anisotropy": np.ones((*shape, 5)), "duplicate_points": np.ones(shape)}

    first, second = {"measured": values()}, {"measured": values()}
    second["measured"]["anisotropy"][0, 0, 1, 0] = 1.25
    second["measured"]["anisotropy"][0, 0, 2, 3] = 9.0  # of a resample
    assert guards.noise_floor(first, second) == {"anisotropy": 0.25, "duplicate_points": 0.0}


def test_random_passes_are_refused():
    loaded = build(Row("BertModel", SIZES | {"hidden_dropout_prob": 0.5}))._replace(adapter=UNKNOWN)
    guards.check_final_norm(loaded, TOKENS[0])
    loaded.model.train()
    with pytest.raises(UserError, match="its passes are random"):
        guards.check_final_norm(loaded, TOKENS[0])
