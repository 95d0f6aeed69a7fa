"""What the figures of a kind of their own show is what the tables say: similarity, scale,
projections.
"""

import itertools

import numpy as np
import pytest

from anisoscope.plot import query_key_projection, similarity_figures
from anisoscope.plot.draw import RUNS
from tests.plot.reading import edges_are, legend_of
from tests.plot.tables import lacking


def test_layer_similarity_shows_every_pair_on_one_scale(runs):
    figure = similarity_figures.of_layers(runs)
    names = ("cka_unbiased_layers", "overlap_layers")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=False):
        (image,) = ax.images
        means = run.results[name].sel(step=1000, positions="all", statistic="mean")
        np.testing.assert_array_equal(image.get_array(), means)
        assert image.get_clim() == (0, 1)
        assert image.origin == "lower"
    assert [ax.get_title() for ax in figure.axes[:2]] == [
        "linear CKA without bias",
        "neighbourhood overlap",
    ]
    for label, run in runs.items():
        last = run.results.sel(step=1000, positions="all", statistic="mean", null="permuted")
        null = (last.cka_unbiased_layers - last.cka_unbiased_layers_excess).values
        most = null[~np.eye(len(null), dtype=bool)].max()
        told = f"{label}, windows of one layer in another order, at most: linear CKA without bias {most:.2f}"
        assert told in figure.get_label()
    older = {label: lacking(run, "cka_unbiased_layers") for label, run in runs.items()}
    assert [ax.get_title() for ax in similarity_figures.of_layers(older).axes[:2]] == [
        "linear CKA",
        "neighbourhood overlap",
    ]


def test_dimension_by_scale_has_a_curve_for_each_layer_and_its_null_model(runs):
    figure = RUNS["dimension_by_scale"](runs)
    for i, (label, run) in enumerate(runs.items()):
        text = figure.axes[i]
        last = run.results.sel(step=1000, positions="all")
        own, excess = (
            x.sel(statistic="mean") for x in (last.gride, last.gride_excess.sel(null="gaussian"))
        )
        thin, null = text.lines[::2], text.lines[1::2]
        np.testing.assert_array_equal([line.get_ydata() for line in thin], own)
        np.testing.assert_array_equal([line.get_ydata() for line in null], own - excess)
        assert {line.get_linestyle() for line in null} == {"--"}
        assert [line.get_color() for line in null] == [line.get_color() for line in thin]
        assert text.get_title() == label
        edges_are(text.collections[3], thin[3], last.gride.sel(layer=3))
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert legend_of(figure, 1) == ["Gaussian cloud, same spectrum"]


def test_projections_are_the_tables_and_means_lie_at_the_end_of_a_line_from_0(runs):
    run = runs["decoder"]
    figure = query_key_projection.build({"decoder": run})
    blocks, steps = (1, 3, 4, 6), (0, 4, 32, 128, 1000)
    assert len(figure.axes) == len(blocks) * len(steps)
    for ax, (block, step) in zip(figure.axes, itertools.product(blocks, steps), strict=True):
        table = run.results.sel(block=block, step=step)
        drawn = zip(ax.collections, ax.lines[2::2], ax.lines[3::2], ("query", "key"), strict=True)
        for cloud, line, mean, kind in drawn:
            points = table[f"{kind}_projection"].values
            np.testing.assert_array_equal(cloud.get_offsets(), points)
            np.testing.assert_allclose(line.get_xydata(), [[0, 0], points.mean(0)], atol=1e-6)
            np.testing.assert_allclose(mean.get_xydata(), [points.mean(0)], atol=1e-6)
        assert ax.texts[0].get_text() == f"{100 * table.projection_kept.item():.0f} %"
    for row, block in enumerate(blocks):
        panels = figure.axes[5 * row : 5 * row + 5]
        one, two = run.results.projection_share.sel(block=block).values
        assert panels[0].get_xlabel() == f"axis 1 ({100 * one:.0f} %)"
        assert panels[0].get_ylabel() == f"block {block}\naxis 2 ({100 * two:.0f} %)"
        assert len({(*ax.get_xlim(), *ax.get_ylim()) for ax in panels}) == 1
        left, right, bottom, top = (*panels[0].get_xlim(), *panels[0].get_ylim())
        assert right - left == pytest.approx(top - bottom)
        both = [
            run.results[f"{kind}_projection"].sel(block=block, step=list(steps))
            for kind in ("query", "key")
        ]
        assert all(((points >= [left, bottom]) & (points <= [right, top])).all() for points in both)
