"""Correlations over layers, heads and models."""

import itertools

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from anisoscope.analysis.correlations import (
    PAIRS,
    Correlation,
    correlate,
    correlations,
    within_runs,
)
from anisoscope.engine.intervals import holm
from tests.plot.tables import make_run

SHORT = (0, 10, 1000)


def drawn(n, seed=0):
    x, noise = np.random.default_rng(seed).standard_normal((2, n))
    return x, 0.6 * x + 0.8 * noise


@pytest.fixture(scope="module")
def tables():
    return {
        "decoder": make_run(steps=SHORT, layers=3, heads=4).results,
        "encoder": make_run(False, SHORT, layers=2, heads=2).results,
    }


@pytest.mark.parametrize("n", [5, 30, 31, 200])
def test_coefficients_and_p_are_scipys(n):
    x, y = drawn(n)
    found, pearson, spearman = correlate(x, y), stats.pearsonr(x, y), stats.spearmanr(x, y)
    interval = pearson.confidence_interval(0.95)
    assert found[:5] == pytest.approx((n, *pearson, interval.low, interval.high))
    assert found.spearman == pytest.approx(spearman.statistic)
    assert found.spearman_p == pytest.approx(spearman.pvalue, rel=1e-6 if n > 30 else 0.6)


def test_the_p_of_few_points_counts_their_orderings():
    x, y = drawn(6, 3)
    rhos = [stats.spearmanr(x, order).statistic for order in itertools.permutations(y)]
    exact = np.mean(np.abs(rhos) >= abs(correlate(x, y).spearman) - 1e-9)
    assert correlate(x, y).spearman_p == pytest.approx(exact)


def test_the_interval_of_ranks_is_that_of_a_published_example():
    """The example of Bonett's own package statpsych: rho .8700 for 15 pairs, from .5840 to
    .9638.
    """
    y = [21, 4, 9, 12, 35, 18, 10, 22, 24, 1, 6, 8, 13, 16, 19]
    x = [67, 28, 30, 28, 52, 40, 25, 37, 44, 10, 14, 20, 28, 40, 51]
    found = correlate(np.array(x), np.array(y))
    values = (found.spearman, found.spearman_low, found.spearman_high)
    np.testing.assert_allclose(values, (0.8699639, 0.5840951, 0.9638297), rtol=1e-6)


def test_what_cannot_be_correlated_is_nan_and_a_line_is_one():
    for x, y in (([1, 2], [1, 2]), ([1, 2, np.nan], [1, 2, 3]), ([1, 2, 3], [5, 5, 5])):
        found = correlate(np.array(x, float), np.array(y, float))
        assert found.n == np.isfinite(np.array(x, float)).sum()
        assert np.isnan(found[1:]).all()
    found = correlate(np.array([1.0, 2, 3]), np.array([1.0, 2, 4]))
    assert np.isnan(found[3:5] + found[7:]).all()
    found = correlate(np.arange(9.0), -np.arange(9.0))
    assert found[1:2] + found[5:6] == pytest.approx([-1] * 2)
    assert np.isnan(found[3:5] + found[7:]).all()  # no interval of a width of 0


def test_rows_are_of_the_numbers_in_the_tables(tables):
    frame = correlations(tables)
    rows = frame.set_index(["run", "positions", "y", "over"]).sort_index()
    means = {name: table.sel(statistic="mean") for name, table in tables.items()}
    last = [table.isel(step=-1).sel(positions="all") for table in means.values()]
    x, y = (np.concatenate([table[name] for table in last]) for name in ("drift", "mean_cosine"))
    found = rows.loc[("all", "all", "mean_cosine", "layers, runs")].pearson.item()
    assert found == pytest.approx(stats.pearsonr(x, y)[0])
    own = means["decoder"].sel(positions="without_first_token")
    place = ("decoder", "without_first_token", "attention_entropy")
    x, y = own.query_key_alignment.values, own.attention_entropy.values
    found = rows.loc[(*place, "heads, steps")].spearman.item()
    assert found == pytest.approx(stats.spearmanr(x.ravel(), y.ravel())[0])
    found = rows.loc[(*place, "heads")].set_index("step").loc[10].pearson
    assert found == pytest.approx(stats.pearsonr(x[1].ravel(), y[1].ravel())[0])
    together = frame[(frame.over == "heads") & (frame.positions == "all") & (frame.step == 1000)]
    assert {*together.tests} == {together.pearson_p.notna().sum()} == {2 * (len(PAIRS) - 1)}
    np.testing.assert_array_equal(together.pearson_p_holm, holm(together.pearson_p))


def test_p_is_corrected_after_holm_for_all_that_are_looked_at_together():
    """0.01, 0.02, 0.03 and 0.2 of four: times 4, 3, 2 and 1, and never below the one before."""
    p = pd.Series([0.03, np.nan, 0.01, 0.2, 0.02])
    np.testing.assert_allclose(holm(p), [0.06, np.nan, 0.04, 0.2, 0.06])
    assert holm(pd.Series([0.6, 0.7])).tolist() == [1, 1]


def layers(drift, cosine) -> xr.Dataset:
    """As results.nc has it; the values of the first step say nothing."""
    values = np.stack([np.full((2, len(drift)), 7.0), np.stack([drift, cosine])], axis=1)
    coords = {"step": [0, 10], "statistic": ["mean"], "positions": ["all"]}
    dims = ("statistic", "positions", "step", "layer")
    both = zip(("drift", "mean_cosine"), values, strict=True)
    return xr.Dataset({name: (dims, own[None, None]) for name, own in both}, coords)


def test_every_run_may_rise_while_their_means_fall():
    depth = np.linspace(0, 1, 8)
    runs = {f"run{n}": layers(10.0 * n + depth, 0.5 - 0.1 * n + 0.05 * depth**2) for n in range(4)}
    rows = correlations(runs).set_index("over")
    assert rows.loc["layers within runs"].spearman == pytest.approx(1)
    assert rows.loc["layers, runs"].spearman < -0.8
    assert (rows.loc["layers within runs"].n, rows.loc["layers, runs"].n) == (4, 32)


def test_the_mean_within_runs_has_students_interval_over_those_that_have_a_correlation():
    rng = np.random.default_rng(1)
    inside = [correlate(*rng.normal(size=(2, 12))) for _ in range(5)]
    constant = correlate(np.arange(5.0), np.ones(5))
    row, own = within_runs([*inside, constant]), [found.pearson for found in inside]
    expected = stats.t.interval(0.95, 4, np.mean(own), stats.sem(own))
    np.testing.assert_allclose((row.pearson_low, row.pearson_high), expected)
    assert row.pearson_p == pytest.approx(stats.ttest_1samp(own, 0).pvalue)
    assert row.n == 5
    apart = within_runs([inside[0]._replace(pearson=r) for r in (-0.5, 0.9)])
    assert (apart.pearson_low, apart.pearson_high) == (-1, 1)  # Student's would lie beyond
    alone = within_runs([constant, inside[0]])
    assert (alone.n, alone.pearson) == (1, own[0])
    assert np.isnan(alone.pearson_low)


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Of rho .6: normal pairs have a rank correlation of 6/pi asin(r/2)."""
    pearson, spearman, inside = 0.6, 6 / np.pi * np.arcsin(0.3), np.zeros(2)
    for seed in range(400):
        found = correlate(*drawn(40, seed))
        inside[0] += found.pearson_low < pearson < found.pearson_high
        inside[1] += found.spearman_low < spearman < found.spearman_high
    np.testing.assert_allclose(inside / 400, 0.95, atol=0.03)


def test_the_interval_within_runs_holds_the_truth_as_often_as_it_says():
    """Runs differ in drift, which pooling would mistake for a correlation."""
    inside = 0
    for seed in range(300):
        rng = np.random.default_rng(seed)
        clouds = (rng.normal(size=(2, 13)) + rng.normal() * 5 for _ in range(5))
        found = [Correlation(13, *[np.corrcoef(*cloud)[0, 1]] * 8) for cloud in clouds]
        row = within_runs(found)
        inside += row.pearson_low <= 0 <= row.pearson_high
    assert 0.9 < inside / 300 < 0.99
