"""Every system of the papers that reads text, on a tiny random model; rows/__main__.py prints a
table.
"""

import numpy as np
import pytest
import torch
import transformers

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.measurement.panel import MEASURED
from anisoscope.results import joined_files
from anisoscope.sources import activations
from anisoscope.sources.hf import guards, measure_model
from anisoscope.sources.hf.adapters import ADAPTERS, UNKNOWN, adapter_name
from anisoscope.sources.hf.extract import clamp_coordinates, read_activations
from anisoscope.sources.hf.revision import visible_sets
from anisoscope.sources.hf.revision_sweep import drop_unmeasurable
from anisoscope.sources.hf.token_windows import tokens_at_positions
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models
from tests.sources.hf.rows import __main__ as rows
from tests.sources.hf.rows.row import Row, made, show

HERE = {name: row for name, row in rows.ROWS.items() if row.model}


def read_by(loaded, name):
    return HERE[name].reads(loaded.model.config)


@pytest.mark.parametrize("name", HERE)
def test_block_outputs_and_attention_are_the_model_s_own(name):
    shown, loaded = show(HERE[name]), made(HERE[name])
    tokens_WT = read_by(loaded, name)
    assert shown.layers >= 3
    assert shown.streams < 1e-5
    if shown.attention is not None:
        assert shown.attention < 1e-5
        own = guards.model_outputs(loaded, tokens_WT, "attentions")
        # patterns that can be told apart
        assert min(float(one.std(dim=-1).mean()) for one in own) > 0.01
    assert "the last gives the last hidden state" in guards.check_final_norm(loaded, tokens_WT[0])


def test_every_entry_has_a_row():
    # the tower of CLIP has one
    assert {made(row).model.config.model_type for row in HERE.values()} >= set(ADAPTERS) - {"clip"}
    # a convolution after block 1 is no entry
    assert adapter_name(transformers.DebertaV2Config(conv_kernel_size=3)) not in ADAPTERS
    assert adapter_name(transformers.DebertaV2Config()) in ADAPTERS


SOFTMAX = "softmax of queries and keys differs from the model's own attention by"


@pytest.mark.parametrize(
    ("name", "entry", "words"),
    [
        ("Bloom", {"score_exponent": 0.0}, SOFTMAX),
        ("GPT-Neo", {"score_exponent": 0.5}, SOFTMAX),
        ("GPT-J", {"score_exponent": None}, "attention ran 0 times in 3 blocks"),
        ("CANINE", {"stack_path": None}, "6 layers ran, 4 were expected"),
        ("EuroBERT", {"final_norm": None}, "differs from the last hidden state"),
        ("OPT-350m", {"final_projection": None}, "differs from the last hidden state"),
        ("ByT5", {"block_class": "T5LayerSelfAttention"}, "differs from the last hidden state"),
    ],
)
def test_a_wrong_entry_is_refused(name, entry, words):
    loaded = made(HERE[name])
    wrong = loaded._replace(adapter=loaded.adapter._replace(**entry))
    tokens_WT = read_by(loaded, name)
    with pytest.raises(UserError, match=words) as error:  # noqa: PT012
        guards.check_final_norm(wrong, tokens_WT[0])
        guards.check_attention(wrong, tokens_WT)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["Gemma 2", "DeBERTa-v3"])
def test_scores_that_are_more_than_queries_and_keys_are_told(name, capsys, monkeypatch):
    """The residual stream is measured; the family attention is refused, and left out of all."""
    loaded = made(HERE[name])
    words = r"its scores.*; leave the families attention and projection out"
    with pytest.raises(UserError, match=words):
        guards.check_attention(loaded, read_by(loaded, name)[:2])

    def measured(plan, loaded):
        raise UserError(", ".join(plan.config.measure.families))

    monkeypatch.setattr(measure_model, "measure_alone", measured)
    given = {"window": 16, "points": 64, "batches": 1, "families": "all"}
    pair = loaded.model, tiny_models.tokenizer()
    with pytest.raises(ValueError, match=r"spectrum, .*hubness$"):
        anisoscope.measure_model(pair, [tiny_models.text(6000)], **given)
    config = PretrainedConfig()
    left = drop_unmeasurable(config, loaded.model.config, "here")
    assert {*config.measure.families} - {*left.measure.families} == {"attention", "projection"}
    assert "family projection is left out" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["Bloom", "ModernBERT, moderncamembert"])
def test_the_panel_reads_the_model_s_own_patterns(name):
    """With a bias beside the scores, and with keys that differ from block to block."""
    loaded = made(HERE[name])
    tokens_WT = np.random.default_rng(1).integers(4, 40, (4, 24)).astype(np.int32)
    seen, _ = guards.check_attention(loaded, tokens_WT[:2])
    assert (seen.bias_NHTT is None) == (name != "Bloom")
    windows = tiny_models.windows_of(tokens_WT)
    settings = MeasureConfig(points=64, batches=1, folds=2, families=("attention",), nulls=())
    read = read_activations(loaded, tokens_WT[None], 2, heads=True)
    read, visible = read._replace(bias_NHTT=seen.bias_NHTT), visible_sets(seen.visible_NTT, windows)
    picks_SP = windows.probe.picks_SGP[:, 0]
    values = activations.measure_batch(0, read, {}, picks_SP, visible, settings).values[MEASURED]
    own = torch.stack(guards.model_outputs(loaded, tokens_WT, "attentions")).double().numpy()
    entropy_NWHT = -np.where(own > 0, own * np.log(np.where(own > 0, own, 1)), 0).sum(-1)
    chooses_NT = seen.visible_NTT.sum(-1) >= 2
    expected = [entropy_NWHT[n][..., chooses_NT[n]].mean((0, 2)) for n in range(len(own))]
    found = values["attention_entropy"][0, 0, ..., 0]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert np.std(found) > 0.01


def test_of_a_class_without_an_entry_hidden_states_are_taken(tmp_path):
    """From the command line: a line says so, and queries and keys are left out."""
    sizes = tiny_models.SIZES | {"num_key_value_heads": 2, "pad_token_id": 0, "head_dim": 8}
    loaded, tokens_WT = made(Row("HeliumForCausalLM", sizes)), tiny_models.tokens()
    assert loaded.adapter == UNKNOWN
    found = read_activations(loaded, tokens_WT[None], 2).resid_ZLBTD[0]
    own = guards.model_outputs(loaded, tokens_WT, "hidden_states")
    np.testing.assert_allclose(found, torch.stack(own).detach().numpy(), atol=1e-5)
    with pytest.raises(UserError, match="HeliumForCausalLM has no entry"):
        guards.check_attention(loaded, tokens_WT)
    with pytest.raises(UserError, match="blocks of HeliumForCausalLM are not known"):
        clamp_coordinates(loaded, 1.0, tokens_WT, 2)
    bart = {"vocab_size": 40, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2}
    bart |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    with pytest.raises(UserError, match="0 layers ran, 3 were expected"):
        guards.check_final_norm(made(Row("BartModel", bart)), tokens_WT[0])
    funnel = {"vocab_size": 40, "block_sizes": [2, 1], "d_model": 32, "n_head": 4, "d_head": 8}
    shrinks = made(Row("FunnelBaseModel", funnel | {"d_inner": 48}))
    with pytest.raises(UserError, match=r"shape \(6, 32\), other layers have \(12, 32\)"):
        read_activations(shrinks, tokens_WT[None], 4)
    tiny_models.save(loaded.model, tmp_path / "model")
    (tmp_path / "text.txt").write_text(tiny_models.text())
    process = tiny_models.done(
        f"--config=experiments/pretrained.py:{tmp_path / 'model'}",
        f"--config.data.path={tmp_path / 'text.txt'}",
        *("--config.window=16", "--config.measure.points=64", "--config.measure.folds=2"),
        *("--config.measure.batches=1", "--config.measure.families=spectrum,attention"),
        *("--config.measure.nulls=()", "--config.pretrained.max_bits_per_byte=100"),
        *(f"--workdir={tmp_path / 'run'}", "--stages=measure"),
    )
    assert "family attention is left out" in process.stdout
    results = joined_files.read_table(tmp_path / "run" / "results.nc")
    assert "the last may be after a final norm" in results.attrs["residual_stream"]
    assert "attention_entropy" not in results
    assert results.sizes["layer"] == 4


def test_characters_that_share_a_position():
    """CANINE: the first token is character 0, each further one four characters, the last has none."""
    loaded = made(HERE["CANINE"])
    windows = tiny_models.windows(tokens_per_position=4)
    joined = tokens_at_positions(np.arange(12), 4)
    np.testing.assert_array_equal(joined, [[0] * 4, [0, 1, 2, 3], [4, 5, 6, 7]])
    tokens_WT = windows.probe.tokens_GWT[0]
    assert tokens_WT.shape[-1] == 24
    assert windows.probe.picks_SGP.max() < len(tokens_WT) * 6
    seen, _ = guards.check_attention(loaded, tokens_WT[:2])
    assert visible_sets(seen.visible_NTT, windows).shape == (2, 6, 6)
