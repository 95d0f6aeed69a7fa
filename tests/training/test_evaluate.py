import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from training import evaluate


def scored_characters(config, tokens_N):
    """How often each character of the split is a counted target, when tokens are their own positions."""
    batch, protocol = evaluate.test_batch(config, np.arange(tokens_N), 10_000)
    counts = np.zeros(tokens_N, int)
    np.add.at(counts, np.asarray(batch.targets_BT)[np.asarray(batch.weights_BT) > 0], 1)
    return batch, counts, protocol


@pytest.mark.parametrize("characters", [9, 10, 16, 17, 23, 100])
@pytest.mark.parametrize("stride", [None, 1, 3, 8])
def test_every_character_but_the_first_is_scored_once(characters, stride):
    config = tiny.config()
    config.evaluate.stride = stride
    batch, counts, protocol = scored_characters(config, characters)
    assert counts[0] == 0
    assert (counts[1:] == 1).all()
    assert f"stride {stride or 4}" in protocol
    later = np.asarray(batch.weights_BT)[1:-1]
    assert (later.sum(1) == (stride or 4)).all()


def test_masked_windows_overlap_only_where_nothing_is_counted_twice():
    config = tiny.config()
    config.objective, config.model.mask = "masked", "bidirectional"
    _, counts, protocol = scored_characters(config, 999)
    assert counts.max() == 1
    assert 0.05 < counts.mean() < 0.25
    assert "15 %" in protocol


def test_validation_windows_are_fixed_inside_the_split_and_never_more_than_there_are():
    config = tiny.config()
    batch = evaluate.valid_batch(config, np.arange(100), 1000)
    assert batch.tokens_BT.shape == (8, 8)
    assert batch.targets_BT.max() == 99
    assert evaluate.valid_batch(config, np.arange(9), 1000).tokens_BT.shape == (1, 8)


def test_scores_are_nats_per_counted_character_whatever_the_padding():
    """A uniform model over V characters costs ln V nats, log2 V bits."""
    config = tiny.config()
    batch, _ = evaluate.test_batch(config, np.zeros(100, np.uint8), 7)
    for rows in (1, 4, 7, 64):
        score = evaluate.make_scorer(
            lambda params, x_BT: (params + jnp.zeros((*x_BT.shape, 8)), None), jax.device_put, rows
        )
        result = score(jnp.zeros(()), jax.tree.map(np.asarray, batch))
        assert result.characters == 99
        assert math.isclose(result.bits_per_character, 3.0, rel_tol=1e-6)
        assert math.isclose(result.loss, math.log(8), rel_tol=1e-6)
