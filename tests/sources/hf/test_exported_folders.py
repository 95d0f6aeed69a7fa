"""Models of ours as transformers reads them: the same logits, the same tokens."""

import jax
import numpy as np
import pytest
import torch
import transformers

from anisoscope.config.model_config import ModelConfig
from anisoscope.models.transformer import build
from anisoscope.sources.hf import folders
from tests.sources.hf import tiny_models

TEXT = "Zwölf Boxkämpfer jagen\n\tViktor · [[Sylt|quer]] über <den> großen Deich."
VOCABULARY = bytes(sorted(set(TEXT.encode())))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"position_encoding": "rotary", "tied": False},
        {"activation": "gelu_tanh", "bias": False, "expansion": 3},
    ],
    ids=str,
)
def test_what_is_written_has_the_same_logits_and_tokens(tmp_path, changes):
    model = ModelConfig(**{"layers": 3, "width": 24, "heads": 3, "context": 40} | changes)
    network = build(model, len(VOCABULARY) + 1, "float32")
    # scores far from 0
    params = jax.tree.map(lambda leaf: 4 * leaf + 0.05, network.init(jax.random.key(0)))
    folders.write_folder(tmp_path / "out", model, params, VOCABULARY, {"step": 3})
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    ids = tokenizer(TEXT)["input_ids"]
    assert ids == [VOCABULARY.index(byte) for byte in TEXT.encode()]
    assert tokenizer.decode(ids) == TEXT
    assert tokenizer("€")["input_ids"] == [tokenizer.mask_token_id] * 3 == [len(VOCABULARY)] * 3
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert type(theirs).__name__ == folders.find_class(model).name
    tokens = np.array([ids[:40], ids[-40:]], np.int32)
    with torch.no_grad():
        logits = theirs(torch.tensor(tokens).long()).logits.numpy()
    np.testing.assert_allclose(jax.jit(network.apply)(params, tokens)[0], logits, atol=1e-4)


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("gpt2", {}),
        ("gpt2", {"activation_function": "gelu"}),
        ("gpt_neox", {"use_parallel_residual": False, "rotary_pct": 1.0, "intermediate_size": 64}),
    ],
    ids=str,
)
def test_what_transformers_writes_is_read(tmp_path, kind, changes):
    theirs = tiny_models.model(kind, **changes)
    theirs.save_pretrained(tmp_path / "theirs")
    model, params, _ = folders.read_folder(tmp_path / "theirs")
    tokens = tiny_models.tokens()
    with torch.no_grad():
        logits = theirs(torch.tensor(tokens).long()).logits.numpy()
    ours = jax.jit(build(model, logits.shape[-1], "float32").apply)(params, tokens)[0]
    np.testing.assert_allclose(ours, logits, atol=1e-4)
