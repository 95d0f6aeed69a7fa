"""Groups of unequal size, dealt out to folds that are resampled."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anisoscope.engine.intervals import estimate
from anisoscope.sources import folds


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=4, max_size=40), st.integers(2, 8), st.integers(0, 99))
def test_folds_are_disjoint_and_hold_whole_clusters(sizes, wanted, seed):
    label_P = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    try:
        cut = folds.cut_folds(label_P.size, label_P, wanted, seed)
    except ValueError:
        assert max(sizes) > folds.MOST * sum(sizes)
        return
    assert cut.count == min(wanted, len(sizes))
    for part_P, (size_J, square_J) in zip(cut[:2], cut[2:], strict=True):
        assert (size_J.sum(), square_J.sum()) == (sum(sizes), np.square(sizes).sum())
        np.testing.assert_array_equal(np.bincount(part_P), size_J)
        assert all(len(set(part_P[label_P == label])) == 1 for label in set(label_P))


@pytest.mark.parametrize("seed", range(4))
def test_the_largest_clusters_are_dealt_first_so_that_folds_are_even(seed):
    label_P = np.repeat(np.arange(5), (8, 4, 4, 2, 6))
    assert folds.cut_folds(label_P.size, label_P, 3, seed).fold_sizes[0].tolist() == [8, 8, 8]


def test_without_labels_folds_are_runs_in_the_order_given():
    for points in (64, 67):
        cut = folds.cut_folds(points, None, 8, 0)
        np.testing.assert_array_equal(cut.fold_P, np.arange(points) * 8 // points)
        assert not cut.unequal
        np.testing.assert_array_equal(cut.section_P, cut.fold_P // 2)


def test_windows_are_kept_whole():
    cut = folds.cut_runs(np.arange(36) // 4, 4)
    np.testing.assert_array_equal(cut.fold_P.reshape(9, 4)[:, :1], cut.fold_P.reshape(9, 4)[:, 1:2])
    assert cut.fold_sizes[0].tolist() == [3, 2, 2, 2]  # whose replicates are weighted
    assert cut.unequal


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
        cut = folds.cut_folds(label_P.size, label_P, 8, draw)
        assert cut.count == 8
        left = [np.linalg.norm(x_PD[cut.fold_P != j].mean(axis=0)) for j in range(8)]
        values = np.array([[np.linalg.norm(x_PD.mean(axis=0)), *left]])
        found = estimate(cut.weight(values, "jackknife"), "jackknife")
        estimates.append(found.mean)
        ends.append((found.low, found.high))
    low, high = np.array(ends).T
    assert 0.92 <= ((low <= np.mean(estimates)) & (high >= np.mean(estimates))).mean() <= 0.985
    assert (high - low).mean() / 2 < 1.5 * 1.96 * np.std(estimates)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.integers(1, 40), min_size=8, max_size=40), st.integers(2, 8), st.integers(0, 99))
def test_a_sample_for_neighbors_holds_whole_clusters_of_every_fold(sizes, most, seed):
    label_P = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    places = folds.TokenPositions(label_P, np.arange(label_P.size))
    if max(sizes) > folds.MOST * sum(sizes):
        return
    cut = folds.cut_folds(label_P.size, label_P, most, seed)
    chunk = folds.Chunk(slice(None), label_P.size, places, cut)
    sample = folds.draw_sample(chunk, label_P.size // 2, seed)
    kept = sample.rows_P
    np.testing.assert_array_equal(kept, np.flatnonzero(np.isin(label_P, label_P[kept])))
    np.testing.assert_array_equal(sample.folds.fold_P, cut.fold_P[kept])
    np.testing.assert_array_equal(sample.places.time_P, kept)
    assert sample.folds.count == cut.count
    np.testing.assert_array_equal(np.bincount(sample.folds.fold_P), sample.folds.fold_sizes[0])
    assert (sample.folds.fold_sizes[0] <= cut.fold_sizes[0] / 2 + max(sizes)).all()
