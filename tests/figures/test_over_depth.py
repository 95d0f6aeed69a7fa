"""What figures over depth show is what the tables say."""

import itertools

import numpy as np
import pytest

from figures import over_depth, over_training, scales, style
from figures.against import cosine_against_drift
from figures.run import NULLS
from panel.families import nulls_of
from tests.figures.reading import edges_are, legend_of, title_of
from tests.figures.tables import STEPS, changed, lacking, make_run

SIDES = ("all", "without_first")


def test_anisotropy_profile(runs):
    figure = over_depth.anisotropy_profile(runs)
    for ax, side in zip(figure.axes, SIDES, strict=True):
        for line, band, run in zip(ax.lines, ax.collections, runs.values(), strict=True):
            values = run.batches.anisotropy.sel(step=1000, positions=side).values
            np.testing.assert_allclose(line.get_xdata(), np.linspace(0, 1, values.shape[1]), atol=1e-15)
            np.testing.assert_allclose(line.get_ydata(), values.mean(0), rtol=1e-6)
            edges_are(band, line, run.results.anisotropy.sel(step=1000, positions=side, less="nothing"))
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert figure.axes[0].get_ylim()[0] == 0
    assert legend_of(figure, 1) == ["decoder", "encoder"]


def test_anisotropy_by_checkpoint(runs):
    figure = over_depth.anisotropy_by_checkpoint(runs)
    panels = itertools.product(runs.items(), SIDES)
    colours = [tuple(line.get_color()) for line in figure.axes[0].lines]
    for ax, ((label, run), side) in zip(figure.axes, panels, strict=False):
        expected = run.batches.anisotropy.sel(positions=side).values.mean(1)
        np.testing.assert_allclose([line.get_ydata() for line in ax.lines], expected, rtol=1e-6)
        last = run.results.anisotropy.sel(step=1000, positions=side, less="nothing")
        edges_are(ax.collections[-1], ax.lines[-1], last)
        assert [tuple(line.get_color()) for line in ax.lines] == colours
        assert ax.get_title().startswith(label)
    assert len(set(colours)) == len(STEPS)
    assert np.all(np.diff([colour[1] for colour in colours]) > 0)  # viridis: greener with every checkpoint
    assert [tick.get_text() for tick in figure.axes[-1].get_yticklabels()] == ["0", "1", "10", "100", "1k"]


@pytest.mark.parametrize(
    ("last", "ticks"), [(0, ["0", "1"]), (2, ["0", "2"]), (999, ["0", "1", "10", "100", "999"]), (1500, [..., "1.5k"])]
)
def test_the_colour_bar_names_the_last_step(last, ticks):
    figure = style.new(3, 2)
    scales.step_bar(figure, scales.step_colours(last), figure.subplots(1, 1, squeeze=False))
    found = [tick.get_text() for tick in figure.axes[-1].get_yticklabels()]
    assert found[-1] == ticks[-1]
    assert ticks[0] is ... or found == ticks


def test_outlier_coordinates_with_the_anisotropy_that_is_left(runs):
    figure = over_depth.outlier_coordinates(runs)
    shares, left = figure.axes[:3], figure.axes[3:]
    for share, anisotropy, top in zip(shares, left, (1, 3, 10), strict=True):
        for i, run in enumerate(runs.values()):
            last = run.results.sel(step=1000, positions="all", less="nothing")
            means = last.sel(statistic="mean")
            np.testing.assert_array_equal(share.lines[i].get_ydata(), means.coordinate_share.sel(top=top))
            without, whole = anisotropy.lines[2 * i : 2 * i + 2]
            np.testing.assert_array_equal(without.get_ydata(), means.anisotropy_left_out.sel(top=top))
            np.testing.assert_array_equal(whole.get_ydata(), means.anisotropy)
            edges_are(anisotropy.collections[i], without, last.anisotropy_left_out.sel(top=top))
    alone = over_depth.outlier_coordinates({"decoder": lacking(runs["decoder"], "anisotropy")})
    assert [len(ax.lines) for ax in alone.axes] == [1] * 6


def test_excess_over_nulls(runs):
    shuffled = changed(runs["decoder"], lambda t: t.sel(less=["nothing", "shuffled"]) if "less" in t.dims else t)
    partly = runs | {"partly": lacking(shuffled, "anisotropy")}
    figure = over_depth.excess_over_nulls(partly)
    axes = np.array(figure.axes).reshape(4, 3)
    for (name, null), ax in zip(itertools.product(over_depth.EXCESS, NULLS), axes.flat, strict=True):
        shown = [run for run in partly.values() if name in run.results and null in run.results.less]
        assert len(shown) == 2 + (null == "shuffled" and name != "anisotropy")
        for line, run in zip(ax.lines, shown, strict=False):
            excess = run.results[name].sel(step=1000, positions="all", less=null)
            np.testing.assert_array_equal(line.get_ydata(), excess.sel(statistic="mean"))
            if null in nulls_of(name):
                edges_are(ax.collections[shown.index(run)], line, excess)
        assert len(ax.lines) == len(shown) + 1  # zero
        none = [] if null in nulls_of(name) else ["has none"]  # but for dimension, a Gaussian cloud is like its own
        assert [text.get_text() for text in ax.texts] == none
    assert legend_of(figure, 2) == ["decoder", "encoder", "partly"]
    assert figure.get_supylabel() == "excess over the null model"
    without = changed(runs["decoder"], lambda t: t.sel(less=["nothing"]) if "less" in t.dims else t)
    assert over_depth.excess_over_nulls({"decoder": without}) is None


def test_titles_say_what_the_bands_are_and_nothing_where_there_are_none():
    resampled = {"decoder": make_run(batches=1, steps=(0, 1), layers=2, heads=1)}
    profile, dimension = over_depth.anisotropy_profile, over_training.BY_RUN["dimension_over_training"]
    assert title_of(profile(resampled)).endswith("(band: 95 % interval, windows resampled)")
    one = over_training.by_run(dimension, resampled)
    assert "band" not in title_of(one)
    assert not one.axes[0].collections
    bare = {"decoder": make_run(batches=1, groups=1, steps=(0, 1), layers=2, heads=1)}
    assert "interval" not in title_of(cosine_against_drift(bare))
    change = over_training.by_depth(over_training.BY_DEPTH["change_over_training"], bare)
    for figure in (profile(bare), over_depth.excess_over_nulls(bare), change):
        assert "interval" not in title_of(figure)
        assert not any(ax.collections for ax in figure.axes if ax.lines)
    both = bare | {"encoder": make_run(batches=2, groups=1, steps=(0, 1), layers=2, heads=1)}
    assert title_of(profile(both)).endswith("(band: 95 % interval, over batches)")
    assert title_of(cosine_against_drift(both)).endswith("(bars: 95 % interval, over batches)")
    assert "over batches or windows resampled" in title_of(profile(both | resampled))
