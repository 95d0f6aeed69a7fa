"""Points and correlations of figures that draw one quantity against another are those of the tables."""

import itertools

import numpy as np
import pandas as pd
from scipy import stats

from anisoscope.analysis import correlations
from anisoscope.plot.against import SHARPNESS, cosine_against_drift, sharpness_against_alignment
from anisoscope.plot.draw import RUNS
from anisoscope.plot.run import words
from tests.plot.reading import footer_of, legend_of
from tests.plot.tables import changed, lacking


def test_sharpness_against_alignment_has_a_point_per_head_and_correlates_them(runs):
    figure = sharpness_against_alignment(runs)
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), SHARPNESS), strict=False):
        last = run.results.sel(step=1000, positions="all")
        mean, low, high = (last.sel(statistic=end) for end in ("mean", "low", "high"))
        x, y = mean.query_key_alignment.values, mean[name].values
        for block, (points, _, bars) in zip(last.block.values, ax.containers, strict=True):
            np.testing.assert_array_equal(points.get_data(), (x[block - 1], y[block - 1]))
            for axis, (bar, of) in enumerate(zip(bars, ("query_key_alignment", name), strict=True)):
                ends = np.array(bar.get_segments())[:, :, axis].T
                np.testing.assert_allclose(ends, [end[of].sel(block=block) for end in (low, high)], rtol=1e-6)
    assert [ax.get_ylabel() for ax in figure.axes[:8:4]] == ["decoder\n48 heads", "encoder\n24 heads"]
    assert [ax.get_title().replace("\n", " ") for ax in figure.axes[:4]] == [words(runs, name) for name in SHARPNESS]


def test_vectors_of_a_file_have_a_first_layer_and_no_embedding(runs):
    """Of several runs, if one of them has none."""
    of_file = changed(runs["encoder"], lambda table: table.assign_attrs(layer_0="vectors, as the others"))
    for shown, first in ((runs, "embedding"), (runs | {"encoder": of_file}, "first layer")):
        figure = cosine_against_drift(shown)
        assert legend_of(figure, 1)[-1] == first
        assert f"hollow: the {first}." in figure.get_label()
        bar = RUNS["dimension_by_scale"](shown).axes[-1].get_ylabel()
        assert bar == ("layer (0 = embedding)" if first == "embedding" else "layer")


def test_correlations_in_the_caption_are_scipys_corrected_for_their_number(runs):
    figure = cosine_against_drift(runs)
    assert "p = " not in footer_of(figure) + "".join(legend_of(figure, 1))
    sides = figure.get_label().split("Without position 0.")
    for text, side in zip(sides, ("all", "without_first"), strict=True):
        found, expected = {}, {}
        for label, run in runs.items():
            last = run.results.sel(step=1000, positions=side, statistic="mean")
            pearson = stats.pearsonr(last.drift, last.mean_cosine)
            line = next(line for line in text.splitlines() if line.startswith(f"{label}, mean cosine"))
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


def test_of_runs_of_other_lengths_p_is_that_of_the_table_and_each_line_says_of_how_many(runs):
    """One of them lacks a quantity: it has no panel, and its other correlations are in the table."""
    long = changed(runs["decoder"], lambda table: table.sel(step=[4, 1000], positions=["all"]))
    short = changed(long, lambda table: table.sel(step=[4]))
    shown = {"long": long, "short": short, "partly": lacking(long, "attention_first")}
    table = correlations.correlations({label: run.results for label, run in shown.items()})
    table = table.set_index(["run", "y", "step"])
    for build, names in ((cosine_against_drift, ["mean_cosine"]), (sharpness_against_alignment, SHARPNESS)):
        told = build(shown).get_label()
        assert "corrected after Holm for as many of this kind in correlations.csv as each line says." in told
        drawn = [label for label in shown if label != "partly" or names == ["mean_cosine"]]
        for label, name in itertools.product(drawn, names):
            row = table.loc[label, name, shown[label].results.step.values[-1]]
            assert f"{label}, {words(shown, name)} (of {row.tests}): {correlations.words(row)}" in told.splitlines()


def test_correlations_of_few_layers_in_words():
    for x, y, said in (
        ([1, 2, 3], [1, 2, 4], "ρ = 1.00 (p = 0.33)"),  # 2 of 6 orderings, where the t approximation says p = 0
        ([1, 2, np.nan, np.nan], [1, 2, 3, 4], "n = 2: too few"),
        ([1, 1 + 1e-7, 1 - 1e-7], [1, 2, 3], "n = 3: constant"),
        ([1, 2, 3, np.nan], [3, 1, 2, 5], "n = 3, r = −0.50 (p"),
    ):
        found = correlations.correlate(np.array(x, np.float32), np.array(y, np.float64))
        alone = {"pearson_p_holm": found.pearson_p, "spearman_p_holm": found.spearman_p}
        assert said in correlations.words(pd.Series(found._asdict() | alone))
