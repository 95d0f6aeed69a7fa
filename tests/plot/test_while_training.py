"""What figures over training show is what the tables and the log say."""

import dataclasses
import itertools

import numpy as np
import pytest

from anisoscope.plot.draw import RUNS
from anisoscope.plot.render import render
from anisoscope.plot.specs import SPECS
from anisoscope.plot.training_curve import build as training_curve
from anisoscope.plot.training_curve import curve
from tests.plot.reading import edges_are, footer_of, legend_of
from tests.plot.tables import STEPS


@pytest.mark.parametrize("figure_name", ["dimension_over_training", "spectrum_over_training"])
def test_a_line_per_run_is_the_average_over_blocks_with_its_interval(runs, figure_name):
    figure = RUNS[figure_name](runs)
    for ax, name in zip(figure.axes, SPECS[figure_name].quantities, strict=True):
        for line, band, run in zip(ax.lines, ax.collections, runs.values(), strict=False):
            values = run.results.sel(positions="all")
            np.testing.assert_array_equal(line.get_xdata(), STEPS)
            average = values[name].sel(statistic="mean").isel(layer=slice(1, None)).mean("layer")
            np.testing.assert_allclose(line.get_ydata(), average, rtol=1e-6)
            edges_are(band, line, values[f"{name}_over_blocks"])
        assert ax.get_xscale() == "symlog"
        assert ax.get_xlim()[0] < 0
    assert footer_of(figure).startswith("Band: 95 % interval, windows resampled. ")


@pytest.mark.parametrize(
    "figure_name", ["query_key_drift", "query_key_fluctuation", "attention_sharpness"]
)
def test_attention_is_the_mean_over_heads_for_each_block(runs, figure_name):
    figure = RUNS[figure_name](runs)
    panels = itertools.product(runs.values(), SPECS[figure_name].quantities)
    for ax, (run, name) in zip(figure.axes, panels, strict=False):
        values = run.results.sel(positions="all")
        blocks = run.results.sizes["block"]
        drawn = np.array([line.get_ydata() for line in ax.lines[:blocks]]).T
        np.testing.assert_allclose(
            drawn, values[name].sel(statistic="mean").mean("head"), rtol=1e-5
        )
        edges_are(ax.collections[0], ax.lines[0], values[f"{name}_over_heads"].isel(block=0))


def test_change_over_training_has_a_line_and_an_interval_per_layer(runs):
    figure = RUNS["change_over_training"](runs)
    names = ("cka_last", "overlap_last", "cka_previous")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=False):
        table = run.results[name].sel(positions="all")
        for line, layer in zip(ax.lines, table.layer.values, strict=False):
            np.testing.assert_array_equal(
                line.get_ydata(), table.sel(layer=layer, statistic="mean")
            )
        one = (
            table.sel(layer=2).isel(step=slice(1, None))
            if name == "cka_previous"
            else table.sel(layer=2)
        )
        line = ax.lines[2]
        line.set_data(
            line.get_xdata()[-one.sizes["step"] :], line.get_ydata()[-one.sizes["step"] :]
        )
        edges_are(ax.collections[2], line, one)
    assert figure.axes[-1].get_ylabel() == "layer (0 = embedding)"


def test_training_curve_keeps_objectives_apart(runs):
    figure = training_curve(runs)
    for ax, run in zip(figure.axes, runs.values(), strict=True):
        for line, kind in zip(ax.lines, ("train", "valid"), strict=False):
            expected = [
                (one["step"], one["bits_per_character"]) for one in run.log if one["kind"] == kind
            ]
            np.testing.assert_array_equal(np.transpose(line.get_data()), expected)
    assert [ax.get_title() for ax in figure.axes] == [
        "predicting next character",
        "predicting masked characters",
    ]
    assert "not comparable" in footer_of(figure)
    assert legend_of(figure, 1) == ["decoder", "without context", "encoder"]
    begun = training_curve(
        {"decoder": dataclasses.replace(runs["decoder"], log=runs["decoder"].log[:1])}
    )
    assert [len(line.get_xdata()) for line in begun.axes[0].lines] == [1, 0]
    assert legend_of(begun, 0) == ["decoder"]
    assert "comparable" not in footer_of(begun)


def test_a_step_that_was_trained_twice_counts_once():
    lines = [
        (1, "train", 5.0),
        (2, "train", 4.0),
        (2, "valid", 4.5),
        (2, "train", 3.9),
        (1, "test", 0),
    ]
    log = [dict(zip(("step", "kind", "bits_per_character"), line, strict=True)) for line in lines]
    assert curve(log, "train") == ([1, 2], [5.0, 3.9])
    assert curve(log, "valid") == ([2], [4.5])


@pytest.mark.parametrize("figure_name", ["spectrum_over_training", "attention_sharpness"])
def test_context_gain_takes_the_place_of_steps(runs, figure_name):
    figure, over_steps = render(SPECS[figure_name], runs, "context_gain"), RUNS[figure_name](runs)
    gains = runs["decoder"].results.validation_context_gain
    for ax, other in zip(figure.axes[:3], over_steps.axes[:3], strict=True):
        line, before = (
            next(one for one in each.lines if len(one.get_xdata()) > 2) for each in (ax, other)
        )
        np.testing.assert_array_equal(line.get_xdata(), gains)
        np.testing.assert_array_equal(line.get_ydata(), before.get_ydata())
    assert "context gain (bits)" in [ax.get_xlabel() for ax in figure.axes]
    assert "Context gain: bits less than the best answer without context" in footer_of(figure)


def test_training_curve_shows_what_needs_no_context(runs):
    assert all(ax.lines[-1].get_ydata()[0] == 5.0 for ax in training_curve(runs).axes)
    log = [
        {key: value for key, value in line.items() if "free" not in key}
        for line in runs["decoder"].log
    ]
    (ax,) = training_curve({"decoder": dataclasses.replace(runs["decoder"], log=log)}).axes
    assert len(ax.lines) == 2  # as they were drawn ever


def test_watched_curves_are_those_of_the_log_by_layer(runs):
    figure = RUNS["watched_geometry"](runs)
    names = ("anisotropy", "participation_ratio", "mean_cosine", "drift")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=False):
        lines = [line for line in run.log if line["kind"] == "watch"]
        layers = run.results.sizes["layer"]
        drawn = np.array([line.get_ydata() for line in ax.lines[:layers]]).T
        np.testing.assert_array_equal(drawn, [line[name] for line in lines])
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), [line["step"] - 1 for line in lines])
    assert RUNS["watched_geometry"]({"old": dataclasses.replace(runs["decoder"], log=[])}) is None
