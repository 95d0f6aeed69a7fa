"""Groups of unequal size, dealt out to folds that are resampled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anisoscope.measurement.intervals import summarise
from anisoscope.measurement.sources import folds


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=4, max_size=40), st.integers(2, 8), st.integers(0, 99))
def test_folds_are_equal_disjoint_and_hold_whole_clusters(sizes, wanted, seed):
    label_P = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    try:
        index_JM = folds.cut(label_P.size, label_P, wanted, seed)
    except ValueError:
        assert max(sizes) > 0.25 * sum(sizes), "one cluster alone makes folds impossible"
        return
    assert 2 <= len(index_JM) <= min(wanted, len(sizes))
    assert len(np.unique(index_JM)) == index_JM.size
    assert index_JM.size >= folds.LEAST * label_P.size
    seen = [set(label_P[fold]) for fold in index_JM]
    assert not any(one & other for i, one in enumerate(seen) for other in seen[:i])


def test_without_labels_folds_are_runs_in_the_order_given():
    np.testing.assert_array_equal(folds.cut(64, None, 8, 0), np.arange(64).reshape(8, 8))
    index_JM = folds.cut(67, None, 8, 0)
    assert index_JM.shape == (8, 8)
    assert (np.diff(index_JM.ravel()) > 0).all()


def test_windows_are_kept_whole():
    index_JM = folds.cut_windows(9, 4, 4)
    assert index_JM.shape == (4, 8)
    np.testing.assert_array_equal(index_JM.ravel(), np.arange(32))
    assert folds.cut_windows(3, 4, 8).shape == (3, 4)
    assert folds.cut_windows(15, 1, 8).shape == (7, 2)  # eight folds would leave out seven windows


@pytest.mark.parametrize("depends_on_size", [False, True])
def test_intervals_of_unequal_clusters_hold_what_is_estimated(depends_on_size):
    """|E x| of points around the centres of their clusters, which may lie farther out the larger the cluster is."""
    draws, held, estimates, ends = 400, 0, [], []
    for draw in range(draws):
        generator = np.random.default_rng(draw)
        size_L = np.maximum(generator.lognormal(2.5, 0.8, size=40).astype(int), 1)
        centre_LD = generator.normal(size=(40, 3)) + np.array([2.0, 0, 0])
        if depends_on_size:
            centre_LD[:, 0] += np.log(size_L)
        label_P = np.repeat(np.arange(40), size_L)
        x_PD = centre_LD[label_P] + generator.normal(size=(label_P.size, 3))
        try:
            index_JM = folds.cut(label_P.size, label_P, 8, draw)
        except ValueError:
            continue
        left = [np.linalg.norm(np.delete(x_PD[index_JM], j, 0).mean(axis=(0, 1))) for j in range(len(index_JM))]
        found = summarise(np.array([[np.linalg.norm(x_PD.mean(axis=0)), *left]]), "jackknife")
        estimates.append(found.mean)
        ends.append((found.low, found.high))
    expectation = np.mean(estimates)
    held = np.mean([low <= expectation <= high for low, high in ends])
    assert len(ends) > 0.98 * draws
    assert 0.92 <= held <= 0.98
