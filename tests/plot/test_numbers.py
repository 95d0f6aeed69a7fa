"""What the figures of a kind of their own show is what the tables say: similarity, scale, projections."""

import itertools

import numpy as np
import pytest
import xarray as xr

from anisoscope.plot import query_key_projection, similarity
from anisoscope.plot.draw import RUNS
from tests.plot.reading import edges_are, legend_of, title_of
from tests.plot.tables import changed, lacking, with_excess


def test_layer_similarity_shows_every_pair_on_one_scale(runs):
    figure = similarity.of_layers(runs)
    names = ("cka_unbiased_layers", "overlap_layers")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=False):
        (image,) = ax.images
        means = run.results[name].sel(step=1000, positions="all", statistic="mean")
        np.testing.assert_array_equal(image.get_array(), means)
        assert image.get_clim() == (0, 1)
        assert image.origin == "lower"
    assert [ax.get_title() for ax in figure.axes[:2]] == ["linear CKA without bias", "neighbourhood overlap"]
    for label, run in runs.items():
        last = run.results.sel(step=1000, positions="all", statistic="mean", null="permuted")
        null = (last.cka_unbiased_layers - last.cka_unbiased_layers_excess).values
        most = null[~np.eye(len(null), dtype=bool)].max()
        told = f"{label}, windows of one layer in another order, at most: linear CKA without bias {most:.2f}"
        assert told in figure.get_label()
    older = {label: lacking(run, "cka_unbiased_layers") for label, run in runs.items()}
    assert [ax.get_title() for ax in similarity.of_layers(older).axes[:2]] == ["linear CKA", "neighbourhood overlap"]


def test_the_caption_tells_no_null_model_without_values(runs):
    lost = changed(runs["decoder"], lambda table: table.copy(deep=True))
    lost.results.cka_unbiased_layers_excess.loc[{"null": "permuted"}] = np.nan
    (told,) = [line for line in similarity.of_layers({"decoder": lost}).get_label().splitlines() if "at most" in line]
    assert told.startswith("decoder, windows of one layer in another order, at most: neighbourhood overlap 0.")
    one_layer = changed(runs["decoder"], lambda table: table.isel(layer=[0], other_layer=[0]))
    assert "at most" not in similarity.of_layers({"decoder": one_layer}).get_label()


def test_similarity_of_models_tells_the_widest_interval_where_there_is_one():
    values = np.full((4, 2, 3, 3), 0.6)
    values[2], values[3] = 0.5, 0.7  # low, high
    about = dict.fromkeys(("corpus", "first", "second", "first_model", "second_model"), "a")
    about |= {"measure.points": 64, "measure.batches": 1}
    labels = {"statistic": ["mean", "std", "low", "high"]}
    labels |= {"positions": ["all", "without_first"], "layer": range(3), "other_layer": range(3)}
    found = xr.Dataset({name: (tuple(labels), values.copy()) for name in similarity.MEASURES}, labels, about)
    found, cka = with_excess(found, "permuted"), "a side: linear CKA without bias 0.10"
    for lost, said in (
        ([], f"{cka}, neighbourhood overlap 0.10."),
        (["overlap"], f"{cka}."),
        (["cka_unbiased"], "order."),
    ):
        for name in lost:
            found[name].loc[{"statistic": ["low", "high"]}] = np.nan
        assert similarity.of_models(found).get_label().splitlines()[0].endswith(said)


def test_dimension_by_scale_has_a_curve_for_each_layer_and_its_null_model(runs):
    figure = RUNS["dimension_by_scale"](runs)
    for i, (label, run) in enumerate(runs.items()):
        text = figure.axes[i]
        last = run.results.sel(step=1000, positions="all")
        own, excess = (x.sel(statistic="mean") for x in (last.gride, last.gride_excess.sel(null="gaussian")))
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
        both = [run.results[f"{kind}_projection"].sel(block=block, step=list(steps)) for kind in ("query", "key")]
        assert all(((points >= [left, bottom]) & (points <= [right, top])).all() for points in both)


def test_of_several_runs_the_middle_block_of_each_is_projected_as_far_as_they_fit(runs):
    short = changed(runs["encoder"], lambda table: table.sel(step=[0, 32]))
    figure = query_key_projection.build({f"run_{i}": short for i in range(7)})
    labels = [ax.get_ylabel().split("\n")[0] for ax in figure.axes if ax.get_ylabel()]
    assert labels == [f"run_{i}, block 2" for i in range(6)]
    assert [ax.get_title() for ax in figure.axes] == ["step 0", "step 32"] + [""] * 10
    assert "6 of 7 runs" in title_of(figure)
    assert "Queries and keys of head 0 on" in title_of(figure)
    other = changed(short, lambda table: table)
    other.results.query_projection.attrs["head"] = 3
    figure = query_key_projection.build({"one": short, "other": other})
    assert "Queries and keys of one head each on" in title_of(figure)
    labels = [" ".join(ax.get_ylabel().split()) for ax in figure.axes if ax.get_ylabel()]
    assert [label.partition(" axis")[0] for label in labels] == ["one, block 2, head 0", "other, block 2, head 3"]
