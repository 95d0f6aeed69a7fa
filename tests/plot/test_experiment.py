"""Runs of an experiment drawn together: seeds as one, settings beside each other, and what changes
between them.
"""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from scipy import stats

from anisoscope.analysis import contrasts as changes
from anisoscope.analysis import correlations
from anisoscope.analysis import run_summaries as tables
from anisoscope.plot import draw, style
from anisoscope.plot.draw import RUNS
from anisoscope.plot.experiment_figures import CONTRASTED, Compared, contrasts
from anisoscope.plot.run_tables import Run
from anisoscope.plot.seed_lines import over_seeds
from tests.plot.reading import caption_of, footer_of, inside
from tests.plot.tables import changed, make_run, under

WITHOUT = ("gride", "cka_layers", "projection")


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    """Two conditions of two seeds and one of one; a seed is 10 % off in all numbers."""
    plain = make_run(
        steps=(0, 1, 10), layers=4, heads=2, batches=2, nulls=("gaussian",), without=WITHOUT
    )
    made = {}
    for condition, seed in (("plain", 0), ("plain", 1), ("sink", 0), ("sink", 1), ("window", 0)):
        settings = {"train.seed": seed, "model.sink": condition == "sink"}
        settings |= {"model.mask": "window", "model.window": 16} if condition == "window" else {}
        scale = 1 + 0.1 * seed + (condition == "sink")
        with xr.set_options(keep_attrs=True):
            other = changed(plain, lambda table, scale=scale: table * scale)
        bits = "bits_per_character"
        log = [line | ({bits: line[bits] + seed} if bits in line else {}) for line in plain.log]
        made[f"{condition}_{seed}"] = dataclasses.replace(under(other, settings), log=log)
    return made


def test_seeds_are_averaged_and_the_band_is_their_range(runs):
    together = over_seeds(runs)
    assert list(together) == ["plain", "sink", "window_0"]
    assert together["window_0"] is runs["window_0"]
    one, other, mean = runs["plain_0"].results, runs["plain_1"].results, together["plain"].results
    names = ("anisotropy", "twonn", "twonn_over_blocks", "query_drift_over_heads")
    for name in (*names, "twonn_excess"):
        both = [table[name].sel(statistic="mean", drop=True) for table in (one, other)]
        for end, expected in (
            ("mean", np.mean(both, 0)),
            ("low", np.min(both, 0)),
            ("high", np.max(both, 0)),
        ):
            found = mean[name].sel(statistic=end, drop=True)
            np.testing.assert_allclose(
                found.transpose(*both[0].dims), expected, err_msg=f"{name} {end}"
            )
        assert np.isfinite(both).all()
    assert mean.anisotropy.attrs == one.anisotropy.attrs
    first, averaged = runs["plain_0"].log, together["plain"].log
    assert len(averaged) == len(first)
    said = {(line["step"], line["kind"]): line for line in first}
    for line in averaged:
        own = said[line["step"], line["kind"]]
        if line["kind"] in ("train", "valid"):
            assert line["bits_per_character"] == pytest.approx(own["bits_per_character"] + 0.5)
        elif line["kind"] == "watch":
            np.testing.assert_allclose(line["drift"], own["drift"])  # by layer
    assert {line["kind"] for line in averaged} == {"train", "valid", "watch"}
    np.testing.assert_allclose(mean.validation_context_gain, 1.05 * one.validation_context_gain)
    gain = "validation_context_gain"
    lost = changed(
        runs["plain_1"], lambda table: table.assign({gain: table[gain].where(table.step != 1)})
    )
    lacks = over_seeds({"plain_0": runs["plain_0"], "plain_1": lost})[
        "plain"
    ].results.validation_context_gain
    assert np.isnan(lacks).values.tolist() == [False, True, False]


def test_heads_of_two_seeds_have_nothing_in_common_and_are_not_averaged(runs):
    """Heads in another order in one of the seeds: other means by number, the same points, curves
    and correlations.
    """
    names = ("plain_0", "plain_1")
    other = changed(
        runs["plain_1"], lambda table: table.isel(head=[1, 0]).assign_coords(head=table["head"])
    )
    swapped = {"plain_0": runs["plain_0"], "plain_1": other}
    found = []
    for members in ({name: runs[name] for name in names}, swapped):
        together = over_seeds(members)
        figure = RUNS["sharpness_against_alignment"](together)
        assert figure.axes[0].get_ylabel().split("\n")[:2] == ["plain", "8 heads × 2 runs"]
        assert footer_of(figure).startswith("Bars: 95 % interval, windows resampled. ")
        assert figure.get_label().count("n = 16, ") == 4
        drawn = [points.get_data() for ax in figure.axes[:4] for points, _, _ in ax.containers]
        table = correlations.correlations({name: run.results for name, run in together.items()})
        curves = [
            line.get_ydata() for line in RUNS["attention_sharpness"](together).axes[0].lines[:4]
        ]
        # whose orderings are a sample
        table = table.drop(columns=["spearman_p", "spearman_p_holm"])
        found.append((np.sort(drawn), table, curves))
    np.testing.assert_array_equal(found[0][0], found[1][0])
    pd.testing.assert_frame_equal(found[0][1], found[1][1])
    np.testing.assert_allclose(found[0][2], found[1][2])
    last = {"step": 10, "positions": "all", "statistic": "mean"}
    values = [
        [runs[run].results[of].sel(last) for run in names]
        for of in ("query_key_alignment", "attention_max")
    ]
    x, y = (np.concatenate(both, axis=None) for both in values)
    last = (
        found[0][1]
        .set_index(["positions", "y", "over", "step"])
        .loc["all", "attention_max", "heads", 10]
    )
    assert (last.n, last.networks) == (16, 2)
    assert last.pearson == pytest.approx(stats.pearsonr(x, y)[0])
    layers = found[0][1][found[0][1].over == "layers"]
    assert (set(layers.n), set(layers.networks)) == ({5}, {2})


@pytest.fixture(scope="module")
def joined(runs) -> tuple[pd.DataFrame, pd.DataFrame]:
    results = {name: run.results for name, run in runs.items()}
    bits = {name: {"test_bits": 2.0 + i, "valid_bits": 2.0} for i, name in enumerate(runs)}
    whole = tables.join(results, bits)
    return tables.rows(results, whole).astype({"run": str}), changes.contrasts(whole)


def test_contrasts_are_drawn_as_they_stand_in_the_table(runs, joined):
    figure = contrasts(Compared(over_seeds(runs), *joined))
    inside(figure, "contrasts")
    labels = [tick.get_text() for tick in figure.axes[0].get_yticklabels()]
    assert labels == ["sink changes", "no sink → sink", "mask changes", "causal → window 16"]
    for ax, name in zip(figure.axes, CONTRASTED, strict=False):
        table = joined[1]
        table = table[(table.quantity == name) & (table.positions == "all")].set_index("setting")
        marks = [line for line in ax.lines if line.get_marker() == "o"]
        bars = [
            line
            for line in ax.lines
            if line.get_marker() == "None" and len(set(line.get_xdata())) == 2
        ]
        assert len(marks) == 2
        for mark, bar, (setting, place) in zip(
            marks, bars, (("model.sink", -1), ("model.mask", -3)), strict=False
        ):
            row = table.loc[setting]
            assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (row.change, place)
            assert tuple(bar.get_xdata()) == (row.low, row.high)
            assert (mark.get_markerfacecolor() == "white") == (row.low <= 0 <= row.high)


def test_signs_of_a_sink_are_those_of_the_layer_block_or_head_where_they_are_largest(runs):
    assert draw.EXPERIMENT["attention_sinks"](Compared(runs, None, None)) is None  # not measured
    further = {"norm_ratio": lambda table: 9 * table.anisotropy}
    further["sink_heads"] = lambda table: table.attention_first[..., 0]
    runs = {name: changed(run, lambda table: table.assign(further)) for name, run in runs.items()}

    def drawn(runs, label):
        figure = draw.EXPERIMENT["attention_sinks"](Compared(runs, None, None))
        return figure, [
            line.get_ydata() for ax in figure.axes for line in ax.lines if line.get_label() == label
        ]

    figure, values = drawn(runs, "sink_0")
    inside(figure, "attention_sinks")
    table = runs["sink_0"].results.sel(statistic="mean")
    everywhere, without_first = (table.sel(positions=side) for side in ("all", "without_first"))
    expected = [
        everywhere.norm_ratio[:, 1:].max("layer"),
        everywhere.attention_first.max(("block", "head")),
        everywhere.sink_heads.max("block"),
        *(table.anisotropy[:, 1:].max("layer") for table in (everywhere, without_first)),
    ]
    np.testing.assert_allclose(values[:5], expected)
    lost = changed(
        runs["sink_0"],
        lambda table: table.assign(norm_ratio=table.norm_ratio.where(table.layer != 2)),
    )
    lost.results.attention_first[..., 0] = np.nan
    # as where a table has the largest of all
    assert np.isnan(drawn(runs | {"sink_0": lost}, "sink_0")[1][:2]).all()
    first = next(iter(runs))
    # all keep their colours
    fewer = runs | {first: changed(runs[first], lambda table: table.drop_vars("sink_heads"))}
    for line in drawn(fewer, "")[0].axes[0].lines:
        assert line.get_color() == style.inks(runs)[line.get_label()]["color"]
    together, values = drawn(over_seeds(runs), "sink")
    assert "Of several seeds" in caption_of(together)
    heads = over_seeds(runs)["sink"].results.attention_first.sel(statistic="mean", positions="all")
    np.testing.assert_allclose(values[1], heads.max(("block", "head", "seed")))


def test_each_condition_has_its_seeds_and_their_mean(runs, joined):
    figure = draw.EXPERIMENT["runs_compared"](Compared(over_seeds(runs), *joined))
    inside(figure, "runs_compared")
    assert figure.axes[0].get_window_extent().height / figure.dpi / 3 > 0.12  # inches of a row
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == [
        "plain",
        "sink",
        "window_0",
    ]
    bits = figure.axes[0].lines
    assert [list(line.get_xdata()) for line in bits] == [[2, 3], [2.5], [4, 5], [4.5], [6], [6]]
    assert [set(line.get_ydata()) for line in bits] == [{0}, {0}, {-1}, {-1}, {-2}, {-2}]
    rows = joined[0].set_index("run")
    assert list(figure.axes[1].lines[0].get_xdata()) == [
        rows.anisotropy["plain_0"],
        rows.anisotropy["plain_1"],
    ]
