import numpy as np
import pytest
import torch

from anisoscope.sources.hf.extract import read_activations
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models


@pytest.mark.parametrize("kind", ["albert", "llama"])
def test_batches_and_inputs_are_put_together(kind):
    """And without a fused kernel the numbers are nearly the same, not quite: that is the noise
    floor.
    """
    loaded, tokens_ZWT = (
        tiny_models.loaded(kind),
        np.stack([tiny_models.tokens(5), tiny_models.tokens(5)[::-1]]),
    )
    whole, parts = (read_activations(loaded, tokens_ZWT, size, heads=True) for size in (5, 2))
    plain = read_activations(loaded, tokens_ZWT, 1, heads=True, plain=True)
    for one, other, another in zip(whole[:3], parts[:3], plain[:3], strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
        np.testing.assert_allclose(one, another, atol=1e-5)
        np.testing.assert_allclose(one[1], one[0][:, ::-1], atol=1e-5)
    assert (whole.resid_ZLBTD != plain.resid_ZLBTD).any()


def test_numbers_that_are_not_finite_are_told_with_their_layer():
    loaded = tiny_models.loaded("llama")
    with torch.no_grad():
        loaded.model.model.layers[1].mlp.down_proj.weight.fill_(3e38)
    with pytest.raises(
        UserError, match="residual stream of layer 2 holds numbers that are not finite"
    ):
        read_activations(loaded, tiny_models.tokens()[None], 4, heads=False)


@pytest.mark.parametrize("kind", ["gpt2", "bert"])
def test_a_layer_that_a_later_block_changes_in_place_is_read_as_it_was(kind):
    loaded, ids = tiny_models.loaded(kind), tiny_models.tokens()[None]
    own = read_activations(loaded, ids, 4, heads=False).resid_ZLBTD
    loaded.block_modules[1].register_forward_pre_hook(lambda _, args: (args[0].mul_(2), *args[1:]))
    changed = read_activations(loaded, ids, 4, heads=False).resid_ZLBTD
    np.testing.assert_array_equal(changed[0, 1], own[0, 1])
    assert not np.allclose(changed[0, 2], own[0, 2])
