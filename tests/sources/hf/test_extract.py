"""What a model's layers and heads are captured as, and clamped to."""

import jax
import numpy as np
import pytest
import torch

from anisoscope.config.model_config import ModelConfig
from anisoscope.models.transformer import build
from anisoscope.sources.hf import guards
from anisoscope.sources.hf.adapters import find_adapter
from anisoscope.sources.hf.extract import clamp_coordinates, forward, read_activations
from anisoscope.utils.errors import UserError
from tests.program import refuse
from tests.sources.hf import own_in_torch, tiny_models

TOKENS = tiny_models.tokens()


def streams(loaded, **options):
    return read_activations(loaded, TOKENS[None], 4, **options).resid_ZLBTD[0]


@pytest.mark.parametrize("kind", ["albert", "llama"])
def test_batches_and_inputs_are_put_together(kind):
    """Without a fused kernel numbers are nearly the same, not quite: that is the noise floor."""
    loaded = tiny_models.loaded(kind)
    tokens_ZWT = np.stack([tiny_models.tokens(5), tiny_models.tokens(5)[::-1]])
    whole, parts = (read_activations(loaded, tokens_ZWT, size, heads=True) for size in (5, 2))
    plain = read_activations(loaded, tokens_ZWT, 1, heads=True, plain=True)
    for one, other, another in zip(whole[:3], parts[:3], plain[:3], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
        np.testing.assert_allclose(one, another, atol=1e-5)
        np.testing.assert_allclose(one[1], one[0][:, ::-1], atol=1e-5)
    assert (whole.resid_ZLBTD != plain.resid_ZLBTD).any()


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_our_network_is_the_one_of_transformers(positions):
    """Streams, scores and logits with the same weights, scores far from 0."""
    model = ModelConfig(layers=3, width=24, heads=3, context=12, position_encoding=positions)
    network = build(model, tiny_models.VOCABULARY, "float32")
    params = jax.tree.map(lambda leaf: 4 * leaf + 0.05, network.init(jax.random.key(0)))
    logits_BTV, ours = jax.jit(network.apply)(params, TOKENS)
    theirs = own_in_torch.in_torch(model, params)
    loaded = tiny_models.as_loaded(theirs, find_adapter(theirs.config.model_type))
    np.testing.assert_allclose(logits_BTV, forward(loaded, TOKENS, theirs).logits, atol=1e-4)
    resid, q, k = (x[0] for x in read_activations(loaded, TOKENS[None], 2, True)[:3])
    np.testing.assert_allclose(ours.resid_LBTD, resid, atol=1e-4)
    scores, own = (
        np.einsum("nbthk,nbshk->nbhts", *pair) for pair in ((ours.q_NBTHK, ours.k_NBTHK), (q, k))
    )
    np.testing.assert_allclose(scores, own, atol=1e-3, rtol=1e-4)


def test_numbers_that_are_not_finite_are_told_with_their_layer():
    loaded = tiny_models.loaded("llama")
    with torch.no_grad():
        loaded.model.model.layers[1].mlp.down_proj.weight.fill_(3e38)
    with pytest.raises(UserError, match=r"residual stream of layer 2 holds numbers .* not finite"):
        streams(loaded)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_layer_that_a_later_block_changes_in_place_is_read_as_it_was(kind):
    loaded = tiny_models.loaded(kind)
    own = streams(loaded)
    loaded.block_modules[1].register_forward_pre_hook(lambda _, args: (args[0].mul_(2), *args[1:]))
    changed = streams(loaded)
    np.testing.assert_array_equal(changed[1], own[1])
    assert not np.allclose(changed[2], own[2])


def test_hidden_states_as_the_papers_have_them(monkeypatch):
    """Outputs of blocks, but for the last of a model with a final norm."""
    for kind, last in (("opt", False), ("llama", False), ("bert", True)):
        loaded = tiny_models.loaded(kind)
        blocks, stated = streams(loaded), streams(loaded, reported=True)
        own = forward(loaded, TOKENS, output_hidden_states=True).hidden_states
        np.testing.assert_array_equal(stated, torch.stack(own).numpy())
        np.testing.assert_allclose(stated[:-1], blocks[:-1], atol=1e-6)
        assert np.allclose(stated[-1], blocks[-1], atol=1e-6) == last
        end = "layers none" if last else "layers 3"
        assert guards.check_reported(loaded, TOKENS[0]).endswith(end)
    run, without = loaded.base.forward, {"output_hidden_states": False}
    monkeypatch.setattr(loaded.base, "forward", lambda **given: run(**given | without))
    with pytest.raises(UserError, match="reports 0 hidden states"):
        guards.check_reported(loaded, TOKENS[0])


@pytest.mark.parametrize("kind", ["albert", "gpt2", "llama"])
def test_no_coordinate_is_larger_after_any_block_and_later_blocks_read_that(kind):
    loaded = tiny_models.loaded(kind)
    before = streams(loaded)
    most = float(np.quantile(np.abs(before[1]), 0.9))
    words = clamp_coordinates(loaded, most, TOKENS, 2)
    after = streams(loaded)
    np.testing.assert_array_equal(after[0], before[0])  # the embeddings stay
    np.testing.assert_allclose(after[1], before[1].clip(-most, most), atol=1e-6)
    assert np.abs(after[1:]).max() <= most
    assert f"of {before[1:, ..., 0].size} vectors" in words
    # the second block read other vectors
    assert not np.allclose(after[3], before[3].clip(-most, most), atol=1e-3)
    assert guards.check_attention(loaded, TOKENS[:2])


def test_what_clamps_nothing_is_refused(training, tmp_path):
    with pytest.raises(UserError, match="no coordinate is larger"):
        clamp_coordinates(tiny_models.loaded("llama"), 1e9, TOKENS, 2)
    # a revision that has none yet
    early = clamp_coordinates(tiny_models.loaded("llama"), 1e9, TOKENS, 2, needed=False)
    assert "in 0 of 144 vectors" in early
    name = f"--config=experiments/pretrained.py:{training / 'step60'}"
    words = "pretrained.clamp is -1.0; it must be above 0"
    refuse(tmp_path / "run", words, name, "--config.pretrained.clamp=-1.0")
