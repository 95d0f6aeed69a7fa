"""One quantity of a table, on axes of the user's own."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import anisoscope
from anisoscope import plot
from tests.plot.reading import curve_is
from tests.plot.tables import make_run

X = np.random.default_rng(0).standard_normal((3, 64, 4))


@pytest.fixture(scope="module")
def table():
    return anisoscope.measure(
        [*X], families="similarity", layer_names=("first", "second", "third"), nulls=()
    )


def test_the_profile_is_what_the_table_says(table):
    axes = plot.by_layer(table, "drift", label="x")
    (line,), (band,) = axes.lines, axes.collections
    curve_is(line, table.drift, band)
    assert plot.by_layer(table, "mean_norm", ax=axes) is axes
    assert len(axes.lines) == 2


def test_several_tables_are_lines_named_at_their_ends_or_panels(table, run):
    fewer = table.isel(layer=slice(2))
    axes = plot.by_layer({"a": table, "cost $2": fewer}, "drift")
    for line, own in zip(axes.lines, (table, fewer), strict=True):
        curve_is(line, own.drift)
    assert {text.get_text(): text.get_color() for text in axes.texts} == {
        name: line.get_color() for name, line in zip(("a", r"cost \$2"), axes.lines, strict=True)
    }
    heights = sorted(text.get_position()[1] for text in axes.texts)
    assert np.diff(heights) > 0
    named = plot.by_layer([table.assign_attrs(title="x"), table.assign_attrs(title="y")], "drift")
    assert [line.get_label() for line in named.lines] == ["x", "y"]
    same = plot.by_layer([table, table], "drift")  # no title tells them apart
    assert [line.get_label() for line in same.lines] == ["0", "1"]
    panels = plot.by_step({"a": run, "b": run}, "effective_rank")
    assert [(len(ax.lines), ax.get_title()) for ax in panels] == [(3, "a"), (3, "b")]
    with pytest.raises(ValueError, match="leave ax out"):
        plot.effective_ranks([run, run], ax=axes)
    with pytest.raises(ValueError, match="label= is for a single table"):
        plot.by_layer([table, table], "drift", label="x")


def test_with_a_null_model_the_profile_is_the_excess(table):
    beside = anisoscope.measure([*X], families="dimension", nulls="gaussian")
    both = plot.by_layer(beside, "twonn", show_null="gaussian").lines
    excess = beside.twonn_excess.sel(null="gaussian", statistic="mean")
    null = both[0].get_ydata() - both[1].get_ydata()
    np.testing.assert_allclose(null, excess, rtol=1e-5)
    axes = plot.by_layer(beside, "twonn", null="gaussian")
    excess = beside.twonn_excess.sel(null="gaussian", statistic="mean")
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), excess)
    assert axes.get_ylabel().count("\n") == 1  # as long as the axis
    nulls = ("gaussian", "isotropic")
    wide = anisoscope.measure([*X], families=("spectrum", "dimension"), nulls=nulls)
    for argument in ("null", "show_null"):  # a Gaussian cloud has the same spectrum
        with pytest.raises(ValueError, match="no excess over it; choose from isotropic"):
            plot.by_layer(wide, "anisotropy", **{argument: "gaussian"})
    with pytest.raises(ValueError, match="pass null= for an excess"):
        plot.by_layer(beside, "twonn_excess")
    with pytest.raises(ValueError, match="shuffled"):
        plot.by_layer(beside, "twonn", null="shuffled")
    frame = anisoscope.to_frame(beside)
    np.testing.assert_array_equal(frame[frame.metric == "twonn"].excess_gaussian, excess)


def test_heads_are_lines():
    heads = np.random.default_rng(1).standard_normal((2, 3, 4, 8, 5))
    attention = anisoscope.measure_attention(heads, heads, mask="causal", folds=1)
    axes = plot.by_layer(attention, "attention_entropy")
    assert [line.get_label() for line in axes.lines] == ["head 0", "head 1", "head 2"]
    values = attention.attention_entropy.sel(statistic="mean", head=2)
    np.testing.assert_array_equal(axes.lines[2].get_ydata(), values)


def test_every_set_of_positions_is_drawn_or_the_title_names_the_one(table):
    sets = pd.Index(["all", "without_first_token"], name="positions")
    both = xr.concat([table, table + 1], sets).assign_attrs(table.attrs)
    axes = plot.by_layer(both, "drift")
    for line, name in zip(axes.lines, sets, strict=True):
        curve_is(line, both.drift.sel(positions=name))
    words = [text.get_text() for text in axes.get_legend().get_texts()]
    assert words == ["all positions", "without the first token"]
    assert len({line.get_color() for line in axes.lines}) == 2
    assert [line.is_dashed() for line in axes.lines] == [False, True]  # both show where equal
    assert (axes.get_title(), plot.by_layer([both, both], "drift").get_title()) == ("", words[0])
    chosen = plot.by_layer([both, both], "drift", positions="without_first_token")
    curve_is(chosen.lines[0], both.drift.sel(positions="without_first_token"))


def test_a_map_has_the_range_of_small_values_and_a_middle_for_an_excess():
    pairs = anisoscope.compare([*X], [*X[::-1]])
    for name, change, ends in (
        (None, lambda values: values, (0, 1)),
        (None, lambda values: values * 0 + [0.1, 0.2, 0.3], (0.1, 0.3)),
        ("permuted", lambda values: values * 0 + [-0.2, 0, 0.1], (-0.2, 0.2)),
    ):
        names = ["cka", "cka_excess"]
        own = pairs.assign({n: change(pairs[n]).assign_attrs(pairs[n].attrs) for n in names})
        axes = plot.layer_map(own, "cka", null=name)
        np.testing.assert_allclose(axes.images[0].get_clim(), ends)
        words = axes.figure.axes[1].get_ylabel().replace("\n", " ")  # of the color bar
        assert words.endswith("colors from 0.1 to 0.3") == (0.1 in ends)
    sets = pd.Index(["all", "without_first_token"], name="positions")
    both = xr.concat([pairs, pairs], sets, combine_attrs="override")
    assert plot.layer_map(both, "cka").get_title() == "all positions"
    titles = [ax.get_title() for ax in plot.layer_map({"a": both, "b": pairs}, "cka")]
    assert titles == ["a\nall positions", "b"]


@pytest.fixture(scope="module")
def run():
    return make_run(layers=2, heads=2).results


def test_over_training_is_a_line_for_each_layer_and_a_bar_that_names_them(run, table):
    axes = plot.by_step(run, "effective_rank")
    values = run.effective_rank.sel(positions="all")
    for layer in range(3):
        curve_is(axes.lines[layer], values.sel(layer=layer), axes.collections[layer])
        np.testing.assert_array_equal(axes.lines[layer].get_xdata(), run.step)
    assert len(axes.figure.axes) == 2  # a color bar
    heads = plot.by_step(run, "query_drift").lines
    mean = run.query_drift.sel(positions="all", statistic="mean").mean("head")
    np.testing.assert_array_equal(heads[1].get_ydata(), mean.isel(block=1))
    steps = pd.Index([0, 10], name="step")  # tables of a user's own loop
    joined = xr.concat([table, table], steps, combine_attrs="override")
    first = plot.by_step(joined, "drift").lines[0].get_ydata()
    assert first.tolist() == [table.drift.sel(layer="first", statistic="mean")] * 2


@pytest.mark.parametrize("of", [{}, {"layer": 0}])
def test_spectrum_and_scales_are_what_the_table_says(run, of):
    last = run.isel(step=-1, **of)
    axes = plot.effective_ranks(run.isel(of))
    told = {line.get_label(): np.ravel(line.get_ydata()) for line in axes.lines}
    for name in ("effective_rank", "participation_ratio"):
        expected = np.ravel(last[name].sel(positions="all", statistic="mean"))
        np.testing.assert_array_equal(told[run[name].attrs["long_name"]], expected)
    assert axes.collections  # intervals; a bar of one layer
    axes = plot.dimension_by_scale(run.isel(of))
    gride = last.gride.sel(positions="all", statistic="mean")
    first = gride.isel(layer=0) if "layer" in gride.dims else gride
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), first)
    np.testing.assert_array_equal(axes.lines[0].get_xdata(), run.neighbors)


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda table: plot.by_layer(table, "twonn"), "families='dimension' measures it"),
        (lambda table: plot.by_layer(table, "drift", null="gaussian"), "null"),
        (lambda table: plot.by_step(table, "drift"), "dimensions"),
        (lambda table: plot.by_layer(table, "drift_excess"), "is not a quantity of the table"),
        (lambda table: plot.by_layer(table, "drifts"), "did you mean drift?"),
        (lambda table: plot.by_layer(table, ["drift", "mean_norm"]), "pass one name"),
        (lambda table: plot.by_layer(table, "drift", step=3), "drift has no dimension step"),
        (plot.effective_ranks, "spectrum"),
        (plot.dimension_by_scale, "scale"),
    ],
)
def test_what_cannot_be_drawn_is_said(table, draw, words):
    with pytest.raises(ValueError, match=words):
        draw(table)


@pytest.mark.parametrize("reader", [anisoscope.to_frame, anisoscope.report, plot.by_step])
def test_what_is_no_table_is_refused(reader, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="table is str; pass the whole Dataset"):
        reader("results.nc")
    with pytest.raises(ValueError, match="table is DataFrame; pass the whole Dataset"):
        reader(pd.DataFrame({"mean": [0.1]}))
    with pytest.raises(ValueError, match="table is Dataset; pass the whole"):
        reader(xr.Dataset({"anisotropy": ("layer", np.ones(3))}))
    assert not [*tmp_path.iterdir()]
