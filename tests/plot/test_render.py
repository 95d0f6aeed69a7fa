"""What figures over depth show is what the tables say."""

import itertools

import numpy as np
import pytest
import xarray as xr

from anisoscope.measurement.families.leading_family import WITHOUT
from anisoscope.measurement.families.registry import nulls_of
from anisoscope.plot import panel_axes, style
from anisoscope.plot.draw import RUNS
from anisoscope.plot.frame_statistics import cosine_against_drift
from anisoscope.plot.run_tables import NULLS
from anisoscope.plot.specs import SPECS
from anisoscope.results.excess import excess_of
from tests.plot.reading import edges_are, legend_of
from tests.plot.tables import STEPS, beside, changed, lacking

SIDES = ("all", "without_first")


def test_anisotropy_profile(runs):
    figure = RUNS["anisotropy_profile"](runs)
    for ax, side in zip(figure.axes, SIDES, strict=True):
        for line, band, run in zip(ax.lines, ax.collections, runs.values(), strict=False):
            values = run.results.anisotropy.sel(step=1000, positions=side)
            np.testing.assert_allclose(
                line.get_xdata(), np.linspace(0, 1, values.sizes["layer"]), atol=1e-15
            )
            np.testing.assert_array_equal(line.get_ydata(), values.sel(statistic="mean"))
            edges_are(band, line, values)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert figure.axes[0].get_ylim()[0] <= 0
    assert legend_of(figure, 1) == ["decoder", "encoder"]


def test_anisotropy_by_checkpoint(runs):
    figure = RUNS["anisotropy_by_checkpoint"](runs)
    panels = itertools.product(runs.values(), SIDES)
    colours = [tuple(line.get_color()) for line in figure.axes[0].lines[:-1]]
    for ax, (run, side) in zip(figure.axes, panels, strict=False):
        expected = run.results.anisotropy.sel(positions=side, statistic="mean")
        # the last is zero
        np.testing.assert_array_equal([line.get_ydata() for line in ax.lines[:-1]], expected)
        last = run.results.anisotropy.sel(step=1000, positions=side)
        edges_are(ax.collections[-1], ax.lines[-2], last)
        assert [tuple(line.get_color()) for line in ax.lines[:-1]] == colours
    assert len(set(colours)) == len(STEPS)
    assert np.all(np.diff([luminance(colour) for colour in colours]) > 0)  # told apart in grey too
    # of contrast to the paper
    assert all(1.05 / (luminance(colour) + 0.05) >= 3 for colour in colours)
    assert [tick.get_text() for tick in figure.axes[-1].get_yticklabels()] == [
        "0",
        "1",
        "10",
        "100",
        "1k",
    ]


def test_anisotropy_decomposition(runs):
    figure = RUNS["anisotropy_decomposition"](runs)
    for row, run in zip(np.array(figure.axes).reshape(len(runs), 4), runs.values(), strict=True):
        last = run.results.sel(step=1000, statistic="mean")
        for ax, name in zip(row, SPECS["anisotropy_decomposition"].quantities, strict=True):
            without = f"{name}_without"
            expected = [
                *(last[name].sel(positions=side) for side in SIDES),
                *(last[without].sel(positions="all", without=words) for words in WITHOUT),
                *[last.first_share.sel(positions="all")] * (name == "anisotropy"),
            ]
            for line, values in zip(ax.lines, expected, strict=False):
                np.testing.assert_array_equal(line.get_ydata(), values)
            if name in ("anisotropy", "twonn"):  # a Gaussian cloud lies about the origin
                excess = last[f"{without}_excess"].sel(null="gaussian", positions="all")
                null = expected[3] - excess.sel(without=WITHOUT[1])
                np.testing.assert_allclose(ax.lines[len(expected)].get_ydata(), null)
    assert legend_of(figure, 3)[:2] == ["all vectors", "without token 0"]
    alone = {"decoder": lacking(runs["decoder"], "twonn", "drift_without")}
    assert [ax.get_title() for ax in RUNS["anisotropy_decomposition"](alone).axes] == [
        "anisotropy",
        "mean cosine",
    ]
    three = {"decoder": lacking(runs["decoder"], "drift_without")}  # and a place left empty
    three = RUNS["anisotropy_decomposition"](three).axes
    assert [bool(ax.get_xlabel()) for ax in three] == [False, True, True, False]
    assert [ax.xaxis.get_tick_params()["labelbottom"] for ax in three[:3]] == [False, True, True]
    assert (
        RUNS["anisotropy_decomposition"](
            {label: lacking(run, "first_share") for label, run in runs.items()}
        )
        is None
    )


def test_outlier_coordinates_with_the_anisotropy_that_is_left(runs):
    figure = RUNS["outlier_coordinates"](runs)
    shares, left = figure.axes[:3], figure.axes[3:]
    assert all(ax.get_ylim()[0] <= 0 for ax in figure.axes)
    for share, anisotropy, top in zip(shares, left, (1, 3, 10), strict=True):
        for i, run in enumerate(runs.values()):
            last = run.results.sel(step=1000, positions="all")
            means = last.sel(statistic="mean")
            np.testing.assert_array_equal(
                share.lines[i].get_ydata(), means.coordinate_share.sel(top=top)
            )
            without, whole = anisotropy.lines[2 * i : 2 * i + 2]
            np.testing.assert_array_equal(
                without.get_ydata(), means.anisotropy_left_out.sel(top=top)
            )
            np.testing.assert_array_equal(whole.get_ydata(), means.anisotropy)
            edges_are(anisotropy.collections[i], without, last.anisotropy_left_out.sel(top=top))
    alone = RUNS["outlier_coordinates"]({"decoder": lacking(runs["decoder"], "anisotropy")})
    assert [len(ax.lines) for ax in alone.axes] == [2] * 6  # with zero


def test_excess_over_nulls(runs):
    shuffled = beside(runs["decoder"], "shuffled")
    partly = runs | {"partly": lacking(shuffled, "anisotropy")}
    figure = RUNS["excess_over_nulls"](partly)
    axes = np.array(figure.axes).reshape(4, 3)
    models = [null for null in NULLS if null != "permuted"]  # which comparisons alone have
    panels = itertools.product(SPECS["excess_over_nulls"].quantities, models)
    for (name, null), ax in zip(panels, axes.flat, strict=True):
        shown = [
            run for run in partly.values() if name in run.results and null in run.results["null"]
        ]
        assert len(shown) == 2 + (null == "shuffled" and name != "anisotropy")
        # but for dimension, a Gaussian is like its own
        none = [] if null in nulls_of(name) else ["no such null model"]
        assert [text.get_text() for text in ax.texts] == none
        assert len(ax.lines) == (0 if none else len(shown) + 1)  # zero
        for line, run in zip(ax.lines, shown, strict=False):
            excess = excess_of(run.results, name, null).sel(step=1000, positions="all")
            np.testing.assert_array_equal(line.get_ydata(), excess.sel(statistic="mean"))
            if null in nulls_of(name):
                edges_are(ax.collections[shown.index(run)], line, excess)
    assert legend_of(figure, 2) == ["decoder", "encoder", "partly"]
    assert figure.get_supylabel() == "excess over the null model"
    lost = changed(runs["decoder"], lambda table: table)
    lost.results.effective_rank_excess.loc[{"null": "shuffled"}] = np.nan
    axes = np.array(RUNS["excess_over_nulls"]({"decoder": lost}).axes).reshape(4, 3)
    assert [[text.get_text() for text in ax.texts] for ax in axes[1]] == [
        ["no such null model"],
        ["no values"],
        [],
    ]
    without = beside(runs["decoder"])
    assert RUNS["excess_over_nulls"]({"decoder": without}) is None


def luminance(colour: tuple[float, ...]) -> float:
    """As the W3C defines it for contrast."""
    red, green, blue = (
        c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in colour[:3]
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_position_0_has_no_panel_of_its_own_where_leaving_it_out_makes_no_difference(runs):
    def alike(table: xr.Dataset, by: float) -> xr.Dataset:
        for name in ("anisotropy", "mean_cosine", "drift"):
            table[name].loc[{"positions": "without_first"}] = by * table[name].sel(positions="all")
        return table

    figures = RUNS["anisotropy_profile"], RUNS["anisotropy_by_checkpoint"], cosine_against_drift
    same, apart = (
        {"decoder": changed(runs["decoder"], lambda t, by=by: alike(t, by))} for by in (1.01, 1.1)
    )
    for build in figures:
        one, both = build(same), build(apart)
        assert not [ax for ax in one.axes if "position" in ax.get_title()]
        assert "Without position 0 the figure looks the same" in one.get_label()
        assert len([ax for ax in both.axes if "position" in ax.get_title()]) == 2
        assert "looks the same" not in both.get_label()
        there_is_no_other = {
            "decoder": changed(runs["decoder"], lambda t: t.sel(positions=["all"]))
        }
        assert "position 0" not in build(there_is_no_other).get_label()


def test_limits_serve_the_lines_and_cut_a_band_that_dwarfs_them():
    ax = style.new(3, 2).subplots()
    style.banded(
        ax,
        np.arange(3),
        np.array([5.0, 6, 5]),
        np.array([-90.0, 5, 5]),
        np.array([7.0, 7, 90]),
        color="k",
    )
    panel_axes.fit([ax])
    # twice the span of 1 beyond the lines, and a margin
    assert ax.get_ylim() == pytest.approx((3 - 0.25, 8 + 0.25))
    assert not [line for line in ax.lines if len(set(line.get_ydata())) == 1]  # zero is far away
    panel_axes.fit([ax], zero=True)
    assert ax.get_ylim()[0] <= 0
    ax = style.new(3, 2).subplots()
    style.banded(
        ax, np.arange(2), np.array([5.0, 6]), np.array([4.9, 5.9]), np.array([5.1, 6.1]), color="k"
    )
    ax.axvline(0)  # from 0 to 1 of the panel
    panel_axes.fit([ax])
    assert ax.get_ylim() == pytest.approx((4.9 - 0.06, 6.1 + 0.06))  # all of a band that does not
    ax.axhline(4.6)
    panel_axes.fit([ax])
    assert ax.get_ylim()[0] < 4.6
