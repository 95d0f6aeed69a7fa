"""Intervals cover the truth as often as they claim, also for dependent points."""

import numpy as np
import pytest
from scipy import stats

from anisoscope.engine.intervals import (
    clip,
    degrees_of_freedom,
    estimate,
    holm_of,
    weight_replicates,
)
from anisoscope.sources.folds import section_count

BATCHES, FOLDS, POINTS = 4, 8, 40


def replicated(x_GJP, statistic, kind):
    """The statistic on every batch, then on its resamples."""
    rows = []
    for x_JP in x_GJP:
        parts = (
            [np.delete(x_JP, j, axis=0) for j in range(len(x_JP))]
            if kind == "jackknife"
            else list(x_JP)
        )
        rows.append([statistic(x_JP.ravel()), *(statistic(part.ravel()) for part in parts)])
    return np.array(rows)


def dependent(rng):
    """Points that share a part of their fold: their own number is no measure of the information."""
    return rng.normal(size=(BATCHES, FOLDS, 1)) + rng.normal(size=(BATCHES, FOLDS, POINTS))


@pytest.mark.parametrize("kind", ["jackknife", "sections"])
def test_of_a_mean_both_kinds_are_the_textbook_interval(kind):
    """The mean of equal sections is the mean of the whole, so that scaling them changes nothing."""
    x_GJP = dependent(np.random.default_rng(0))
    summary = estimate(replicated(x_GJP, np.mean, kind), kind)
    means_GJ = x_GJP.mean(2)
    error = np.sqrt(means_GJ.var(1, ddof=1).mean() / (BATCHES * FOLDS))
    low, high = stats.t.interval(0.95, BATCHES * (FOLDS - 1), loc=means_GJ.mean(), scale=error)
    np.testing.assert_allclose(
        [summary.mean, summary.low, summary.high], [means_GJ.mean(), low, high], rtol=1e-12
    )
    np.testing.assert_allclose(summary.std, means_GJ.mean(1).std(ddof=1))


@pytest.mark.parametrize("kind", ["jackknife", "sections"])
def test_an_average_of_numbers_that_go_together_covers_the_truth(kind):
    """Such as layers that read the same windows: two averages alone would say nothing."""
    rng = np.random.default_rng(2)
    hits, halves = 0, []
    for _ in range(500):
        shared_GJP = dependent(rng)[:2]
        parts = [
            replicated(shared_GJP + 0.5 * dependent(rng)[:2] + 5, np.mean, kind) for _ in range(3)
        ]
        summary = estimate(np.stack(parts, axis=2), kind, average=lambda x_GRL: x_GRL.mean(2))
        hits += summary.low <= 5 <= summary.high
        halves.append(summary.high - summary.mean)
    assert 0.92 <= hits / 500 <= 0.98
    students = stats.t.ppf(0.975, 1) * np.sqrt((1 + 1 / POINTS) * (1 + 0.25 / 3) / (2 * FOLDS))
    assert np.median(halves) < 0.4 * students  # what one degree of freedom would ask for


def test_sections_carry_their_relative_error():
    """A dimension that halves at the sections' scale has half the deviation there."""
    sections = np.random.default_rng(0).normal(10, 1, size=(3, 5))
    sections[:, 0] = sections[:, 1:].mean(1)
    halved = sections.copy()
    halved[:, 1:] /= 2
    np.testing.assert_allclose(estimate(halved, "sections"), estimate(sections, "sections"))
    null = np.random.default_rng(1).normal(8, 1, size=(3, 5))
    null[:, 0] = null[:, 1:].mean(1)
    against = estimate(halved, "sections", null)
    np.testing.assert_allclose(against, estimate(sections, "sections", null))
    error = np.sqrt((sections - null)[:, 1:].var(1, ddof=1).mean() / 12)
    np.testing.assert_allclose(against.high - against.mean, stats.t.ppf(0.975, 9) * error)


@pytest.mark.parametrize("kind", ["jackknife", "sections"])
def test_weights_of_equal_folds_change_nothing_and_of_a_mean_are_the_textbook_variance(kind):
    x_GJP = dependent(np.random.default_rng(3))[:1]
    values = replicated(x_GJP, np.mean, kind)
    equal = weight_replicates(values, kind, np.full(FOLDS, 3), np.full(FOLDS, 9))
    np.testing.assert_allclose(estimate(equal, kind), estimate(values, kind), rtol=1e-12)
    size_J = np.arange(1, FOLDS + 1)
    share_J, mean_J = size_J / size_J.sum(), x_GJP[0].mean(1)
    error = np.sqrt(
        np.square(share_J * (mean_J - share_J @ mean_J)).sum() / (1 - np.square(share_J).sum())
    )
    half = stats.t.ppf(0.975, degrees_of_freedom(size_J, size_J**2, kind)) * error
    mean = share_J @ mean_J
    own_J = (mean - share_J * mean_J) / (1 - share_J) if kind == "jackknife" else mean_J
    whole = np.concatenate([[[mean]], own_J[None]], axis=1)
    found = estimate(weight_replicates(whole, kind, size_J, size_J**2), kind)
    np.testing.assert_allclose(found.high - found.low, 2 * half, rtol=1e-10)


def test_sections_of_a_share_carry_their_error_as_shares_do():
    """Shares of n independent draws: at .9 their deviation is .3 / sqrt(n), at .5 .5 / sqrt(n)."""
    rng, whole = np.random.default_rng(0), []
    thin = rng.binomial(100, 0.9, size=(4000, 4)) / 100
    values = np.concatenate([np.full((4000, 1), 0.5), thin], axis=1)
    for kind, expected in (("share_sections", 0.5), ("sections", 0.3 * 5 / 9)):
        found = estimate(values, kind)
        error = (found.high - found.mean) / stats.t.ppf(0.975, 3 * 4000) * np.sqrt(4000)
        whole.append(found.mean)
        np.testing.assert_allclose(error, expected / np.sqrt(400), rtol=0.03)
    assert whole == [0.5, 0.5]


@pytest.mark.parametrize(
    ("value", "kind"), [(0.0, "share_sections"), (1.0, "share_sections"), (0.0, "sections")]
)
def test_replicates_that_are_all_alike_have_no_error(value, kind):
    summary = estimate(np.full((2, 5), value), kind)
    assert summary.low == summary.high == value
    few = np.array([[0.5, *4 * [value]]])  # as of 10 neighbors among 11 points
    assert np.isnan(estimate(few, kind)[1:]).all()


def test_without_replicates_the_batches_are_the_sample_and_one_alone_has_no_interval():
    values = np.array([[1.0], [2.0], [4.0]])
    low, high = stats.t.interval(0.95, 2, loc=7 / 3, scale=values.std(ddof=1) / np.sqrt(3))
    summary = estimate(values, "jackknife")
    np.testing.assert_allclose([summary.low, summary.high], [low, high])
    mean, *unknown = estimate(np.array([[3.0]]), "sections")
    assert mean == 3
    assert np.isnan(unknown).all()


def test_a_missing_replicate_leaves_the_value_but_no_interval():
    values = np.random.default_rng(0).normal(size=(2, 5, 3))
    values[0, 2, 1] = np.nan
    summary = estimate(values, "sections")
    assert np.isfinite(summary.mean).all()
    assert np.isnan(summary.low[1])
    assert np.isfinite(summary.low[[0, 2]]).all()


@pytest.mark.parametrize("kind", ["jackknife", "sections"])
@pytest.mark.parametrize("place", [0, 2])
def test_an_infinite_value_has_no_interval(kind, place):
    """As the dimension of a lattice, all of whose ratios are 1; warnings are errors here."""
    values = np.random.default_rng(0).normal(5, 1, size=(2, 5))
    values[0, place] = np.inf
    for null in (None, values[::-1]):
        assert not np.isfinite(estimate(values, kind, null).low)


def test_an_interval_is_cut_at_the_ends_of_the_range_and_holds_the_mean():
    found = estimate(np.array([[0.1, 0.9, 1.0000001], [0.2, 0.8, 1.0000001]])[:, None], "")
    low, high = clip(found, 0, 1)[2:]
    np.testing.assert_array_equal(low, [0, found.low[1], found.mean[2]])
    np.testing.assert_array_equal(high, [found.high[0], 1, found.mean[2]])
    assert found.low[0] < 0
    assert found.high[1] > 1
    np.testing.assert_array_equal(clip(found, -np.inf, np.inf)[2:], found[2:])
    assert np.isnan(clip(estimate(np.array([[3.0]]), ""), 0, 1)[2:]).all()


@pytest.mark.parametrize(
    ("folds", "sections"), [(8, 4), (6, 3), (2, 2), (10, 2), (25, 5), (7, 7), (1, 1)]
)
def test_sections_are_whole_folds(folds, sections):
    assert section_count(folds) == sections


@pytest.mark.parametrize(
    ("at_once", "expected"),
    [(3, [0.03, 0.04, 0.04]), (2, [0.02, 0.04, 0.04]), (1, [0.01, 0.02, 0.04])],
)
def test_no_p_is_multiplied_by_more_than_the_hypotheses_that_can_hold_together(at_once, expected):
    np.testing.assert_allclose(holm_of(np.array([0.02, 0.01, 0.04]), at_once)[[1, 0, 2]], expected)
