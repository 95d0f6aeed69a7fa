import itertools

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from anisoscope.analysis import on_disk
from anisoscope.analysis.correlations import PAIRS, correlate, correlations
from anisoscope.results import joined_files
from anisoscope.results.holm import holm
from tests.plot.tables import make_run

SHORT = (0, 10, 1000)


def drawn(n, seed=0):
    x, noise = np.random.default_rng(seed).standard_normal((2, n))
    return x, 0.6 * x + 0.8 * noise


@pytest.fixture(scope="module")
def tables():
    runs = {
        "decoder": make_run(steps=SHORT, layers=3, heads=4),
        "encoder": make_run(False, SHORT, layers=2, heads=2),
    }
    return {name: run.results for name, run in runs.items()}


@pytest.mark.parametrize("n", [5, 30, 31, 200])
def test_coefficients_and_p_are_scipys(n):
    x, y = drawn(n)
    found = correlate(x, y)
    pearson, spearman = stats.pearsonr(x, y), stats.spearmanr(x, y)
    assert found.n == n
    assert (found.pearson, found.pearson_p) == pytest.approx((pearson.statistic, pearson.pvalue))
    assert found.spearman == pytest.approx(spearman.statistic)
    assert found.spearman_p == pytest.approx(spearman.pvalue, rel=1e-6 if n > 30 else 0.6)
    interval = pearson.confidence_interval(0.95)
    assert (found.pearson_low, found.pearson_high) == pytest.approx((interval.low, interval.high))


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


def test_intervals_hold_the_truth_as_often_as_they_say():
    """Of rho .6: normal pairs have a rank correlation of 6/pi asin(r/2)."""
    truth, inside = (0.6, 6 / np.pi * np.arcsin(0.3)), np.zeros(2)
    for seed in range(400):
        found = correlate(*drawn(40, seed))
        inside += (
            found.pearson_low < truth[0] < found.pearson_high,
            found.spearman_low < truth[1] < found.spearman_high,
        )
    np.testing.assert_allclose(inside / 400, 0.95, atol=0.03)


def test_what_cannot_be_correlated_is_nan_and_a_line_is_one():
    for x, y in (([1, 2], [1, 2]), ([1, 2, np.nan], [1, 2, 3]), ([1, 2, 3], [5, 5, 5])):
        found = correlate(np.array(x, float), np.array(y, float))
        assert found.n == np.isfinite(np.array(x, float)).sum()
        assert np.isnan(found[1:]).all()
    found = correlate(np.array([1.0, 2, 3]), np.array([1.0, 2, 4]))
    assert np.isnan(
        [found.pearson_low, found.pearson_high, found.spearman_low, found.spearman_high]
    ).all()
    found = correlate(np.arange(9.0), -np.arange(9.0))
    assert found[1:2] + found[3:6:2] == pytest.approx((-1, -1, -1))
    assert (found.spearman_low, found.spearman_high) == pytest.approx((-1, -1))


def test_a_row_for_each_pair_run_and_set_of_points(tables):
    frame = correlations(tables)
    assert len(frame) == len(PAIRS) * 2 * (2 * (len(SHORT) + 1) + 2)
    assert not frame.duplicated(["run", "positions", "x", "y", "over", "step"]).any()
    found = frame[(frame.x == "drift") & (frame.positions == "without_first")]
    sizes = {("decoder", "layers"): 4, ("decoder", "layers, steps"): 12, ("encoder", "layers"): 3}
    sizes |= {
        ("encoder", "layers, steps"): 9,
        ("all", "layers, runs"): 7,
        ("all", "layers, steps, runs"): 21,
    }
    assert {(row.run, row.over): row.n for row in found.itertuples()} == sizes
    found = frame[(frame.y == "attention_first") & (frame.run != "encoder")]
    assert set(found.n) == {12, 36, 16, 48}
    assert set(found.over) == {"heads", "heads, steps", "heads, runs", "heads, steps, runs"}
    assert frame.networks.equals((frame.run == "all") + 1)
    assert frame.step.isna().equals(frame.over.str.contains("steps|runs"))


def test_rows_are_of_the_numbers_in_the_tables(tables):
    frame = correlations(tables).set_index(["run", "positions", "y", "over"])
    tables = {name: table.sel(statistic="mean") for name, table in tables.items()}
    last = [table.isel(step=-1).sel(positions="all") for table in tables.values()]
    x, y = (np.concatenate([table[name] for table in last]) for name in ("drift", "mean_cosine"))
    assert frame.loc[("all", "all", "mean_cosine", "layers, runs")].pearson == pytest.approx(
        stats.pearsonr(x, y)[0]
    )
    one = tables["decoder"].sel(positions="without_first")
    x, y = one.query_key_alignment.values.ravel(), one.attention_entropy.values.ravel()
    row = frame.loc[("decoder", "without_first", "attention_entropy", "heads, steps")]
    assert row.spearman == pytest.approx(stats.spearmanr(x, y)[0])
    heads = frame.loc[("decoder", "without_first", "attention_entropy", "heads")].set_index("step")
    at = one.sel(step=10)
    expected = stats.pearsonr(
        at.query_key_alignment.values.ravel(), at.attention_entropy.values.ravel()
    )[0]
    assert heads.loc[10].pearson == pytest.approx(expected)


def test_one_run_is_not_pooled_and_what_was_not_measured_has_no_row(tables, tmp_path):
    alone = correlations({"decoder": tables["decoder"].drop_vars("drift")})
    assert set(alone.run) == {"decoder"}
    assert "drift" not in set(alone.x)
    assert correlations({"decoder": tables["decoder"][["anisotropy"]]}).empty
    joined_files.write(tables["decoder"], tmp_path / "results.nc")
    on_disk.write_run("decoder", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["correlations.csv", "results.nc"]
    read = pd.read_csv(tmp_path / "correlations.csv")
    assert list(read.columns) == list(alone.columns)
    assert set(read.run) == {"decoder"}


@pytest.mark.parametrize("order", [("decoder", "encoder"), ("encoder", "decoder")])
def test_each_set_of_positions_is_of_the_runs_that_have_it(tables, order):
    some = {name: tables[name] for name in order} | {
        "encoder": tables["encoder"].sel(positions=["all"])
    }
    frame, whole = correlations(some), correlations({name: tables[name] for name in order})
    without_first = frame[frame.positions == "without_first"]
    assert set(without_first.run) == {"decoder"}
    expected = whole[(whole.positions == "without_first") & (whole.run == "decoder")]
    np.testing.assert_array_equal(without_first.pearson, expected.pearson)
    for name in (*order, "all"):
        ours, theirs = (
            table[(table.positions == "all") & (table.run == name)] for table in (frame, whole)
        )
        np.testing.assert_array_equal(ours.pearson, theirs.pearson)


def test_p_is_corrected_after_holm_for_all_that_are_looked_at_together(tables):
    """0.01, 0.02, 0.03 and 0.2 of four: times 4, 3, 2 and 1, and never below the one before."""
    p = pd.Series([0.03, np.nan, 0.01, 0.2, 0.02])
    np.testing.assert_allclose(holm(p), [0.06, np.nan, 0.04, 0.2, 0.06])
    assert holm(pd.Series([0.6, 0.7])).tolist() == [1, 1]
    frame = correlations({name: table.isel(step=[-1]) for name, table in tables.items()})
    looked = frame[(frame.over == "heads") & (frame.positions == "all")]
    assert set(looked.tests) == {looked.pearson_p.notna().sum()} == {len(tables) * (len(PAIRS) - 1)}
    np.testing.assert_array_equal(looked.pearson_p_holm, holm(looked.pearson_p))
    assert (looked.pearson_p_holm >= looked.pearson_p).all()
    assert (looked.pearson_p_holm > looked.pearson_p).any()
