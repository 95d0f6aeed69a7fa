"""Every architecture of the papers on a tiny random model, and classes without an entry."""

import numpy as np
import pytest
import torch
import transformers

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.metrics.quantity import MEASURED
from anisoscope.results import joined_files
from anisoscope.sources import activations
from anisoscope.sources.hf import guards, measure_model
from anisoscope.sources.hf.adapters import ADAPTERS, MEDIA_ADAPTERS, UNKNOWN, adapter_name
from anisoscope.sources.hf.extract import clamp_coordinates, read_activations
from anisoscope.sources.hf.revision import visible_sets
from anisoscope.sources.hf.revision_sweep import drop_unmeasurable
from anisoscope.sources.hf.token_windows import tokens_at_positions
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models
from tests.sources.hf.architectures import (
    ROWS,
    TEXT,
    Row,
    build,
    compare_attention,
    compare_streams,
    random_inputs,
)


@pytest.mark.parametrize("name", ROWS)
def test_block_outputs_and_attention_are_the_model_s_own(name):
    loaded = build(name)
    inputs = random_inputs(loaded)
    assert loaded.blocks >= 3
    assert compare_streams(loaded) < 1e-5
    assert "the last gives the last hidden state" in guards.check_final_norm(loaded, inputs[0])
    if (attention := compare_attention(loaded)) is not None:
        assert attention < 1e-5
        own = guards.model_outputs(loaded, inputs, "attentions")
        assert min(float(weights.std(-1).mean()) for weights in own) > 1e-3  # not all alike
        assert name not in TEXT or min(float(x.std(dim=-1).mean()) for x in own) > 0.01


def test_every_entry_has_a_row():
    adapters = {name: build(name).adapter for name in ROWS}
    assert {adapters[name] for name in ROWS if name not in TEXT} == set(MEDIA_ADAPTERS.values())
    types = {build(name).model.config.model_type for name in TEXT}
    assert types >= set(ADAPTERS) - {"clip"}  # its tower of text has a row
    assert adapters["HuBERT"] != adapters["HuBERT, large"]
    # a convolution after block 1 is no entry
    assert adapter_name(transformers.DebertaV2Config(conv_kernel_size=3)) not in ADAPTERS


SOFTMAX = "softmax of queries and keys differs from the model's own attention by"
NORM = "differs from the last hidden state"


@pytest.mark.parametrize(
    ("name", "entry", "words"),
    [
        ("Bloom", {"score_exponent": 0.0}, SOFTMAX),
        ("GPT-Neo", {"score_exponent": 0.5}, SOFTMAX),
        ("gpt-oss", {"extra_scores": None}, SOFTMAX),  # a sink, of which no mask tells
        ("GPT-J", {"score_exponent": None}, "attention ran 0 times in 3 blocks"),
        ("CANINE", {"stack_path": None}, "6 layers ran, 4 were expected"),
        ("EuroBERT", {"final_norm": None}, NORM),
        ("HuBERT, large", {"final_norm": None}, NORM),
        ("OPT-350m", {"final_projection": None}, NORM),
        ("ByT5", {"block_class": "T5LayerSelfAttention"}, NORM),
    ],
)
def test_a_wrong_entry_is_refused(name, entry, words):
    loaded = build(name)
    wrong, inputs = loaded._replace(adapter=loaded.adapter._replace(**entry)), random_inputs(loaded)
    with pytest.raises(UserError, match=words) as error:  # noqa: PT012
        guards.check_final_norm(wrong, inputs[0])
        guards.check_attention(wrong, inputs)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["Gemma 2", "DeBERTa-v3"])
def test_scores_that_are_more_than_queries_and_keys_leave_families_out(name, capsys, monkeypatch):
    loaded = build(name)
    words = r"its scores.*; leave the family attention out"
    with pytest.raises(UserError, match=words):
        guards.check_attention(loaded, random_inputs(loaded)[:2])

    def measure(plan, *args, **options):
        raise UserError(", ".join(plan.config.measure.families))

    monkeypatch.setattr(measure_model, "measure_revision", measure)
    options = {"window": 16, "points": 64, "batches": 1, "families": "all"}
    pair = loaded.model, tiny_models.tokenizer()
    with pytest.raises(ValueError, match=r"spectrum, .*hubness$"):
        anisoscope.measure_model(pair, [tiny_models.text(6000)], **options)
    config = PretrainedConfig()
    left = drop_unmeasurable(config, loaded.model.config, "a model")
    assert {*config.measure.families} - {*left.measure.families} == {"attention"}
    assert "family attention is left out" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["Bloom", "ModernBERT, moderncamembert"])
def test_the_panel_reads_the_model_s_own_patterns(name):
    """With a bias beside the scores, and with keys that differ from block to block."""
    loaded = build(name)
    tokens_WT = np.random.default_rng(1).integers(4, 40, (4, 24)).astype(np.int32)
    pattern, _ = guards.check_attention(loaded, tokens_WT[:2])
    assert (pattern.bias_NHTT is None) == (name != "Bloom")
    windows = tiny_models.as_windows(tokens_WT)
    settings = MeasureConfig(points=64, batches=1, folds=2, families=("attention",), nulls=())
    read = read_activations(loaded, tokens_WT[None], 2, heads=True)
    read = read._replace(bias_NHTT=pattern.bias_NHTT)
    visible, picks_SP = visible_sets(pattern.visible_NTT, windows), windows.probe.picks_SGP[:, 0]
    values = activations.measure_batch(0, read, {}, picks_SP, visible, settings)[MEASURED]
    own = torch.stack(guards.model_outputs(loaded, tokens_WT, "attentions")).double().numpy()
    entropy_NWHT = -np.where(own > 0, own * np.log(np.where(own > 0, own, 1)), 0).sum(-1)
    chooses_NT = pattern.visible_NTT.sum(-1) >= 2
    expected = [entropy_NWHT[n][..., chooses_NT[n]].mean((0, 2)) for n in range(len(own))]
    entropy_NH = values["attention_entropy"][0, 0, ..., 0]
    np.testing.assert_allclose(entropy_NH, expected, atol=1e-5)
    assert np.std(entropy_NH) > 0.01


def test_a_class_without_an_entry_is_read_as_it_reports_hidden_states(tmp_path):
    sizes = tiny_models.SIZES | {"num_key_value_heads": 2, "pad_token_id": 0, "head_dim": 8}
    loaded, tokens_WT = build(Row("HeliumForCausalLM", sizes)), tiny_models.tokens()
    assert loaded.adapter == UNKNOWN
    resid_NWTD = read_activations(loaded, tokens_WT[None], 2).resid_ZLBTD[0]
    own = guards.model_outputs(loaded, tokens_WT, "hidden_states")
    np.testing.assert_allclose(resid_NWTD, torch.stack(own).detach().numpy(), atol=1e-5)
    with pytest.raises(UserError, match="HeliumForCausalLM has no entry"):
        guards.check_attention(loaded, tokens_WT)
    with pytest.raises(UserError, match="blocks of HeliumForCausalLM are not known"):
        clamp_coordinates(loaded, 1.0, tokens_WT, 2)
    tiny_models.save(loaded.model, tmp_path / "model")
    (tmp_path / "text.txt").write_text(tiny_models.text())
    options = {"name": tmp_path / "model", "families": "similarity,attention"}
    process = tiny_models.run(
        *tiny_models.flags(tmp_path, **options),
        *("--config.measure.nulls=()", "--config.pretrained.max_bits_per_byte=100"),
        *(f"--workdir={tmp_path / 'run'}", "--stages=measure"),
    )
    assert "family attention is left out" in process.stdout
    results = joined_files.read_table(tmp_path / "run" / "results.nc")
    assert "the last may be after a final norm" in results.attrs["residual_stream"]
    assert "attention_entropy" not in results


BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
BART |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
FUNNEL = {"block_sizes": [2, 1], "d_model": 32, "n_head": 4, "d_head": 8, "d_inner": 48}
STAGES = {"embedding_size": 8, "embed_dim": 16, "num_hidden_layers": 2, "depths": [1, 1]}
RESNET = STAGES | {"hidden_sizes": [8, 8]}
SWIN = STAGES | {"image_size": 32, "num_heads": [2, 2], "window_size": 4}


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("BartModel", BART | {"vocab_size": 40}, "0 layers ran, 3 were expected"),
        (
            "FunnelBaseModel",
            FUNNEL | {"vocab_size": 40},
            r"\(12, 32\), other layers have \(24, 32\)",
        ),
        ("ResNetModel", RESNET, "returns maps of shape"),
        ("SwinModel", SWIN, "other layers have"),
    ],
)
def test_layers_of_several_shapes_or_stages_are_refused(name, settings, words):
    loaded = build(Row(name, settings))
    if not loaded.reads_text:
        inputs = np.random.default_rng(0).normal(size=(2, 3, 32, 32)).astype(np.float32)
    else:
        inputs = random_inputs(loaded)
    with pytest.raises(UserError, match=words):
        read_activations(loaded, inputs[None], 2)


def test_characters_that_share_a_position():
    """CANINE: the first token is character 0, each further one four characters, the last has none."""
    loaded = build("CANINE")
    windows = tiny_models.windows(tokens_per_position=4)
    joined = tokens_at_positions(np.arange(12), 4)
    np.testing.assert_array_equal(joined, [[0] * 4, [0, 1, 2, 3], [4, 5, 6, 7]])
    tokens_WT = windows.probe.tokens_GWT[0]
    assert tokens_WT.shape[-1] == 24
    assert windows.probe.picks_SGP.max() < len(tokens_WT) * 6
    pattern, _ = guards.check_attention(loaded, tokens_WT[:2])
    assert visible_sets(pattern.visible_NTT, windows).shape == (2, 6, 6)
