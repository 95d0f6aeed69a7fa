import numpy as np
import pytest

from anisoscope.sources import run_program, run_source, sweep
from anisoscope.sources.evaluation_windows import add_types, make_probe
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import tiny

CONTEXT, POINTS, BATCHES, FOLDS = 16, 40, 3, 2  # two windows of 15 later positions hold 20 points
TOKENS = (np.arange(16 * 20 + 7) % 251).astype(np.uint8)


def probe(tokens=TOKENS, folds=FOLDS):
    return make_probe(tokens, CONTEXT, POINTS, BATCHES, folds, 0)


def describe(config, corpus):
    source = run_source.RunSource(config, corpus, None, "run", [], None)
    return source.attributes(sweep.Target(sweep.STREAM, None, ()), {})


def test_windows_begin_as_a_model_with_the_same_first_token_reads_them():
    corpus, config = tiny.corpus(), tiny.config()
    plain, begun = (
        run_program.draw_probe(replace(config, {"model.same_first": same}), corpus)
        for same in (False, True)
    )
    for name in ("tokens_GWT", "shuffled_GWT"):
        assert (getattr(begun, name)[..., 0] == corpus.mask_token).all()
        np.testing.assert_array_equal(getattr(begun, name)[..., 1:], getattr(plain, name)[..., 1:])
    types = add_types(begun, corpus.train, corpus.vocab_size).types
    first = np.arange(0, types.log_frequency_LP.shape[-1], config.model.context)
    assert np.isneginf(types.log_frequency_LP[..., 0, first]).all()  # no text has it


def test_an_encoder_reads_its_windows_masked_as_in_training_and_a_decoder_never():
    corpus = tiny.corpus()
    few = {"measure.points": 14, "measure.batches": 2, "measure.folds": 1}
    kinds = {"masked": {"objective": "masked", "model.mask": "bidirectional"}, "next": {}}
    for kind, changes in kinds.items():
        configs = [
            replace(tiny.config(), few | changes | {"measure.masked": masked})
            for masked in (False, True)
        ]
        plain, masked = (run_program.draw_probe(config, corpus) for config in configs)
        np.testing.assert_array_equal(masked.picks_SGP, plain.picks_SGP)
        hidden = masked.tokens_GWT == corpus.mask_token
        assert (hidden.mean() > 0.02) == (kind == "masked")
        changed = (masked.tokens_GWT != plain.tokens_GWT).mean()
        assert (0.02 < changed < 0.35) if kind == "masked" else changed == 0
        said = [describe(config, corpus)["input"] for config in configs]
        assert [" masked as in training" in one for one in said] == [False, kind == "masked"]
        if kind == "next":
            assert plain.target_GZWT is masked.target_GZWT is None
            continue
        np.testing.assert_array_equal(plain.target_GZWT[:, 0], plain.tokens_GWT)
        target_GWT = masked.target_GZWT[:, 0]
        assert (target_GWT[hidden] >= 0).all()
        np.testing.assert_array_equal(
            target_GWT[target_GWT >= 0], plain.tokens_GWT[target_GWT >= 0]
        )
        assert (masked.tokens_GWT != plain.tokens_GWT)[target_GWT < 0].sum() == 0


def test_windows_are_aligned_and_drawn_once_and_their_points_lie_in_folds():
    position = np.arange(len(TOKENS), dtype=np.int32)
    windows = make_probe(position, CONTEXT, POINTS, BATCHES, FOLDS, 0).tokens_GWT
    assert windows.shape == (BATCHES, 4, CONTEXT)
    starts = windows[:, :, 0]
    np.testing.assert_array_equal(windows, starts[:, :, None] + np.arange(CONTEXT))
    assert (starts % CONTEXT == 0).all()
    assert len(np.unique(starts)) == starts.size
    np.testing.assert_array_equal(probe().tokens_GWT, TOKENS[windows])
    everything, without_first_token = probe().picks_SGP
    assert (everything % CONTEXT == 0).any()
    assert (without_first_token % CONTEXT != 0).all()
    for kept, all_positions in zip(without_first_token, everything, strict=True):
        assert set(all_positions[all_positions % CONTEXT != 0]) <= set(kept)
    picks = probe(folds=4).picks_SGP  # one window a fold
    expected = np.broadcast_to(np.repeat(np.arange(4), 10), picks.shape)
    np.testing.assert_array_equal(picks // CONTEXT, expected)
    with pytest.raises(UserError, match=r"in 2 folds needs 12: lower measure.points"):
        probe(TOKENS[: 11 * CONTEXT])


def test_what_would_fit_a_short_text_is_named_and_fits():
    tokens = TOKENS[: 11 * CONTEXT]
    with pytest.raises(UserError, match=r"measure.points=150 x measure.batches=1 fits$"):
        make_probe(tokens, CONTEXT, 400, 1, FOLDS, 0)
    make_probe(tokens, CONTEXT, 150, 1, FOLDS, 0)
    with pytest.raises(UserError):
        make_probe(tokens, CONTEXT, 152, 1, FOLDS, 0)


SKEWED = (
    np.random.default_rng(0)
    .choice(6, 16 * 100, p=[0.6, 0.2, 0.1, 0.06, 0.03, 0.01])
    .astype(np.uint8)
)


def test_the_shuffled_text_has_the_same_characters():
    for text, shuffled in zip(*probe()[:2], strict=True):
        np.testing.assert_array_equal(np.sort(text, axis=None), np.sort(shuffled, axis=None))
        assert (text != shuffled).mean() > 0.5


def test_every_position_has_its_types_of_the_text_and_of_the_shuffled_one():
    found = add_types(probe(SKEWED), SKEWED, 7).types
    for number, tokens_GWT in enumerate(probe(SKEWED)[:2]):
        letters_GP = tokens_GWT.reshape(BATCHES, -1)
        np.testing.assert_array_equal(found.type_LP[:, number, 0], letters_GP)
        share = np.bincount(SKEWED) / SKEWED.size
        np.testing.assert_allclose(
            found.log_frequency_LP[:, number, 0], np.log(share)[letters_GP], rtol=1e-6
        )
        np.testing.assert_array_equal(
            found.bin_P[:, number], np.array([2, 1, 0, 0, 0, 0])[letters_GP]
        )
        pairs_GP = letters_GP[:, :-1] * 7 + letters_GP[:, 1:]
        inside = np.arange(1, letters_GP.shape[1]) % CONTEXT != 0
        np.testing.assert_array_equal(
            found.type_LP[:, number, 1, 1:][:, inside], pairs_GP[:, inside]
        )
        assert np.isinf(found.log_frequency_LP[:, number, 1, ::CONTEXT]).all()
