"""What is drawn is what the tables say."""

import itertools
import re

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

from figures import (
    anisotropy_by_checkpoint,
    anisotropy_profile,
    attention_sharpness,
    change_over_training,
    cosine_against_drift,
    dimension_by_scale,
    dimension_over_training,
    excess_over_nulls,
    layer_similarity,
    outlier_coordinates,
    query_key_drift,
    query_key_fluctuation,
    query_key_projection,
    sharpness_against_alignment,
    spectrum_over_training,
    style,
    training_curve,
)
from figures.run import NULLS, Run
from studies import correlations
from tests.figures.tables import STEPS, make_run

SIDES = ("all", "without_first")


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {"decoder": make_run(), "encoder": make_run(False, layers=3)}


@pytest.fixture(autouse=True)
def _styled():
    with style.context():
        yield


def legend_of(figure: Figure, panel: int) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].get_legend().get_texts()]


def test_anisotropy_profile(runs):
    figure = anisotropy_profile.build(runs)
    for ax, side in zip(figure.axes, SIDES, strict=True):
        for line, band, run in zip(ax.lines, ax.collections, runs.values(), strict=True):
            last = run.results.sel(step=1000, positions=side)
            values = last.anisotropy.values
            np.testing.assert_allclose(line.get_xdata(), np.linspace(0, 1, values.shape[1]), atol=1e-15)
            np.testing.assert_allclose(line.get_ydata(), values.mean(0), rtol=1e-6)
            edges_are(band, line, last.anisotropy_low, last.anisotropy_high)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert figure.axes[0].get_ylim()[0] == 0
    assert legend_of(figure, 1) == ["decoder", "encoder"]


def edges_are(band, line, low, high) -> None:
    """Lower and upper edge of a filled band at each x of its line."""
    points = band.get_paths()[0].vertices
    at = [points[points[:, 0] == x, 1] for x in line.get_xdata()]
    np.testing.assert_allclose([y.min() for y in at], low, rtol=1e-6)
    np.testing.assert_allclose([y.max() for y in at], high, rtol=1e-6)
    assert (np.asarray(low) <= np.asarray(high)).all()
    assert (np.asarray(low) < np.asarray(high)).any()


def students(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The interval of the mean over the batches of (step, batch)."""
    half = stats.t.ppf(0.975, values.shape[1] - 1) * stats.sem(values, axis=1)
    return values.mean(1) - half, values.mean(1) + half


def test_titles_say_what_the_bands_are_and_nothing_where_there_are_none():
    resampled = {"decoder": make_run(batches=1)}
    assert anisotropy_profile.build(resampled)._suptitle.get_text().endswith("(band: 95 % interval, windows resampled)")
    one = dimension_over_training.build(resampled)
    assert "band" not in one._suptitle.get_text()
    assert not one.axes[0].collections
    bare = {"decoder": make_run(batches=1, groups=1, steps=(0, 1))}
    assert "interval" not in cosine_against_drift.build(bare)._suptitle.get_text()
    for module in (anisotropy_profile, excess_over_nulls, change_over_training):
        figure = module.build(bare)
        assert "interval" not in figure._suptitle.get_text()
        assert not any(ax.collections for ax in figure.axes if ax.lines)
    both = bare | {"encoder": make_run(batches=2, groups=1, steps=(0, 1))}
    assert anisotropy_profile.build(both)._suptitle.get_text().endswith("(band: 95 % interval, over batches)")
    mixed = anisotropy_profile.build(both | resampled)._suptitle.get_text()
    assert "over batches or windows resampled" in " ".join(mixed.split())


@pytest.mark.parametrize(
    ("module", "names"),
    [
        (dimension_over_training, ("twonn", "twonn_mle", "twonn_microscope")),
        (spectrum_over_training, ("effective_rank", "participation_ratio", "alpha_req")),
    ],
)
def test_over_training_is_the_average_over_blocks_with_students_interval_over_batches(runs, module, names):
    figure = module.build(runs)
    for ax, name in zip(figure.axes, names, strict=True):
        for line, band, run in zip(ax.lines, ax.collections, runs.values(), strict=True):
            average = run.results[name].sel(positions="all").values[:, :, 1:].mean(2, dtype=np.float64)  # step, batch
            np.testing.assert_array_equal(line.get_xdata(), STEPS)
            np.testing.assert_allclose(line.get_ydata(), average.mean(1), rtol=1e-6)
            edges_are(band, line, *students(average))
        assert ax.get_xscale() == "symlog"
        assert ax.get_xlim()[0] < 0
    assert figure._suptitle.get_text().endswith("(band: 95 % interval, over batches)")
    if module is dimension_over_training:
        assert "intrinsic dimension\n(TwoNN, 90 % fit)" in [ax.get_title() for ax in figure.axes]


def test_a_block_without_a_dimension_leaves_a_gap_and_the_embedding_does_not():
    run = make_run()
    results = run.results.copy(deep=True)
    results.twonn[:, :, :, 0] = np.nan
    results.twonn[3, :, 1, 2] = np.nan
    results.twonn[5, :, 2, 2] = np.inf
    (line,) = dimension_over_training.build({"decoder": Run(results, run.log)}).axes[0].lines
    assert np.flatnonzero(np.isnan(line.get_ydata())).tolist() == [3, 5]


def test_anisotropy_by_checkpoint(runs):
    figure = anisotropy_by_checkpoint.build(runs)
    panels = itertools.product(runs.items(), SIDES)
    colours = [tuple(line.get_color()) for line in figure.axes[0].lines]
    for ax, ((label, run), side) in zip(figure.axes, panels, strict=False):
        expected = run.results.anisotropy.sel(positions=side).values.mean(1)
        np.testing.assert_allclose([line.get_ydata() for line in ax.lines], expected, rtol=1e-6)
        last = run.results.sel(step=1000, positions=side)
        edges_are(ax.collections[-1], ax.lines[-1], last.anisotropy_low, last.anisotropy_high)
        assert [tuple(line.get_color()) for line in ax.lines] == colours
        assert ax.get_title().startswith(label)
    assert len(set(colours)) == len(STEPS)
    assert np.all(np.diff([colour[1] for colour in colours]) > 0)  # viridis: greener with every checkpoint
    assert [tick.get_text() for tick in figure.axes[-1].get_yticklabels()] == ["0", "1", "10", "100", "1k"]


@pytest.mark.parametrize(
    ("last", "ticks"), [(0, ["0", "1"]), (2, ["0", "2"]), (999, ["0", "1", "10", "100", "999"]), (1500, [..., "1.5k"])]
)
def test_the_colour_bar_names_the_last_step(last, ticks):
    figure = anisotropy_by_checkpoint.build({"decoder": make_run(steps=(0, last) if last else (0,), layers=1)})
    found = [tick.get_text() for tick in figure.axes[-1].get_yticklabels()]
    assert found[-1] == ticks[-1]
    assert ticks[0] is ... or found == ticks


BY_BLOCK = {
    query_key_drift: ("query_drift", "key_drift", "query_key_alignment", "query_key_cosine"),
    query_key_fluctuation: ("query_fluctuation", "key_fluctuation", "score_share_of_means"),
    attention_sharpness: ("score_std_within", "attention_entropy", "attention_max", "attention_first"),
}


@pytest.mark.parametrize(("module", "variables"), BY_BLOCK.items())
def test_attention_is_the_mean_over_heads_for_each_block(runs, module, variables):
    figure = module.build(runs)
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), variables), strict=False):
        expected = run.results[name].sel(positions="all").values.mean((1, 3))  # step, block
        blocks = run.results.sizes["block"]
        np.testing.assert_allclose(np.array([line.get_ydata() for line in ax.lines[:blocks]]).T, expected, rtol=1e-5)
        batches = run.results[name].sel(positions="all", block=1).values.mean(2, dtype=np.float64)  # step, batch
        edges_are(ax.collections[0], ax.lines[0], *students(batches))


def test_query_key_drift_names_its_panels_and_blocks(runs):
    figure = query_key_drift.build(runs)
    titles = [ax.get_title().replace("\n", " ") for ax in figure.axes[:2]]
    assert titles == ["query drift (activation)", "key drift (activation)"]
    assert [ax.get_ylabel() for ax in figure.axes[:8:4]] == ["decoder", "encoder"]
    deep, shallow = figure.axes[0].lines, figure.axes[4].lines
    assert [line.get_color() for line in deep[:3]] == [line.get_color() for line in shallow[:3]]  # a block, a colour


def test_projections_are_the_tables_and_means_lie_at_the_end_of_a_line_from_0(runs):
    run = runs["decoder"]
    figure = query_key_projection.build({"decoder": run})
    blocks, steps = (1, 3, 4, 6), (0, 4, 32, 128, 1000)
    assert len(figure.axes) == len(blocks) * len(steps)
    for ax, (block, step) in zip(figure.axes, itertools.product(blocks, steps), strict=True):
        table = run.results.sel(block=block, step=step)
        for cloud, line, mean, kind in zip(
            ax.collections, ax.lines[2::2], ax.lines[3::2], ("query", "key"), strict=True
        ):
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
        points = np.concatenate(
            [run.results[f"{kind}_projection"].sel(block=block, step=list(steps)) for kind in ("query", "key")]
        )
        assert (points >= [left, bottom]).all()
        assert (points <= [right, top]).all()


def test_of_several_runs_the_middle_block_of_each_is_projected_as_far_as_they_fit():
    short = [make_run(steps=(0, 10), seed=seed, layers=3, batches=1, nulls=()) for seed in range(7)]
    figure = query_key_projection.build({f"run_{seed}": run for seed, run in enumerate(short)})
    labels = [ax.get_ylabel().split("\n")[0] for ax in figure.axes if ax.get_ylabel()]
    assert labels == [f"run_{seed}, block 2" for seed in range(6)]
    assert "6 of 7 runs" in figure._suptitle.get_text()
    assert [ax.get_title() for ax in figure.axes] == ["step 0", "step 10"] + [""] * 10


def test_sharpness_against_alignment_has_a_point_per_head_and_correlates_them(runs):
    figure = sharpness_against_alignment.build(runs)
    names = ("attention_entropy", "attention_max", "score_std_within", "attention_first")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=False):
        last = run.results.sel(step=1000, positions="all")
        x, y = last.query_key_alignment_mean.values, last[f"{name}_mean"].values
        for block, (points, _, (across, upright)) in zip(last.block.values, ax.containers, strict=True):
            np.testing.assert_array_equal(points.get_data(), (x[block - 1], y[block - 1]))
            ends = np.array(upright.get_segments())[:, :, 1].T
            np.testing.assert_allclose(ends[0], last[f"{name}_low"].sel(block=block), rtol=1e-6)
            np.testing.assert_allclose(ends[1], last[f"{name}_high"].sel(block=block), rtol=1e-6)
            ends = np.array(across.get_segments())[:, :, 0].T
            np.testing.assert_allclose(ends[0], last.query_key_alignment_low.sel(block=block), rtol=1e-6)
        title = ax.get_title(loc="left")
        assert f"n = {x.size}" in title
        assert f"r = {stats.pearsonr(x.ravel(), y.ravel()).statistic:.2f} (" in title
        assert f"ρ = {stats.spearmanr(x.ravel(), y.ravel()).statistic:.2f} (" in title
    assert [ax.get_ylabel().split("\n")[0] for ax in figure.axes[:8:4]] == ["decoder", "encoder"]


def test_zero_is_on_an_axis_unless_the_values_keep_far_from_it(runs):
    figure = attention_sharpness.build(runs)
    within, entropy = figure.axes[0], figure.axes[1]
    assert within.get_ylim()[0] <= 0 < entropy.get_ylim()[0]  # entropies lie between 4.5 and 5.5
    below = query_key_drift.build({"decoder": runs["decoder"]}).axes[3]
    assert below.get_ylim()[0] < -0.5
    assert below.get_ylim()[1] >= 0


def test_change_over_training_has_a_line_and_an_interval_per_layer(runs):
    figure = change_over_training.build(runs)
    names = ("cka_last", "overlap_last", "cka_previous")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=False):
        table = run.results.sel(positions="all")
        for layer in range(table.sizes["layer"]):
            np.testing.assert_array_equal(ax.lines[layer].get_ydata(), table[f"{name}_mean"].sel(layer=layer))
        one = table.sel(layer=2).isel(step=slice(1, None)) if name == "cka_previous" else table.sel(layer=2)
        line = ax.lines[2]
        line.set_data(line.get_xdata()[-one.sizes["step"] :], line.get_ydata()[-one.sizes["step"] :])
        edges_are(ax.collections[2], line, one[f"{name}_low"], one[f"{name}_high"])
    assert figure.axes[-1].get_ylabel() == "layer (0 = embedding)"


def test_layer_similarity_shows_every_pair_on_one_scale(runs):
    figure = layer_similarity.build(runs)
    names = ("cka_layers", "overlap_layers")
    for ax, (run, name) in zip(figure.axes, itertools.product(runs.values(), names), strict=False):
        (image,) = ax.images
        np.testing.assert_array_equal(image.get_array(), run.results[f"{name}_mean"].sel(step=1000, positions="all"))
        assert image.get_clim() == (0, 1)
        assert image.origin == "lower"
    assert [ax.get_title() for ax in figure.axes[:2]] == ["linear CKA", "neighbourhood overlap"]


def test_outlier_coordinates_with_the_anisotropy_that_is_left(runs):
    figure = outlier_coordinates.build(runs)
    shares, left = figure.axes[:3], figure.axes[3:]
    for share, anisotropy, top in zip(shares, left, (1, 3, 10), strict=True):
        for i, run in enumerate(runs.values()):
            last = run.results.sel(step=1000, positions="all")
            np.testing.assert_array_equal(share.lines[i].get_ydata(), last.coordinate_share_mean.sel(top=top))
            without, whole = anisotropy.lines[2 * i : 2 * i + 2]
            one = last.sel(top=top)
            np.testing.assert_array_equal(without.get_ydata(), one.anisotropy_left_out_mean)
            np.testing.assert_array_equal(whole.get_ydata(), last.anisotropy_mean)
            edges_are(anisotropy.collections[i], without, one.anisotropy_left_out_low, one.anisotropy_left_out_high)
    alone = outlier_coordinates.build({"decoder": make_run(steps=(0,), without=("anisotropy",))})
    assert [len(ax.lines) for ax in alone.axes] == [1] * 6


def test_dimension_by_scale_marks_the_plateau_of_each_layer(runs):
    figure = dimension_by_scale.build(runs)
    for i, (label, run) in enumerate(runs.items()):
        text, null = figure.axes[2 * i : 2 * i + 2]
        last = run.results.sel(step=1000, positions="all")
        thin, thick = text.lines[::2], text.lines[1::2]
        np.testing.assert_array_equal([line.get_ydata() for line in thin], last.gride_mean)
        np.testing.assert_array_equal([line.get_ydata() for line in null.lines], last.gride_null.sel(null="gaussian"))
        found = 0
        for line, first, end in zip(thick, last.plateau_first.values, last.plateau_last.values, strict=True):
            x = line.get_xdata()
            assert np.isnan(first) == (len(x) == 0)
            if len(x):
                assert (x[0], x[-1]) == (first, end)
                found += 1
        assert 0 < found < len(thin)
        assert text.get_title() == f"measured: plateau (thick) in {found} of {len(thin)} layers"
        assert text.get_ylabel().startswith(f"{label}\n")
        edges_are(text.collections[3], thin[3], last.gride_low[3], last.gride_high[3])
    assert text.get_ylim() == null.get_ylim()


def test_a_run_without_plateau_or_null_model_says_so(runs):
    run = make_run(steps=(0,), nulls=())
    for name in ("plateau_first", "plateau_last"):
        run.results[name][:] = np.nan
    figure = dimension_by_scale.build({"decoder": run})
    assert figure.axes[0].get_title() == "measured: no plateau in any layer"
    assert len(figure.axes) == 2  # curves and colour bar
    assert excess_over_nulls.build({"decoder": run}) is None


def test_excess_over_nulls(runs):
    partly = runs | {"partly": make_run(steps=(0, 1000), nulls=("shuffled",), without=("anisotropy",))}
    figure = excess_over_nulls.build(partly)
    names = ("anisotropy", "effective_rank", "twonn", "mean_cosine")
    axes = np.array(figure.axes).reshape(4, 3)
    for (name, null), ax in zip(itertools.product(names, NULLS), axes.flat, strict=True):
        shown = [run for run in partly.values() if f"{name}_excess" in run.results and null in run.results.null]
        assert len(shown) == 2 + (null == "shuffled" and name != "anisotropy")
        for line, run in zip(ax.lines, shown, strict=False):
            last = run.results.sel(step=1000, positions="all", null=null)
            np.testing.assert_array_equal(line.get_ydata(), last[f"{name}_excess"])
            if np.isfinite(line.get_ydata()).all():
                low, high = last[f"{name}_excess_low"], last[f"{name}_excess_high"]
                edges_are(ax.collections[shown.index(run)], line, low, high)
        assert len(ax.lines) == len(shown) + 1  # zero
        assert [text.get_text() for text in ax.texts] == ["has none"] * ((name, null) == ("mean_cosine", "gaussian"))
    assert legend_of(figure, 2) == ["decoder", "encoder", "partly"]
    assert figure._supylabel.get_text() == "excess over the null model"


def test_correlations_in_the_legend_are_scipys(runs):
    figure = cosine_against_drift.build(runs)
    for column, side in enumerate(SIDES):
        for text, run in zip(legend_of(figure, 2 * column + 1), runs.values(), strict=True):
            last = run.results.sel(step=1000, positions=side)
            x, y = last.drift.values.mean(0), last.mean_cosine.values.mean(0)
            pearson, spearman = stats.pearsonr(x, y), stats.spearmanr(x, y)
            orders = [stats.spearmanr(x, order).statistic for order in itertools.permutations(y)] if len(x) < 5 else []
            r, rho = (float(value) for value in re.findall(r"[rρ] = (-?[\d.]+)", text))
            assert r == pytest.approx(pearson.statistic, abs=0.0051)
            assert rho == pytest.approx(spearman.statistic, abs=0.0051)
            assert f"n = {len(x)}" in text
            if pearson.pvalue < 0.001:
                assert f"r = {r:.2f} (p < 0.001)" in text
            else:
                assert f"(p = {pearson.pvalue:.2g})," in text
            if orders:
                exact = min(1.0, 2 * np.mean(np.array(orders) * np.sign(rho) >= abs(spearman.statistic) - 1e-9))
                assert text.endswith(f"(p = {exact:.2g})")
    assert figure.axes[0].get_xlabel() == "drift (activation)"


@pytest.mark.parametrize(
    ("x", "y", "words"),
    [
        ([1, 2, 3], [1, 2, 4], "ρ = 1.00 (p = 0.33)"),  # 2 of 6 orderings, where the t approximation says p = 0
        ([1, 2, 3, 4], [4, 3, 2, 1], "ρ = -1.00 (p = 0.083)"),  # 2 of 24
        ([1, 2], [1, 2], "n = 2\nn too small"),
        ([1, 2, np.nan, np.nan], [1, 2, 3, 4], "n = 2\nn too small"),
        ([1, 2, np.inf], [1, 2, 3], "n = 2\nn too small"),
        ([], [], "n = 0\nn too small"),
        ([1, 2, 3], [5, 5, 5], "n = 3\nconstant"),
        ([0, 0, 0], [1, 2, 3], "n = 3\nconstant"),
        ([1, 1 + 1e-7, 1 - 1e-7], [1, 2, 3], "n = 3\nconstant"),
        ([1, 2, 3, np.nan], [3, 1, 2, 5], "n = 3\nr = -0.50"),
    ],
)
def test_correlations_of_few_layers(x, y, words):
    assert words in correlations.words(np.array(x, np.float32), np.array(y, np.float64))


def test_training_curve_keeps_objectives_apart(runs):
    figure = training_curve.build(runs)
    for ax, run in zip(figure.axes, runs.values(), strict=True):
        for line, kind in zip(ax.lines, ("train", "valid"), strict=True):
            expected = [(entry["step"], entry["bits_per_character"]) for entry in run.log if entry["kind"] == kind]
            np.testing.assert_array_equal(np.transpose(line.get_data()), expected)
    assert [ax.get_title() for ax in figure.axes] == ["predicting next character", "predicting masked characters"]
    assert "not comparable" in figure._suptitle.get_text()
    assert legend_of(figure, 1) == ["decoder", "encoder"]
    alone = training_curve.build({"decoder": runs["decoder"]})
    assert len(alone.axes) == 1
    assert "comparable" not in alone._suptitle.get_text()


def test_training_curve_of_a_run_that_has_just_begun(runs):
    begun = Run(runs["decoder"].results, runs["decoder"].log[:1])
    figure = training_curve.build({"decoder": begun})
    assert [len(line.get_xdata()) for line in figure.axes[0].lines] == [1, 0]
    assert legend_of(figure, 0) == ["decoder"]


def test_a_step_that_was_trained_twice_counts_once():
    log = [
        {"step": step, "kind": kind, "bits_per_character": bits}
        for step, kind, bits in [
            (1, "train", 5.0),
            (2, "train", 4.0),
            (2, "valid", 4.5),
            (2, "train", 3.9),
            (1, "test", 0),
        ]
    ]
    assert training_curve.curve(log, "train") == ([1, 2], [5.0, 3.9])
    assert training_curve.curve(log, "valid") == ([2], [4.5])
