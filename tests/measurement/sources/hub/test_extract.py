import numpy as np
import pytest
import torch

from anisoscope.measurement.sources.hub.adapters import Adapter
from anisoscope.measurement.sources.hub.reading.extract import activations
from anisoscope.utils.errors import UserError
from tests.measurement.sources.hub import tiny


@pytest.mark.parametrize("kind", ["albert", "llama"])
def test_batches_and_inputs_are_put_together(kind):
    """And without a fused kernel the numbers are nearly the same, not quite: that is the noise floor."""
    loaded, tokens_ZWT = tiny.loaded(kind), np.stack([tiny.tokens(5), tiny.tokens(5)[::-1]])
    whole, parts = (activations(loaded, tokens_ZWT, size, heads=True) for size in (5, 2))
    plain = activations(loaded, tokens_ZWT, 1, heads=True, plain=True)
    for one, other, another in zip(whole, parts, plain, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
        np.testing.assert_allclose(one, another, atol=1e-5)
        np.testing.assert_allclose(one[1], one[0][:, ::-1], atol=1e-5)
    assert (whole.resid_ZNWTD != plain.resid_ZNWTD).any()


@pytest.mark.parametrize(
    ("adapter", "words"),
    [
        (Adapter("NoSuchLayer", None), "0 layers were seen, of 3 blocks"),
        (Adapter("LlamaDecoderLayer", "norm", inner="num_attention_heads"), "4 layers were seen, of 12 blocks"),
    ],
)
def test_blocks_that_are_not_seen_are_told(adapter, words):
    with pytest.raises(UserError, match=words):
        activations(tiny.as_loaded(tiny.model("llama"), adapter), tiny.tokens()[None], 4, heads=False)


def test_attention_that_hands_on_nothing_is_told():
    """Of Bloom transformers computes attention in a way of its own, and says nothing when another is asked for."""
    import transformers

    settings = {"hidden_size": 32, "n_layer": 2, "n_head": 4, "vocab_size": tiny.VOCABULARY}
    bloom = transformers.BloomForCausalLM(transformers.BloomConfig(**settings)).eval()
    loaded = tiny.as_loaded(bloom, Adapter("BloomBlock", "ln_f"))
    assert activations(loaded, tiny.tokens()[None], 4, heads=False).resid_ZNWTD.shape == (1, 3, 4, 12, 32)
    with pytest.raises(UserError, match="attention was seen 0 times in 2 blocks"):
        activations(loaded, tiny.tokens()[None], 4, heads=True)


def test_numbers_that_are_not_finite_are_told_with_their_layer():
    loaded = tiny.loaded("llama")
    with torch.no_grad():
        loaded.model.model.layers[1].mlp.down_proj.weight.fill_(3e38)
    with pytest.raises(UserError, match="residual stream of layer 2 holds numbers that are not finite"):
        activations(loaded, tiny.tokens()[None], 4, heads=False)
