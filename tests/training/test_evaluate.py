import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests import tiny
from training import evaluate, program
from workdir.errors import Stopped, UserError
from workdir.settings import replace


def scored_characters(config, characters, rows=3):
    """How often each character of the split is a counted target, when tokens are their own positions."""
    windows, protocol = evaluate.test_windows(config, characters)
    counts = np.zeros(characters, int)
    for batch in evaluate.batches(config, np.arange(characters), windows, 10_000, rows):
        assert batch.tokens_BT.shape == (rows, config.model.context)
        np.add.at(counts, np.asarray(batch.targets_BT)[np.asarray(batch.weights_BT) > 0], 1)
    return windows, counts, protocol


@pytest.mark.parametrize("characters", [9, 10, 16, 17, 23, 100])
@pytest.mark.parametrize("stride", [None, 1, 3, 8])
def test_every_character_but_the_first_is_scored_once(characters, stride):
    config = tiny.config()
    config = replace(config, {"evaluate.stride": stride})
    windows, counts, protocol = scored_characters(config, characters)
    assert counts[0] == 0
    assert (counts[1:] == 1).all()
    assert f"stride {stride or 4}" in protocol
    assert (windows.fresh_M[1:-1] == (stride or 4)).all()


@pytest.mark.parametrize("prefix", [1, 3, 7])
@pytest.mark.parametrize("stride", [None, 1, 2])
@pytest.mark.parametrize("characters", [9, 16, 100])
def test_under_a_prefix_every_later_character_is_scored_once(characters, stride, prefix):
    config = tiny.config()
    config = replace(config, {"model.mask": "prefix", "model.prefix": prefix, "evaluate.stride": stride})
    _, counts, protocol = scored_characters(config, characters)
    assert (counts[:prefix] == 0).all()
    assert (counts[prefix:] == 1).all()
    assert (f"but for its first {prefix} characters" in protocol) == (prefix > 1)
    windows = evaluate.valid_windows(config, characters)
    (batch,) = evaluate.batches(config, np.arange(characters), windows, 1000, len(windows.starts_M))
    np.testing.assert_array_equal(batch.weights_BT, np.tile(np.arange(8) >= prefix - 1, (len(windows.starts_M), 1)))


def test_masked_windows_overlap_only_where_nothing_is_counted_twice():
    config = tiny.config()
    config = replace(config, {"objective": "masked", "model.mask": "bidirectional"})
    _, counts, protocol = scored_characters(config, 999)
    assert counts.max() == 1
    assert 0.05 < counts.mean() < 0.25
    assert "15 %" in protocol


def test_validation_windows_are_fixed_inside_the_split_and_never_more_than_there_are():
    config = tiny.config()
    windows = evaluate.valid_windows(config, 100)
    assert len(windows.starts_M) == 8
    (batch,) = evaluate.batches(config, np.arange(100), windows, 1000, 8)
    assert batch.targets_BT.max() == 99
    assert (batch.weights_BT == 1).all()
    assert len(evaluate.valid_windows(config, 9).starts_M) == 1


@pytest.mark.parametrize("rows", [1, 4, 7, 64])
def test_scores_are_nats_per_counted_character_whatever_the_padding(rows):
    """A uniform model over V characters costs ln V nats, log2 V bits."""
    config = tiny.config()
    windows, _ = evaluate.test_windows(config, 100)

    def uniform(params, x_BT):
        return params + jnp.zeros((*x_BT.shape, 8)), None

    score = evaluate.make_scorer(uniform, config, 7, jax.device_put, rows, jax.vmap)
    (result,) = score(jnp.zeros(1), np.zeros(100, np.uint8), windows)
    assert result.characters == 99
    assert math.isclose(result.bits_per_character, 3.0, rel_tol=1e-6)
    assert math.isclose(result.loss, math.log(8), rel_tol=1e-6)


def test_masks_of_an_evaluation_do_not_depend_on_the_batch_size():
    config = tiny.config()
    config = replace(config, {"objective": "masked", "model.mask": "bidirectional"})
    windows, _ = evaluate.test_windows(config, 100)
    whole, parts = (
        np.concatenate([b.tokens_BT for b in evaluate.batches(config, np.arange(100), windows, 1000, rows)])
        for rows in (len(windows.starts_M), 5)
    )
    np.testing.assert_array_equal(whole, parts[: len(whole)])


def test_windows_without_a_masked_character_are_refused():
    config, corpus = tiny.config(), tiny.corpus()
    config = replace(config, {"model.context": 4, "evaluate.windows": 1})
    evaluate.check(config, corpus, rows=3)  # next character: all are scored
    config = replace(config, {"objective": "masked", "model.mask": "bidirectional"})
    with pytest.raises(UserError, match=r"no scored character in evaluate\.windows=1: none of 4 is masked; raise it"):
        program.check(config, corpus)
    config = replace(config, {"evaluate.windows": 8})
    program.check(config, corpus)
    corpus = dataclasses.replace(corpus, test=corpus.test[:5])
    with pytest.raises(UserError, match="no scored character in the test split: none of 4 is masked; take a longer"):
        program.check(config, corpus)


def test_a_check_between_two_batches_can_stop_the_scoring():
    config, seen = tiny.config(), []

    def check():
        seen.append(1)
        if len(seen) == 2:
            raise Stopped("there")

    windows, _ = evaluate.test_windows(config, 100)
    score = evaluate.make_scorer(
        lambda p, x_BT: (jnp.zeros((*x_BT.shape, 8)), None), config, 7, jax.device_put, 4, jax.vmap
    )
    with pytest.raises(Stopped):
        score(jnp.zeros(1), np.zeros(100, np.uint8), windows, "", check)
