"""Points and correlations of figures that draw one quantity against another are those of the tables."""

import itertools
import re

import numpy as np
import pytest
from scipy import stats

from figures.against import SHARPNESS, cosine_against_drift, sharpness_against_alignment
from studies import correlations
from tests.figures.reading import legend_of


def test_sharpness_against_alignment_has_a_point_per_head_and_correlates_them(runs):
    figure = sharpness_against_alignment(runs)
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), SHARPNESS), strict=False):
        last = run.results.sel(step=1000, positions="all", less="nothing")
        mean, low, high = (last.sel(statistic=end) for end in ("mean", "low", "high"))
        x, y = mean.query_key_alignment.values, mean[name].values
        for block, (points, _, (across, upright)) in zip(last.block.values, ax.containers, strict=True):
            np.testing.assert_array_equal(points.get_data(), (x[block - 1], y[block - 1]))
            ends = np.array(upright.get_segments())[:, :, 1].T
            np.testing.assert_allclose(ends[0], low[name].sel(block=block), rtol=1e-6)
            np.testing.assert_allclose(ends[1], high[name].sel(block=block), rtol=1e-6)
            ends = np.array(across.get_segments())[:, :, 0].T
            np.testing.assert_allclose(ends[0], low.query_key_alignment.sel(block=block), rtol=1e-6)
        title = ax.get_title(loc="left")
        assert f"n = {x.size}" in title
        assert f"r = {stats.pearsonr(x.ravel(), y.ravel()).statistic:.2f} (" in title
        assert f"ρ = {stats.spearmanr(x.ravel(), y.ravel()).statistic:.2f} (" in title
    assert [ax.get_ylabel().split("\n")[0] for ax in figure.axes[:8:4]] == ["decoder", "encoder"]


def test_correlations_in_the_legend_are_scipys(runs):
    figure = cosine_against_drift(runs)
    for column, side in enumerate(("all", "without_first")):
        for text, run in zip(legend_of(figure, 2 * column + 1), runs.values(), strict=True):
            last = run.batches.sel(step=1000, positions=side)
            x, y = last.drift.values.mean(0), last.mean_cosine.values.mean(0)
            pearson, spearman = stats.pearsonr(x, y), stats.spearmanr(x, y)
            orders = [stats.spearmanr(x, order).statistic for order in itertools.permutations(y)] if len(x) < 5 else []
            r, rho = (float(value) for value in re.findall(r"[rρ] = (-?[\d.]+)", text))
            assert r == pytest.approx(pearson.statistic, abs=0.0051)
            assert rho == pytest.approx(spearman.statistic, abs=0.0051)
            assert f"n = {len(x)}" in text
            if pearson.pvalue < 0.001:
                assert f"r = {r:.2f} (p < 0.001)" in text
            else:
                assert f"(p = {pearson.pvalue:.2g})," in text
            if orders:
                exact = min(1.0, 2 * np.mean(np.array(orders) * np.sign(rho) >= abs(spearman.statistic) - 1e-9))
                assert text.endswith(f"(p = {exact:.2g})")
    assert figure.axes[0].get_xlabel() == "drift (activation)"


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([1, 2, 3], [1, 2, 4], "ρ = 1.00 (p = 0.33)"),  # 2 of 6 orderings, where the t approximation says p = 0
        ([1, 2, 3, 4], [4, 3, 2, 1], "ρ = -1.00 (p = 0.083)"),  # 2 of 24
        ([1, 2], [1, 2], "n = 2\nn too small"),
        ([1, 2, np.nan, np.nan], [1, 2, 3, 4], "n = 2\nn too small"),
        ([1, 2, np.inf], [1, 2, 3], "n = 2\nn too small"),
        ([], [], "n = 0\nn too small"),
        ([1, 2, 3], [5, 5, 5], "n = 3\nconstant"),
        ([0, 0, 0], [1, 2, 3], "n = 3\nconstant"),
        ([1, 1 + 1e-7, 1 - 1e-7], [1, 2, 3], "n = 3\nconstant"),
        ([1, 2, 3, np.nan], [3, 1, 2, 5], "n = 3\nr = -0.50"),
    ],
)
def test_correlations_of_few_layers(x, y, words):
    assert words in correlations.words(np.array(x, np.float32), np.array(y, np.float64))
