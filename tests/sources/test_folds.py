"""Groups of unequal size, dealt out to folds that are resampled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anisoscope.measurement.intervals import estimate, weight_replicates
from anisoscope.sources import folds


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=4, max_size=40), st.integers(2, 8), st.integers(0, 99))
def test_folds_are_disjoint_and_hold_whole_clusters(sizes, wanted, seed):
    label_P = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    try:
        index_JM, size_J, square_J = folds.cut_folds(label_P.size, label_P, wanted, seed)
    except ValueError:
        assert max(sizes) > folds.MOST * sum(sizes)
        return
    assert len(index_JM) == min(wanted, len(sizes))
    assert index_JM.size >= folds.LEAST * label_P.size
    assert (size_J.sum(), square_J.sum()) == (sum(sizes), np.square(sizes).sum())
    seen = [set(label_P[fold]) for fold in index_JM]
    assert not any(one & other for i, one in enumerate(seen) for other in seen[:i])
    for fold, (index_M, size) in enumerate(zip(index_JM, size_J, strict=True)):
        assert size == np.isin(label_P, label_P[index_M]).sum() or size > index_JM.shape[1], fold
        assert len(set(index_M)) == min(size, index_JM.shape[1])


def test_without_labels_folds_are_runs_in_the_order_given():
    index_JM = folds.cut_folds(64, None, 8, 0).index_JM
    np.testing.assert_array_equal(index_JM, np.arange(64).reshape(8, 8))
    index_JM = folds.cut_folds(67, None, 8, 0).index_JM
    assert index_JM.shape == (8, 8)
    assert (np.diff(index_JM.ravel()) > 0).all()


def test_windows_are_kept_whole():
    index_JM = folds.cut_windows(9, 4, 4).index_JM
    assert index_JM.shape == (4, 8)
    np.testing.assert_array_equal(index_JM.ravel(), np.arange(32))
    assert folds.cut_windows(3, 4, 8).index_JM.shape == (3, 4)
    assert folds.cut_windows(15, 1, 8).index_JM.shape == (7, 2)  # eight would leave out seven


@pytest.mark.parametrize("farther", [0, 1])
@pytest.mark.parametrize("clusters", [8, 18])
def test_intervals_of_unequal_clusters_hold_what_is_estimated(farther, clusters):
    """|E x| of points around the centers of their clusters, which may lie farther out the larger
    the cluster is.
    """
    draws, estimates, ends = 300, [], []
    size_L = np.random.default_rng(1).integers(1, 201, clusters)
    label_P = np.repeat(np.arange(clusters), size_L)
    for draw in range(draws):
        generator = np.random.default_rng(draw)
        center_LD = generator.normal(size=(clusters, 3)) + np.array([6.0, 0, 0])
        center_LD[:, 0] += farther * np.log(size_L)
        x_PD = center_LD[label_P] + generator.normal(size=(label_P.size, 3))
        index_JM, *sizes = folds.cut_folds(label_P.size, label_P, 8, draw)
        assert len(index_JM) == 8
        left = [np.linalg.norm(np.delete(x_PD[index_JM], j, 0).mean(axis=(0, 1))) for j in range(8)]
        values = np.array([[np.linalg.norm(x_PD.mean(axis=0)), *left]])
        found = estimate(weight_replicates(values, "jackknife", *sizes), "jackknife")
        estimates.append(found.mean)
        ends.append((found.low, found.high))
    low, high = np.array(ends).T
    assert 0.92 <= ((low <= np.mean(estimates)) & (high >= np.mean(estimates))).mean() <= 0.985
    assert (high - low).mean() / 2 < 1.5 * 1.96 * np.std(estimates)
