from collections import Counter

import numpy as np
import pytest

from anisoscope.data import unigrams
from anisoscope.metrics import frequency

VOCAB = 7
TEXT = (
    np.random.default_rng(0)
    .choice(VOCAB - 1, 5000, p=[0.5, 0.3, 0.1, 0.06, 0.03, 0.01])
    .astype(np.uint8)
)


def grams(tokens, length):
    return [tuple(tokens[end - length + 1 : end + 1]) for end in range(length - 1, len(tokens))]


def test_the_largest_vocabulary_does_not_overflow():
    tokens = np.full(3, 256)
    assert unigrams.types(tokens, 3, 257)[-1] == 257**3 - 1


@pytest.mark.parametrize("length", frequency.LENGTHS)
def test_a_type_is_the_last_characters_up_to_a_position_and_none_before_there_are_enough(length):
    windows = TEXT[:60].reshape(3, 20)
    found = unigrams.types(windows, length, VOCAB)
    assert (found[:, : length - 1] == unigrams.NONE).all()
    for row, window in zip(found, windows, strict=True):
        of_gram = dict(zip(grams(window, length), row[length - 1 :], strict=True))
        assert [of_gram[gram] for gram in grams(window, length)] == list(row[length - 1 :])
        assert len(set(of_gram.values())) == len(of_gram)
    assert (unigrams.types(windows[:, : length - 1], length, VOCAB) == unigrams.NONE).all()


@pytest.mark.parametrize("length", frequency.LENGTHS)
def test_log_frequencies_are_those_of_counting_one_by_one(length, monkeypatch):
    monkeypatch.setattr(unigrams, "_CHUNK", 333)  # what lies across two chunks is counted once
    found = unigrams.log_frequency(TEXT, length, VOCAB)
    counted = Counter(grams(TEXT.tolist(), length))
    for gram, count in counted.items():
        number = unigrams.types(np.array(gram), length, VOCAB)[-1]
        assert found[number] == pytest.approx(np.log(count / counted.total()), abs=1e-6)
    assert np.isfinite(found).sum() == len(counted)
    assert np.exp(found.astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("length", frequency.LENGTHS)
def test_bins_follow_frequency_and_hold_as_many_positions_as_types_allow(length):
    found = unigrams.log_frequency(TEXT, length, VOCAB)
    bins = unigrams.bins(found)
    order = np.argsort(found)
    assert (np.diff(bins[order]) >= 0).all()
    assert (bins[~np.isfinite(found)] == 0).all()
    assert all(len(set(bins[found == level])) == 1 for level in np.unique(found))
    held = np.bincount(bins, np.exp(found), len(frequency.BINS))
    assert (
        np.abs(np.cumsum(held) - np.arange(1, 5) / 4)[:-1].max() <= np.exp(found.max()) / 2 + 1e-6
    )
    if length == 3:
        np.testing.assert_allclose(held, 0.25, atol=0.06)


def test_bins_by_hand():
    share = np.array([0.4, 0.3, 0.1, 0.1, 0.06, 0.04, 0.0])
    with np.errstate(divide="ignore"):
        found = unigrams.bins(np.log(share))
    # middles of the positions from the rarest on: 0, 0.02, 0.07, 0.2 (two types of one frequency),
    # 0.45, 0.8
    np.testing.assert_array_equal(found, [3, 1, 0, 0, 0, 0, 0])
    np.testing.assert_array_equal(unigrams.bins(np.log(np.full(8, 1 / 8))), 2)
