"""The logit lens of pretrained decoders: logits of the last layer are the model's own, whatever its
norm and head.
"""

import numpy as np
import pytest
import torch
import transformers

import anisoscope
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources import activations
from anisoscope.sources.hf import guards, logits, measure_model
from anisoscope.sources.hf.adapters import ADAPTERS, find_adapter
from anisoscope.sources.hf.revision_sweep import drop_unmeasurable
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import reference_logit_lens as reference
from tests.sources.hf import tiny_models
from tests.sources.hf.rows.__main__ import ROWS
from tests.sources.hf.rows.row import Row, made

DECODERS = [
    name
    for name, row in ROWS.items()
    if row.model and guards.head_task(row.model) == guards.NEXT_TOKEN
]
CAPPED = Row("Gemma2ForCausalLM", ROWS["Gemma 2"].settings | {"final_logit_softcapping": 0.5})
SMALL = {"window": 16, "points": 64, "batches": 1, "families": "logit_lens", "nulls": ()}


def scattered(row):
    """Norms and biases that are no ones and zeros."""
    loaded = made(row)
    with torch.no_grad():
        for name, parameter in loaded.model.named_parameters():
            if parameter.ndim == 1:
                parameter += 0.3 * torch.randn(
                    parameter.shape, generator=torch.Generator().manual_seed(len(name))
                )
    return loaded


@pytest.mark.parametrize("name", DECODERS)
def test_of_every_decoder_the_last_layer_is_read_as_the_model_s_own_logits(name):
    loaded = scattered(CAPPED if name == "Gemma 2" else ROWS[name])
    unembedding, tokens_T = logits.make_unembedding(loaded), tiny_models.tokens()[0]
    assert float(logits.check_logits(loaded, unembedding, tokens_T).split()[-1]) < 1e-5
    wrong = [unembedding._replace(unembedding_DV=unembedding.unembedding_DV * 1.01)]
    if loaded.adapter.final_norm != "decoder.final_layer_norm" or name == "OPT":
        wrong.append(unembedding._replace(divides=0 * unembedding.divides))
    wrong += [unembedding._replace(cap=None)] if name == "Gemma 2" else []
    wrong += [unembedding._replace(bias_V=None)] if name in ("GPT-J", "Phi-1, 2") else []
    for one in wrong:
        with pytest.raises(UserError, match=r"differ from its logits"):
            logits.check_logits(loaded, one, tokens_T)


def test_every_layer_is_read_so_and_told_the_next_token(monkeypatch):
    """Of windows that special tokens begin and end: none of these is told."""
    loaded, kept = scattered(ROWS["SmolLM2"]), []
    batch = activations.measure_batch
    monkeypatch.setattr(
        activations, "measure_batch", lambda *given: kept.append(given) or batch(*given)
    )
    given = SMALL | {"special_tokens": True}
    with pytest.warns(UserWarning, match="bits per byte"):
        table = anisoscope.measure_model(
            loaded.model,
            [tiny_models.text()],
            tokenizer=tiny_models.tokenizer(framed=True),
            **given,
        )
    (_, read_Z, _, picks_SP, *_), *_ = kept
    target_P = read_Z.target_ZBT[0].ravel()[picks_SP[0]]
    resid_NPD = read_Z.resid_ZLBTD[0].reshape(4, -1, 32)[:, picks_SP[0]]
    weights = (
        loaded.model.lm_head.weight.detach().numpy().T,
        "rms",
        loaded.model.model.norm.weight.detach().numpy(),
    )
    expected = reference.lens(resid_NPD, target_P, *weights, 0.0, loaded.model.config.rms_norm_eps)
    own = table.sel(positions="all", statistic="mean")
    for name, value_NP in zip(
        ("entropy", "divergence", "loss", "rank", "settled"), expected, strict=True
    ):
        value_NP = -value_NP / np.log(2) if name == "loss" else value_NP
        np.testing.assert_allclose(
            own[f"logit_lens_{name}"], np.nanmean(value_NP, axis=1), rtol=1e-4, atol=1e-5
        )
    assert (read_Z.target_ZBT[0][:, -2:] == -1).all()
    assert (read_Z.target_ZBT[0][:, :-2] >= 0).all()
    assert "own logits" in table.attrs["logit_lens"]
    assert own.logit_lens_divergence.isel(layer=-1) == 0


def test_what_has_no_such_head_is_left_out_of_all_and_refused_by_name(capsys):
    given = {"tokenizer": tiny_models.tokenizer()} | SMALL
    with pytest.raises(ValueError, match=r"BertModel has no head of norm and matrix"):
        anisoscope.measure_model(tiny_models.model("bert"), [tiny_models.text()], **given)
    both = ("spectrum", "logit_lens")
    for kind, left in (("bert", both[:1]), ("llama", both)):
        assert measure_model.measurable_families(tiny_models.loaded(kind), both) == left
    config = replace(PretrainedConfig(), {"measure.families": both})
    for kind, name, left in (
        ("bert", "BertForMaskedLM", both[:1]),
        ("helium", "HeliumForCausalLM", both[:1]),
        ("llama", "LlamaForCausalLM", both),
    ):
        found = drop_unmeasurable(config, find_adapter(kind), kind, name, "here")
        assert found.measure.families == left
    assert "family logit_lens is left out" in capsys.readouterr().out


def test_half_precision_is_read_in_float32():
    loaded = tiny_models.as_loaded(
        tiny_models.model("llama").to(torch.bfloat16), ADAPTERS["llama"], "bfloat16"
    )
    unembedding = logits.make_unembedding(loaded)
    assert unembedding.unembedding_DV.dtype == np.float32
    logits.check_logits(loaded, unembedding, tiny_models.tokens()[0])


def test_offloaded_weights_are_refused():
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**tiny_models.SIZES))
    with pytest.raises(UserError, match=r"leave pretrained\.device_map out"):
        logits.make_unembedding(tiny_models.as_loaded(model, ADAPTERS["llama"]))
