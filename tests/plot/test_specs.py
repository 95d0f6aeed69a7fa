"""What figures of specs show is what the tables and the log say."""

import dataclasses
import itertools

import numpy as np
import pytest

from anisoscope.metrics.leading import LONGEST_LEFT_OUT
from anisoscope.metrics.outliers import TOPS
from anisoscope.plot.draw import MODELS, RUN_FIGURES
from anisoscope.plot.render import render
from anisoscope.plot.run_tables import NULLS_IN_FIGURES
from anisoscope.plot.specs import GAIN_AXIS, SPECS
from anisoscope.results.frame import excess_of
from tests.plot.reading import curve_is, footer_of
from tests.plot.tables import STEPS, lacking, with_nulls

SIDES = ("all", "without_first_token")
LONGEST = SPECS["anisotropy_decomposition"].quantities


def panels(name, runs):
    """Yield the values of each panel's first lines, in order."""
    tables = [run.results for run in runs.values()]
    last = [table.isel(step=-1) for table in tables]
    names = SPECS[name].quantities
    if name == "anisotropy_by_checkpoint":
        for table, side in itertools.product(tables, SIDES):
            yield [table.anisotropy.sel(positions=side, step=step) for step in STEPS]
    elif name == "outlier_coordinates":
        for top in TOPS:
            yield [t.top_coordinate_variance_share.sel(positions="all", top=top) for t in last]
        for top in TOPS:
            without = (t.anisotropy_without_top_coordinates.sel(top=top) for t in last)
            lines = zip(without, (table.anisotropy for table in last), strict=True)
            yield [values.sel(positions="all") for pair in lines for values in pair]
    elif name == "anisotropy_decomposition":
        for table, quantity in itertools.product(last, names):
            without = table[f"{quantity}_without_longest"].sel(positions="all")
            lines = [table[quantity].sel(positions=side) for side in SIDES]
            lines += [without.sel(without=which) for which in LONGEST_LEFT_OUT]
            lines += [table.first_token_variance_share[:, 0]] * (quantity == "anisotropy")
            if quantity in ("anisotropy", "twonn"):  # a Gaussian cloud lies about the origin
                excess = table[f"{quantity}_without_longest_excess"].sel(null="gaussian")
                lines.append(
                    without[..., 1] - excess.sel(positions="all", without=LONGEST_LEFT_OUT[1])
                )
            yield lines
    elif name == "excess_over_nulls":
        for quantity, null in itertools.product(
            names, [n for n in NULLS_IN_FIGURES if n != "permuted"]
        ):
            lines = (excess_of(table, quantity, null).sel(positions="all") for table in last)
            yield [values for values in lines if values.notnull().any()]
    elif name == "dimension_by_scale":
        for table in last:
            gride, excess = (x.sel(positions="all") for x in (table.gride, table.gride_excess))
            lines = (gride, gride - excess.sel(null="gaussian"))
            yield [values.sel(layer=n) for n in table.layer for values in lines]
    elif name == "hook_points":
        run = next(iter(runs.values()))
        streams = (run.results, *run.hook_points.values())
        yield [table.anisotropy.isel(step=-1).sel(positions="all") for table in streams]
    elif name == "geometry_over_training":
        for quantity in names:
            yield [table[f"{quantity}_over_blocks"].sel(positions="all") for table in tables]
    elif name == "query_key_drift":
        for table, quantity in itertools.product(tables, names):
            values = table[f"{quantity}_over_heads"].sel(positions="all")
            yield [values.sel(block=block) for block in values.block]


DRAWN = (  # a figure for each form: hues of each kind, rows and columns of each kind
    *("anisotropy_by_checkpoint", "outlier_coordinates", "anisotropy_decomposition"),
    *("excess_over_nulls", "dimension_by_scale", "hook_points", "geometry_over_training"),
    "query_key_drift",
)


@pytest.mark.parametrize("name", DRAWN)
def test_lines_and_bands_are_the_values_and_intervals_of_the_tables(runs, name):
    for ax, expected in zip(RUN_FIGURES[name](runs).axes, panels(name, runs), strict=False):
        assert len(ax.lines) >= len(expected)
        bands = [] if len(ax.collections) < len(expected) else ax.collections
        for line, band, values in itertools.zip_longest(ax.lines, bands, expected):
            if values is not None:
                curve_is(line, values, band)


def test_quantities_of_a_single_run_have_axes_of_their_own(runs):
    """They stand in two rows then, where others share the axes of their column."""
    axes = RUN_FIGURES["watched_geometry"]({"decoder": runs["decoder"]}).axes[:4]
    assert len({ax.get_ylim() for ax in axes}) == 4


def test_a_figure_needs_its_quantities_and_draws_those_that_there_are(runs):
    decoder = runs["decoder"]
    fewer = {"decoder": lacking(decoder, "twonn", "drift_without_longest")}
    assert len(RUN_FIGURES["anisotropy_decomposition"](fewer).axes) == 2
    lost = {"decoder": lacking(decoder, *(f"{name}_without_longest" for name in LONGEST))}
    assert RUN_FIGURES["anisotropy_decomposition"](lost) is None
    assert RUN_FIGURES["excess_over_nulls"]({"decoder": with_nulls(decoder)}) is None
    partly = runs | {"partly": lacking(with_nulls(decoder, "shuffled"), "anisotropy")}
    axes = RUN_FIGURES["excess_over_nulls"](partly).axes
    assert [len(ax.lines) for ax in axes[3:6]] == [0, 3, 3]  # of the effective rank
    without = {"decoder": dataclasses.replace(decoder, hook_points={})}
    assert RUN_FIGURES["hook_points"](without) is None


def test_watched_curves_are_those_of_the_log_by_layer(runs):
    figure = RUN_FIGURES["watched_geometry"](runs)
    names = ("anisotropy", "participation_ratio", "mean_cosine", "drift")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=False):
        log = [line for line in run.log if line["kind"] == "watch"]
        drawn = np.array([line.get_ydata() for line in ax.lines[: run.results.sizes["layer"]]])
        np.testing.assert_array_equal(drawn.T, [line[name] for line in log])
        np.testing.assert_array_equal(ax.lines[0].get_xdata(), [line["step"] - 1 for line in log])
    assert (
        RUN_FIGURES["watched_geometry"]({"old": dataclasses.replace(runs["decoder"], log=[])})
        is None
    )


def test_gain_over_unigram_takes_the_place_of_steps(runs):
    name = "attention_sharpness"
    figure, over_steps = (
        render(dataclasses.replace(SPECS[name], x=GAIN_AXIS), runs),
        RUN_FIGURES[name](runs),
    )
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
        assert [line.get_label() for line in ax.lines] == names
        for line, name in zip(ax.lines, names, strict=False):
            curve_is(line, models[name].results.anisotropy.isel(step=-1).sel(positions=side))
