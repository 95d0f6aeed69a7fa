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
from anisoscope.sources.hf import guards, logits
from anisoscope.sources.hf.adapters import ADAPTERS
from anisoscope.sources.hf.revision_sweep import drop_unmeasurable
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import reference_logit_lens as reference
from tests.sources.hf import tiny_models
from tests.sources.hf.architectures import TEXT, Row, build

TASKS = {name: guards.head_task(row.model) for name, row in TEXT.items()}
DECODERS = [name for name, task in TASKS.items() if task == guards.NEXT_TOKEN]
CAPPED = Row("Gemma2ForCausalLM", TEXT["Gemma 2"].settings | {"final_logit_softcapping": 0.5})
SMALL = {"window": 16, "points": 64, "batches": 1, "families": "logit_lens", "nulls": ()}


def scatter(row):
    """Build a model whose norms and biases are no ones and zeros."""
    loaded = build(row)
    with torch.no_grad():
        for name, parameter in loaded.model.named_parameters():
            if parameter.ndim == 1:
                generator = torch.Generator().manual_seed(len(name))
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return loaded


@pytest.mark.parametrize("name", DECODERS)
def test_of_every_decoder_the_last_layer_is_read_as_the_model_s_own_logits(name):
    loaded = scatter(CAPPED if name == "Gemma 2" else name)
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
    """Windows begin and end with special tokens: none of these is a target."""
    loaded, kept, batch = scatter("SmolLM2"), [], activations.measure_batch
    monkeypatch.setattr(
        activations, "measure_batch", lambda *given: kept.append(given) or batch(*given)
    )
    pair = loaded.model, tiny_models.tokenizer(framed=True)
    with pytest.warns(UserWarning, match="bits per byte"):
        table = anisoscope.measure_model(pair, [tiny_models.text()], special_tokens=True, **SMALL)
    (_, read_Z, _, picks_SP, *_), *_ = kept
    target_P = read_Z.target_ZBT[0].ravel()[picks_SP[0]]
    resid_NPD = read_Z.resid_ZLBTD[0].reshape(4, -1, 32)[:, picks_SP[0]]
    head, norm = (x.weight.detach().numpy() for x in (pair[0].lm_head, pair[0].model.norm))
    rest = target_P, head.T, "rms", norm, 0.0, pair[0].config.rms_norm_eps
    own = table.sel(positions="all", statistic="mean")
    names = ("entropy", "divergence", "loss", "rank", "settled")
    for name, value_NP in zip(names, reference.lens(resid_NPD, *rest), strict=True):
        value_NP = -value_NP / np.log(2) if name == "loss" else value_NP
        expected = np.nanmean(value_NP, axis=1)
        np.testing.assert_allclose(own[f"logit_lens_{name}"], expected, rtol=1e-4, atol=1e-5)
    assert (read_Z.target_ZBT[0][:, -2:] == -1).all()
    assert (read_Z.target_ZBT[0][:, :-2] >= 0).all()
    assert own.logit_lens_divergence.isel(layer=-1) == 0


@pytest.mark.parametrize(
    ("name", "kept"),
    [("BertForMaskedLM", False), ("HeliumForCausalLM", False), ("LlamaForCausalLM", True)],
)
def test_what_has_no_such_head_is_left_out(name, kept):
    settings = getattr(transformers, name).config_class(architectures=[name])
    config = replace(PretrainedConfig(), {"measure.families": ("spectrum", "logit_lens")})
    families = drop_unmeasurable(config, settings, "here").measure.families
    assert families == ("spectrum", "logit_lens")[: 1 + kept]


def test_half_precision_is_read_in_float32_and_what_is_missing_refused():
    model = tiny_models.model("llama").to(torch.bfloat16)
    loaded = tiny_models.as_loaded(model, ADAPTERS["llama"], "bfloat16")
    unembedding = logits.make_unembedding(loaded)
    assert unembedding.unembedding_DV.dtype == np.float32
    logits.check_logits(loaded, unembedding, tiny_models.tokens()[0])
    with torch.device("meta"):
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**tiny_models.SIZES))
    with pytest.raises(UserError, match=r"leave pretrained\.device_map out"):
        logits.make_unembedding(tiny_models.as_loaded(model, ADAPTERS["llama"]))
    pair = tiny_models.model("bert"), tiny_models.tokenizer()
    with pytest.raises(ValueError, match=r"BertModel has no head of norm and matrix"):
        anisoscope.measure_model(pair, [tiny_models.text()], **SMALL)
