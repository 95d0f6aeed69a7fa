import numpy as np
import pytest
import torch

from anisoscope.sources.hf import guards
from anisoscope.sources.hf.clamp import clamp_coordinates
from anisoscope.sources.hf.extract import read_activations
from anisoscope.utils.errors import UserError
from tests.program import refuse
from tests.sources.hf import tiny_models


def streams(loaded):
    return read_activations(
        loaded, tiny_models.tokens()[None], batch_size=4, heads=False
    ).resid_ZLBTD[0]


@pytest.mark.parametrize("kind", ["albert", "gpt2", "llama"])
def test_no_coordinate_is_larger_after_any_block_and_later_blocks_read_that(kind):
    before, loaded = streams(tiny_models.loaded(kind)), tiny_models.loaded(kind)
    most = float(np.quantile(np.abs(before[1]), 0.9))
    words = clamp_coordinates(loaded, most, tiny_models.tokens(), 2)
    after = streams(loaded)
    np.testing.assert_array_equal(after[0], before[0])  # the embeddings stay
    np.testing.assert_allclose(after[1], before[1].clip(-most, most), atol=1e-6)
    assert np.abs(after[1:]).max() <= most
    over = (np.abs(before[1]) > most).any(-1)
    assert "after 3 of 3 blocks, from block 1 on" in words
    assert f"of {over.size} vectors" in words
    # the second block read other vectors
    assert not np.allclose(after[3], before[3].clip(-most, most), atol=1e-3)
    assert guards.check_final_norm(loaded, tiny_models.tokens()[0])
    assert "softmax of q and k" in guards.check_attention(loaded, tiny_models.tokens()[:2])[1]


def test_massive_vectors_are_counted_by_place():
    """A large embedding of the token that all windows begin with, and that is nowhere else."""
    loaded, tokens = tiny_models.loaded("llama"), tiny_models.tokens()
    tokens[:, 0] = 0
    with torch.no_grad():
        loaded.base.get_input_embeddings().weight[0, 5] = 500.0
    words = clamp_coordinates(loaded, 50.0, tokens, 3)
    assert (
        f"at most 4 of {tokens.size} vectors, 4 of them the first token; the largest was 502, after block 1"
        in words
    )


def test_what_clamps_nothing_is_refused(training, tmp_path):
    with pytest.raises(UserError, match="no coordinate of the residual stream exceeds"):
        clamp_coordinates(tiny_models.loaded("llama"), 1e9, tiny_models.tokens(), 2)
    # a revision that has none yet
    early = clamp_coordinates(
        tiny_models.loaded("llama"), 1e9, tiny_models.tokens(), 2, needed=False
    )
    assert early.endswith("nothing is clamped to 1e+09")
    name = f"--config=experiments/pretrained.py:{training / 'step60'}"
    refuse(
        tmp_path / "run",
        "pretrained.clamp is -1.0; it must be above 0",
        name,
        "--config.pretrained.clamp=-1.0",
    )
