"""Points and correlations of figures that draw one quantity against another are those of the
tables.
"""

import itertools

import numpy as np
from scipy import stats

from anisoscope.plot.frame_statistics import (
    SHARPNESS,
    cosine_against_drift,
    sharpness_against_alignment,
)
from anisoscope.plot.run_tables import words
from tests.plot.reading import footer_of, legend_of


def test_sharpness_against_alignment_has_a_point_per_head_and_correlates_them(runs):
    figure = sharpness_against_alignment(runs)
    for ax, (run, name) in zip(
        figure.axes, itertools.product(runs.values(), SHARPNESS), strict=False
    ):
        last = run.results.sel(step=1000, positions="all")
        mean, low, high = (last.sel(statistic=end) for end in ("mean", "low", "high"))
        x, y = mean.query_key_alignment.values, mean[name].values
        for block, (points, _, bars) in zip(last.block.values, ax.containers, strict=True):
            np.testing.assert_array_equal(points.get_data(), (x[block - 1], y[block - 1]))
            for axis, (bar, of) in enumerate(zip(bars, ("query_key_alignment", name), strict=True)):
                ends = np.array(bar.get_segments())[:, :, axis].T
                np.testing.assert_allclose(
                    ends, [end[of].sel(block=block) for end in (low, high)], rtol=1e-6
                )
    assert [ax.get_ylabel() for ax in figure.axes[:8:4]] == [
        "decoder\n48 heads",
        "encoder\n24 heads",
    ]
    assert [ax.get_title().replace("\n", " ") for ax in figure.axes[:4]] == [
        words(runs, name) for name in SHARPNESS
    ]


def test_correlations_in_the_caption_are_scipys_corrected_for_their_number(runs):
    figure = cosine_against_drift(runs)
    assert "p = " not in footer_of(figure) + "".join(legend_of(figure, 1))
    sides = figure.get_label().split("Without position 0.")
    for text, side in zip(sides, ("all", "without_first"), strict=True):
        found, expected = {}, {}
        for label, run in runs.items():
            last = run.results.sel(step=1000, positions=side, statistic="mean")
            pearson = stats.pearsonr(last.drift, last.mean_cosine)
            line = next(
                line for line in text.splitlines() if line.startswith(f"{label}, mean cosine")
            )
            plain = line.replace("\N{MINUS SIGN}", "-")
            assert f"n = {last.sizes['layer']}, r = {pearson.statistic:.2f} [" in plain
            assert f"ρ = {stats.spearmanr(last.drift, last.mean_cosine).statistic:.2f} " in plain
            found[label], expected[label] = line.split(" (")[1].split(")")[0], pearson.pvalue
        least, most = sorted(expected, key=expected.get)
        corrected = {least: 2 * expected[least], most: max(2 * expected[least], expected[most])}
        for label, p in corrected.items():
            assert found[label] == ("p < 0.001" if p < 0.001 else f"p = {min(p, 1):.2g}")
        assert "corrected after Holm for the 2 of this kind" in text
    assert figure.axes[0].get_xlabel() == "drift |E x|"
