"""What is drawn is what the tables say."""

import itertools
import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from figures import (
    anisotropy_by_checkpoint,
    anisotropy_profile,
    cosine_against_drift,
    dimension_over_training,
    query_key_drift,
    style,
    training_curve,
)
from figures.run import Run
from tests.figures.tables import STEPS, make_run

SIDES = ("all", "without_first")


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {"decoder": make_run(), "encoder": make_run(False, layers=3)}


@pytest.fixture(autouse=True)
def _styled():
    with style.context():
        yield


def legend_of(figure: Figure, panel: int) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].get_legend().get_texts()]


def test_anisotropy_profile(runs):
    figure = anisotropy_profile.build(runs)
    for ax, side in zip(figure.axes, SIDES, strict=True):
        for line, band, run in zip(ax.lines, ax.collections, runs.values(), strict=True):
            values = run.results.anisotropy.sel(step=1000, positions=side).values
            np.testing.assert_allclose(line.get_xdata(), np.linspace(0, 1, values.shape[1]), atol=1e-15)
            np.testing.assert_allclose(line.get_ydata(), values.mean(0), rtol=1e-6)
            low, high = edges(band, line.get_xdata())
            np.testing.assert_allclose(high - low, 2 * values.std(0, ddof=1), rtol=1e-4)
            np.testing.assert_allclose(high + low, 2 * values.mean(0), rtol=1e-5)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert figure.axes[0].get_ylim()[0] == 0
    assert legend_of(figure, 1) == ["decoder", "encoder"]


def edges(band, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper edge of a filled band at each x."""
    points = band.get_paths()[0].vertices
    at = [points[points[:, 0] == value, 1] for value in x]
    return np.array([y.min() for y in at]), np.array([y.max() for y in at])


def test_one_batch_has_no_band():
    figure = anisotropy_profile.build({"decoder": make_run(batches=1)})
    assert not figure.axes[0].collections
    assert not dimension_over_training.build({"decoder": make_run(batches=1)}).axes[0].collections


def test_dimension_is_averaged_over_blocks_then_over_batches(runs):
    figure = dimension_over_training.build(runs)
    for ax, name in zip(figure.axes, ("twonn", "twonn_mle", "twonn_microscope"), strict=True):
        for line, band, run in zip(ax.lines, ax.collections, runs.values(), strict=True):
            average = run.results[name].sel(positions="all").values[:, :, 1:].mean(2)  # step, batch
            np.testing.assert_array_equal(line.get_xdata(), STEPS)
            np.testing.assert_allclose(line.get_ydata(), average.mean(1), rtol=1e-6)
            low, high = edges(band, line.get_xdata())
            np.testing.assert_allclose(high - low, 2 * average.std(1, ddof=1), rtol=1e-4)
        assert ax.get_xscale() == "symlog"
        assert ax.get_xlim()[0] < 0
    assert "intrinsic dimension\n(TwoNN, 90 % fit)" in [ax.get_title() for ax in figure.axes]


def test_a_block_without_a_dimension_leaves_a_gap_and_the_embedding_does_not():
    run = make_run()
    results = run.results.copy(deep=True)
    results.twonn[:, :, :, 0] = np.nan
    results.twonn[3, :, 1, 2] = np.nan
    (line,) = dimension_over_training.build({"decoder": Run(results, run.log)}).axes[0].lines
    assert np.flatnonzero(np.isnan(line.get_ydata())).tolist() == [3]


def test_anisotropy_by_checkpoint(runs):
    figure = anisotropy_by_checkpoint.build(runs)
    panels = itertools.product(runs.items(), SIDES)
    colours = [tuple(line.get_color()) for line in figure.axes[0].lines]
    for ax, ((label, run), side) in zip(figure.axes, panels, strict=False):
        expected = run.results.anisotropy.sel(positions=side).values.mean(1)
        np.testing.assert_allclose([line.get_ydata() for line in ax.lines], expected, rtol=1e-6)
        assert [tuple(line.get_color()) for line in ax.lines] == colours
        assert ax.get_title().startswith(label)
    assert len(set(colours)) == len(STEPS)
    assert np.all(np.diff([colour[1] for colour in colours]) > 0)  # viridis: greener with every checkpoint
    assert [tick.get_text() for tick in figure.axes[-1].get_yticklabels()] == ["0", "1", "10", "100", "1k"]


def test_query_key_drift_is_the_mean_over_heads_for_each_block(runs):
    figure = query_key_drift.build(runs)
    variables = ("query_drift", "key_drift", "query_key_alignment", "query_key_cosine")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), variables), strict=False):
        expected = run.results[name].sel(positions="all").values.mean((1, 3))  # step, block
        np.testing.assert_allclose(np.array([line.get_ydata() for line in ax.lines[:-1]]).T, expected, rtol=1e-5)
    titles = [ax.get_title().replace("\n", " ") for ax in figure.axes[:2]]
    assert titles == ["query drift (activation)", "key drift (activation)"]
    assert [ax.get_ylabel() for ax in figure.axes[:8:4]] == ["decoder", "encoder"]
    deep, shallow = figure.axes[0].lines, figure.axes[4].lines
    assert [line.get_color() for line in deep[:3]] == [line.get_color() for line in shallow[:3]]  # a block, a colour


def test_correlations_in_the_legend_are_scipys(runs):
    figure = cosine_against_drift.build(runs)
    for column, side in enumerate(SIDES):
        for text, run in zip(legend_of(figure, 2 * column + 1), runs.values(), strict=True):
            last = run.results.sel(step=1000, positions=side)
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
    assert words in cosine_against_drift.correlations(np.array(x, np.float32), np.array(y, np.float64))


def test_training_curve_keeps_objectives_apart(runs):
    figure = training_curve.build(runs)
    for ax, run in zip(figure.axes, runs.values(), strict=True):
        for line, kind in zip(ax.lines, ("train", "valid"), strict=True):
            expected = [(entry["step"], entry["bits_per_character"]) for entry in run.log if entry["kind"] == kind]
            np.testing.assert_array_equal(np.transpose(line.get_data()), expected)
    assert [ax.get_title() for ax in figure.axes] == ["predicting next character", "predicting masked characters"]
    assert "not comparable" in figure._suptitle.get_text()
    assert legend_of(figure, 1) == ["decoder", "encoder"]
    alone = training_curve.build({"decoder": runs["decoder"]})
    assert len(alone.axes) == 1
    assert "comparable" not in alone._suptitle.get_text()


def test_training_curve_of_a_run_that_has_just_begun(runs):
    begun = Run(runs["decoder"].results, runs["decoder"].log[:1])
    figure = training_curve.build({"decoder": begun})
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [1, 0]
    assert legend_of(figure, 0) == ["decoder"]


def test_a_step_that_was_trained_twice_counts_once():
    log = [
        {"step": step, "kind": kind, "bits_per_character": bits}
        for step, kind, bits in [
            (1, "train", 5.0),
            (2, "train", 4.0),
            (2, "valid", 4.5),
            (2, "train", 3.9),
            (1, "test", 0),
        ]
    ]
    assert training_curve.curve(log, "train") == ([1, 2], [5.0, 3.9])
    assert training_curve.curve(log, "valid") == ([2], [4.5])
