import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.training import evaluate, train_program
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import tiny


def scored_characters(config, characters, rows=3):
    """How often each character of the split is a counted target, when tokens are their own
    positions.
    """
    windows, protocol = evaluate.test_windows(config, characters)
    counts = np.zeros(characters, int)
    for batch in evaluate.batches(config, np.arange(characters), windows, 10_000, rows):
        assert batch.tokens_BT.shape == (rows, config.model.context)
        np.add.at(counts, np.asarray(batch.targets_BT)[np.asarray(batch.weights_BT) > 0], 1)
    return windows, counts, protocol


def prefixed(prefix, **changes):
    mask = {"model.mask": "prefix", "model.prefix": prefix} if prefix else {}
    return replace(tiny.config(), mask | changes)


CASES = [*((0, stride) for stride in (None, 1, 3, 8))]
CASES += [(prefix, stride) for prefix in (1, 3) for stride in (None, 1, 2)]


@pytest.mark.parametrize(("prefix", "stride"), CASES)
@pytest.mark.parametrize("characters", [9, 17, 100])
def test_every_character_after_the_first_or_the_prefix_is_scored_once(characters, prefix, stride):
    config = prefixed(prefix, **{"evaluate.stride": stride})
    windows, counts, protocol = scored_characters(config, characters)
    assert (counts == (np.arange(characters) >= max(prefix, 1))).all()
    assert (f"but for its first {prefix} characters" in protocol) == (prefix > 1)
    assert f"stride {stride or min(4, 9 - prefix)}" in protocol
    assert (windows.fresh_M[1:-1] == (stride or min(4, 9 - prefix))).all()
    windows = evaluate.valid_windows(config, characters)
    assert (np.diff(windows.starts_M) >= 8).all()  # an error over windows counts none twice
    (batch,) = evaluate.batches(config, np.arange(characters), windows, 1000, len(windows.starts_M))
    assert (np.asarray(batch.weights_BT) == (np.arange(8) >= prefix - 1)).all()


def test_masked_windows_overlap_only_where_nothing_is_counted_twice():
    config = replace(tiny.config(), {"objective": "masked", "model.mask": "bidirectional"})
    _, counts, protocol = scored_characters(config, 999)
    assert counts.max() == 1
    assert 0.05 < counts.mean() < 0.25
    assert "15 %" in protocol


def told_by_place(params, x_BT):
    """A model whose answer depends on what it reads and where: logits of 7 letters and [MASK]."""
    seen_BTV = jnp.cumsum(jax.nn.one_hot(x_BT, 8), axis=1)
    return params + jnp.sin(seen_BTV * jnp.arange(1.0, 9.0)[None, None]), None


def masked_config(**evaluation):
    settings = {f"evaluate.{name}": value for name, value in evaluation.items()}
    return replace(
        tiny.config(),
        {"objective": "masked", "model.mask": "bidirectional", "model.context": 40} | settings,
    )


def scorer(config, rows=16):
    return evaluate.make_scorer(told_by_place, config, 7, jax.device_put, rows, jax.vmap)


def test_a_gain_is_taken_from_the_frequencies_of_the_split_that_is_scored_in_float64():
    """By loops over the scored characters, whatever the padding of a batch; masked ones also in
    part, under [MASK].
    """
    tokens_N = tiny.corpus(2000).valid
    frequencies = [np.mean(tokens_N == v) for v in range(7)]
    plain = replace(tiny.config(), {"model.context": 40})
    for config, rows in ((plain, 3), (plain, 64), (masked_config(), 16)):
        windows = evaluate.valid_windows(config, tokens_N.size)
        free, model, masked = [], [], []
        for batch in evaluate.batches(config, tokens_N, windows, 7, 16):
            logits_BTV = np.asarray(told_by_place(0.0, batch.tokens_BT)[0], np.float64)
            for b, t in np.argwhere(np.asarray(batch.weights_BT)):
                y, x = int(batch.targets_BT[b, t]), int(batch.tokens_BT[b, t])
                joint = np.array(frequencies)
                if config.objective == "masked" and x != 7:
                    joint *= [0.1 * (x == v) + 0.1 / 7 for v in range(7)]
                free.append(-np.log2(joint[y] / joint.sum()))
                one_V = logits_BTV[b, t]
                model.append(-np.log2(np.exp(one_V[y]) / np.exp(one_V).sum()))
                masked += [model[-1]] * (x == 7)
        (result,) = scorer(config, rows)(jnp.zeros(1), tokens_N, windows)
        assert result.characters == len(free)
        np.testing.assert_allclose(result.loss, np.mean(model) * np.log(2), rtol=1e-5)
        np.testing.assert_allclose(result.context_free_bits, np.mean(free), rtol=1e-12)
        np.testing.assert_allclose(result.bits_per_character, np.mean(model), rtol=1e-5)
        np.testing.assert_allclose(
            result.gain_over_unigram, np.mean(free) - np.mean(model), atol=1e-4
        )
        if config.objective == "masked":
            np.testing.assert_allclose(result.mask_bits, np.mean(masked), rtol=1e-5)
            assert {"mask_bits", "error_masks"} <= result.as_record().keys()
        else:
            assert result.as_record().keys().isdisjoint({"mask_bits", "error_masks"})


def test_the_error_over_masks_is_how_far_scores_scatter_when_they_are_drawn_anew(monkeypatch):
    """The windows stay the same. With seven times as many draws a score varies less."""
    tokens_N, found = tiny.corpus(2000).valid, {}
    for draws in (2, 14):
        config, scores = masked_config(windows=8, draws=draws), []
        score = scorer(config, rows=8 * draws)
        windows = evaluate.valid_windows(config, tokens_N.size)
        for seed in range(60):
            monkeypatch.setattr(evaluate, "MASK_SEED", seed)
            scores += score(jnp.zeros(1), tokens_N, windows)
        said = np.sqrt(np.mean([one.error_masks**2 for one in scores]))
        found[draws] = np.std([one.bits_per_character for one in scores], ddof=1)
        # 60 draws tell a deviation to 9 %, 14 % where tails are long
        assert 0.7 < said / found[draws] < 1.4
    assert found[14] < 0.8 * found[2] / math.sqrt(7)  # windows are masked in turns


def test_the_error_over_windows_is_that_of_a_ratio():
    config, tokens_N = masked_config(windows=8, draws=1), tiny.corpus(2000).valid
    windows = evaluate.valid_windows(config, tokens_N.size)
    score = scorer(config)

    def take(**changes):
        return score(jnp.zeros(1), tokens_N, windows._replace(**changes))[0]

    whole, alone = take(), [take(fresh_M=windows.fresh_M * (np.arange(8) == w)) for w in range(8)]
    assert whole.error_masks is None
    counts = np.array([part.characters for part in alone])
    above = counts * [part.bits_per_character - whole.bits_per_character for part in alone]
    expected = np.sqrt(8 / 7 * (above**2).sum()) / counts.sum()
    np.testing.assert_allclose(whole.error_windows, expected, rtol=1e-4)
    assert take(starts_M=windows.starts_M[:1], fresh_M=windows.fresh_M[:1]).error_windows is None


@pytest.mark.slow
def test_draws_in_turns_select_every_character_once_before_any_is_selected_again():
    config = masked_config(windows=3, draws=12)
    windows = evaluate.valid_windows(config, 200)
    (batch,) = evaluate.batches(config, np.arange(200), windows, 1000, 36)
    chosen_DWT = np.asarray(batch.weights_BT).reshape(12, 3, 40)
    for half in (chosen_DWT[::2].sum(0), chosen_DWT[1::2].sum(0)):
        assert half.max() == 1  # six times 15 %
        assert 0.8 < half.mean() < 0.98
    assert (chosen_DWT[::2].sum(0) != chosen_DWT[1::2].sum(0)).any()
    windows = evaluate.valid_windows(single := masked_config(windows=3, draws=1), 200)
    (first,) = evaluate.batches(single, np.arange(200), windows, 1000, 3)
    for one, many in zip(first, batch, strict=True):  # one draw is the first of many
        np.testing.assert_array_equal(one, many[:3])


def test_windows_without_a_masked_character_are_refused():
    config, corpus = tiny.config(), tiny.corpus()
    config = replace(config, {"model.context": 4, "evaluate.windows": 1})
    evaluate.check_evaluation(config, corpus, rows=3)  # next character: all are scored
    masked = {"objective": "masked", "model.mask": "bidirectional", "evaluate.draws": 1}
    config = replace(config, masked)
    with pytest.raises(UserError, match=r"evaluate\.windows=1: none of 4 is masked"):
        train_program.check_program(config, corpus)
    config = replace(config, {"evaluate.windows": 8})
    train_program.check_program(config, corpus)
    corpus = dataclasses.replace(corpus, test=corpus.test[:5])
    with pytest.raises(UserError, match="the test split: none of 4 is masked"):
        train_program.check_program(config, corpus)
