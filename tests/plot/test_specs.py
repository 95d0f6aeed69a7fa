"""What figures of specs show is what the tables and the log say."""

import dataclasses
import itertools

import numpy as np
import pytest
import xarray as xr

from anisoscope.measurement.families.leading_family import WITHOUT
from anisoscope.measurement.families.registry import null_models_for
from anisoscope.plot import panel_axes, style
from anisoscope.plot.draw import MODELS, RUNS
from anisoscope.plot.render import render
from anisoscope.plot.run_tables import NULLS
from anisoscope.plot.scatter_figures import cosine_against_drift
from anisoscope.plot.specs import SPECS
from anisoscope.results.excess import excess_of
from tests.plot.reading import caption_of, curve_is, footer_of
from tests.plot.tables import STEPS, changed, lacking, with_nulls

SIDES = ("all", "without_first_token")


def test_a_profile_is_the_last_checkpoint_with_its_interval(runs):
    figure = RUNS["anisotropy_profile"](runs)
    for ax, side in zip(figure.axes, SIDES, strict=True):
        for line, band, run in zip(ax.lines, ax.collections, runs.values(), strict=False):
            values = run.results.anisotropy.sel(step=1000, positions=side)
            np.testing.assert_allclose(line.get_xdata(), values.depth, atol=1e-15)
            curve_is(line, values, band)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()


def test_checkpoints_are_curves_in_colors_that_differ_in_gray(runs):
    figure = RUNS["anisotropy_by_checkpoint"](runs)
    for ax, (run, side) in zip(figure.axes, itertools.product(runs.values(), SIDES), strict=False):
        values = run.results.anisotropy.sel(positions=side)
        for line, band, step in zip(ax.lines, ax.collections, STEPS, strict=False):
            curve_is(line, values.sel(step=step), band)
    red, green, blue = np.transpose([line.get_color()[:3] for line in figure.axes[0].lines[:-1]])
    linear = [
        np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) for c in (red, green, blue)
    ]
    luminance = np.dot([0.2126, 0.7152, 0.0722], linear)  # as the W3C defines it for contrast
    assert len(luminance) == len(STEPS)
    assert (np.diff(luminance) > 0).all()
    assert (1.05 / (luminance + 0.05) >= 3).all()


def test_what_is_left_without_the_longest_vectors(runs):
    figure = RUNS["anisotropy_decomposition"](runs)
    names = SPECS["anisotropy_decomposition"].quantities
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=True):
        last, without = run.results.sel(step=1000), f"{name}_without_longest"
        expected = [
            *(last[name].sel(positions=side) for side in SIDES),
            *(last[without].sel(positions="all", without=which) for which in WITHOUT),
            *[last.first_token_variance_share.sel(positions="all")] * (name == "anisotropy"),
        ]
        for line, values in zip(ax.lines, expected, strict=False):
            curve_is(line, values)
        if name in ("anisotropy", "twonn"):  # a Gaussian cloud lies about the origin
            excess = last[f"{without}_excess"].sel(null="gaussian", positions="all")
            curve_is(ax.lines[len(expected)], expected[3] - excess.sel(without=WITHOUT[1]))
    fewer = {"decoder": lacking(runs["decoder"], "twonn", "drift_without_longest")}
    assert len(RUNS["anisotropy_decomposition"](fewer).axes) == 2
    lost = {"decoder": lacking(runs["decoder"], "first_token_variance_share")}
    assert RUNS["anisotropy_decomposition"](lost) is None


def test_outlier_coordinates_with_the_anisotropy_that_is_left(runs):
    figure = RUNS["outlier_coordinates"](runs)
    for share, left, top in zip(figure.axes[:3], figure.axes[3:], (1, 3, 10), strict=True):
        for i, run in enumerate(runs.values()):
            last = run.results.sel(step=1000, positions="all")
            curve_is(
                share.lines[i],
                last.top_coordinate_variance_share.sel(top=top),
                share.collections[i],
            )
            curve_is(
                left.lines[2 * i],
                last.anisotropy_without_top_coordinates.sel(top=top),
                left.collections[i],
            )
            curve_is(left.lines[2 * i + 1], last.anisotropy)


def test_excess_is_drawn_of_the_runs_and_quantities_that_have_the_null_model(runs):
    partly = runs | {"partly": lacking(with_nulls(runs["decoder"], "shuffled"), "anisotropy")}
    axes = RUNS["excess_over_nulls"](partly).axes
    there = runs["decoder"].results["null"]
    models = [null for null in NULLS if null in there and null != "permuted"]  # comparisons' alone
    panels = itertools.product(SPECS["excess_over_nulls"].quantities, models)
    for (name, null), ax in zip(panels, axes, strict=True):
        shown = [
            run.results
            for run in partly.values()
            if name in run.results and null in run.results["null"] and null in null_models_for(name)
        ]
        assert len(ax.lines) == (len(shown) + 1 if shown else 0)  # zero
        for line, band, table in zip(ax.lines, ax.collections, shown, strict=False):
            excess = excess_of(table, name, null).sel(step=1000, positions="all")
            curve_is(line, excess, band)
    assert RUNS["excess_over_nulls"]({"decoder": with_nulls(runs["decoder"])}) is None


@pytest.mark.parametrize("name", ["dimension_over_training", "spectrum_over_training"])
def test_over_training_a_line_per_run_is_the_average_over_blocks(runs, name):
    for ax, quantity in zip(RUNS[name](runs).axes, SPECS[name].quantities, strict=True):
        for line, band, run in zip(ax.lines, ax.collections, runs.values(), strict=False):
            values = run.results[f"{quantity}_over_blocks"].sel(positions="all")
            np.testing.assert_array_equal(line.get_xdata(), STEPS)
            curve_is(line, values, band)


DEPTHS = {
    **dict.fromkeys(("query_key_drift", "query_key_fluctuation", "attention_sharpness"), "block"),
    "change_over_training": "layer",
}


@pytest.mark.parametrize(("name", "depth"), DEPTHS.items())
def test_over_training_a_line_per_layer_or_block_has_its_interval(runs, name, depth):
    panels = itertools.product(runs.values(), SPECS[name].quantities)
    for ax, (run, quantity) in zip(RUNS[name](runs).axes, panels, strict=False):
        suffix = "_over_heads" if depth == "block" else ""
        values = run.results[f"{quantity}{suffix}"].sel(positions="all")
        bands = [None] * 99 if quantity == "cka_previous" else ax.collections  # has a gap
        for line, band, label in zip(ax.lines, bands, values[depth], strict=False):
            curve_is(line, values.sel({depth: label}), band)


def test_dimension_by_scale_has_a_curve_for_each_layer_and_its_null_model(runs):
    for ax, run in zip(RUNS["dimension_by_scale"](runs).axes, runs.values(), strict=False):
        last = run.results.sel(step=1000, positions="all")
        null = last.gride - last.gride_excess.sel(null="gaussian")
        for layer in last.layer.values:
            curve_is(ax.lines[2 * layer], last.gride.sel(layer=layer), ax.collections[layer])
            curve_is(ax.lines[2 * layer + 1], null.sel(layer=layer))


def test_hook_points_stand_beside_the_residual_stream(runs):
    run = runs["decoder"]
    ax = RUNS["hook_points"]({"decoder": run}).axes[0]
    tables = (run.results, *run.hook_points.values())
    for line, band, table in zip(ax.lines, ax.collections, tables, strict=False):
        values = table.anisotropy.isel(step=-1).sel(positions="all")
        np.testing.assert_array_equal(line.get_xdata(), values.layer)
        curve_is(line, values, band)
    without = {"decoder": dataclasses.replace(run, hook_points={})}
    assert RUNS["hook_points"](without) is None


def test_watched_curves_are_those_of_the_log_by_layer(runs):
    figure = RUNS["watched_geometry"](runs)
    names = ("anisotropy", "participation_ratio", "mean_cosine", "drift")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=False):
        log = [line for line in run.log if line["kind"] == "watch"]
        drawn = np.array([line.get_ydata() for line in ax.lines[: run.results.sizes["layer"]]])
        np.testing.assert_array_equal(drawn.T, [line[name] for line in log])
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), [line["step"] - 1 for line in log])
    assert RUNS["watched_geometry"]({"old": dataclasses.replace(runs["decoder"], log=[])}) is None


@pytest.mark.parametrize("name", ["spectrum_over_training", "attention_sharpness"])
def test_gain_over_unigram_takes_the_place_of_steps(runs, name):
    figure, over_steps = render(SPECS[name], runs, "gain_over_unigram"), RUNS[name](runs)
    gains = runs["decoder"].results.validation_gain_over_unigram
    for ax, other in zip(figure.axes[:3], over_steps.axes[:3], strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), gains)
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), other.lines[0].get_ydata())
    assert "Gain over unigram: bits of the best answer" in footer_of(figure)


def test_models_stand_in_columns_by_kind(runs):
    decoder, encoder = (
        dataclasses.replace(runs[kind], kind=kind) for kind in ("decoder", "encoder")
    )
    models = {"OPT": decoder, "BERT": encoder, "Pythia": decoder}
    figure = MODELS["shape_of_learning"]["anisotropy_over_depth"](models)
    panels = itertools.product(SIDES, (["BERT"], ["OPT", "Pythia"]))
    for ax, (side, names) in zip(figure.axes, panels, strict=True):
        assert [line.get_label() for line in ax.lines[:-1]] == names
        for line, name in zip(ax.lines, names, strict=False):
            curve_is(line, models[name].results.anisotropy.isel(step=-1).sel(positions=side))


def test_position_0_has_no_panel_of_its_own_where_leaving_it_out_makes_no_difference(runs):
    def scaled(table: xr.Dataset, by: float) -> xr.Dataset:
        for name in ("anisotropy", "mean_cosine", "drift"):
            table[name].loc[{"positions": "without_first_token"}] = by * table[name].sel(
                positions="all"
            )
        return table

    same, other = (
        {"decoder": changed(runs["decoder"], lambda t, by=by: scaled(t, by))} for by in (1.01, 1.1)
    )
    single = {"decoder": changed(runs["decoder"], lambda t: t.sel(positions=["all"]))}
    for build in (RUNS["anisotropy_profile"], cosine_against_drift):
        assert [len(build(one).axes) for one in (same, other, single)] == [1, 2, 1]
        notes = ["looks the same" in caption_of(build(one)) for one in (same, other, single)]
        assert notes == [True, False, False]


def test_limits_serve_the_lines_and_cut_a_band_that_dwarfs_them():
    ax = style.new_figure(3, 2).subplots()
    band = np.array([-90.0, 5, 5]), np.array([7.0, 7, 90])
    style.plot_with_interval(ax, np.arange(3), np.array([5.0, 6, 5]), *band, color="k")
    ax.axvline(0)  # from 0 to 1 of the panel
    panel_axes.fit([ax])
    # twice the span of 1 beyond the lines, and a margin
    assert ax.get_ylim() == pytest.approx((3 - 0.25, 8 + 0.25))
    panel_axes.fit([ax], zero=True)
    assert ax.get_ylim()[0] <= 0
