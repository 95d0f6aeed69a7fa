"""Runs of an experiment drawn together: seeds as one, settings beside each other, and what changes
between them.
"""

import dataclasses

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from anisoscope.analysis import contrasts as changes
from anisoscope.analysis import primary
from anisoscope.analysis import run_summaries as tables
from anisoscope.plot import draw
from anisoscope.plot.experiment_figures import CONTRASTED, Compared, draw_contrasts, forest
from anisoscope.plot.run_tables import Run, average_seeds
from tests.plot.reading import caption_of, inside
from tests.plot.tables import changed, make_run, under

WITHOUT = ("gride", "cka_layers")


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


@pytest.fixture(scope="module")
def together(runs) -> dict[str, Run]:
    return average_seeds(runs)


def test_seeds_are_averaged_and_the_band_is_their_range(runs, together):
    assert list(together) == ["plain", "sink", "window_0"]
    assert together["window_0"] is runs["window_0"]
    one, other, mean = runs["plain_0"].results, runs["plain_1"].results, together["plain"].results
    for name in (
        "anisotropy",
        "twonn",
        "twonn_over_blocks",
        "query_drift_over_heads",
        "twonn_excess",
    ):
        both = [table[name].sel(statistic="mean", drop=True) for table in (one, other)]
        ends = {"mean": np.mean(both, 0), "low": np.min(both, 0), "high": np.max(both, 0)}
        for end, expected in ends.items():
            found = mean[name].sel(statistic=end).transpose(*both[0].dims)
            np.testing.assert_allclose(found, expected, err_msg=f"{name} {end}")
        assert np.isfinite(both).all()
    assert mean.anisotropy.attrs == one.anisotropy.attrs
    first, averaged = runs["plain_0"].log, together["plain"].log
    assert len(averaged) == len(first)
    own = {(line["step"], line["kind"]): line for line in first}
    for line in averaged:
        name, shift = ("drift", 0) if line["kind"] == "watch" else ("bits_per_character", 0.5)
        np.testing.assert_allclose(
            line[name], np.add(own[line["step"], line["kind"]][name], shift), rtol=1e-6
        )
    gain = "validation_gain_over_unigram"
    np.testing.assert_allclose(mean[gain], 1.05 * one[gain])
    lost = changed(
        runs["plain_1"], lambda table: table.assign({gain: table[gain].where(table.step != 1)})
    )
    lacks = average_seeds({"plain_0": runs["plain_0"], "plain_1": lost})["plain"].results[gain]
    assert np.isnan(lacks).values.tolist() == [False, True, False]
    heads = mean.query_key_alignment  # those of two seeds have nothing in common
    for seed in (0, 1):
        own = runs[f"plain_{seed}"].results.query_key_alignment
        np.testing.assert_array_equal(heads.isel(seed=seed).transpose(*own.dims), own)


@pytest.fixture(scope="module")
def joined(runs) -> pd.DataFrame:
    results = {name: run.results for name, run in runs.items()}
    bits = {name: {"test_bits": 2.0 + i, "valid_bits": 2.0} for i, name in enumerate(runs)}
    whole = tables.join_runs(results, bits)
    return changes.contrast_conditions(whole)


def test_contrasts_are_drawn_as_they_stand_in_the_table(together, joined):
    figure = draw_contrasts(Compared(together, joined))
    inside(figure, "contrasts")
    table = joined[joined.positions == "all"].set_index(["quantity", "setting"])
    for ax, name in zip(figure.axes, CONTRASTED, strict=False):
        marks = [line for line in ax.lines if line.get_marker() == "o"]
        flat = [line for line in ax.lines if len({*line.get_ydata()}) == 1]
        bars = [line.get_xdata() for line in flat if len(line.get_xdata()) == 2]
        settings = (("model.sink", 0), ("model.mask", -1))
        for mark, bar, (setting, place) in zip(marks, bars, settings, strict=True):
            row = table.loc[name, setting]
            assert (mark.get_xdata()[0], mark.get_ydata()[0]) == (row.change, place)
            assert tuple(bar) == (row.low, row.high)
            assert (mark.get_markerfacecolor() == "white") == (row.low <= 0 <= row.high)


def test_prespecified_contrasts_are_a_forest_in_units_of_their_margins(runs):
    verdicts = (primary.DIFFERS, primary.BOTH, primary.WITHIN, primary.OPEN, primary.UNTESTED)
    names = (
        "middle_minus_ends",
        "growth",
        "std_over_layers",
        "expansion",
        "drift_growth",
        "last_drift",
    )
    table = pd.DataFrame({"quantity": names, "verdict": [*verdicts, primary.NOTHING]})
    table = table.assign(name=names, at="matched", before="learned_decoder", after="rotary_decoder")
    table = table.assign(change=np.arange(1.0, 7), low=np.arange(6.0), high=8.0, positions="all")
    table = table.assign(margin=[0.5, np.nan, *[0.5] * 4], pairs=5)
    table = table.assign(**dict.fromkeys(primary.TESTS, 0.01))
    figure = draw.EXPERIMENT["primary_contrasts"](Compared(runs, None, None, table))
    inside(figure, "primary_contrasts")
    assert "6 contrasts prespecified before any number was seen" in caption_of(figure)
    assert "Without value: last_drift." in caption_of(figure)
    (ax,) = figure.axes
    marks = [line for line in ax.lines if line.get_marker() in ("o", "s")]
    assert [mark.get_label() for mark in marks] == [*verdicts]
    np.testing.assert_allclose([mark.get_xdata()[0] for mark in marks], [2, np.nan, 6, 8, 10])
    assert [mark.get_markerfacecolor() == "white" for mark in marks] == [False] * 3 + [True] * 2
    words = [text.get_text() for text in ax.texts]
    assert words.pop(1) == "no margin"  # in place of the mark of the second row
    assert [text.split("  ")[1] for text in words] == [*verdicts]
    empty = Compared(runs, None, None, table[5:])
    assert draw.EXPERIMENT["primary_contrasts"](empty) is None
    alike = forest(table[:5].assign(quantity="growth"))
    rows = [tick.get_text() for tick in alike.axes[0].get_yticklabels()]
    assert rows == ["learned decoder → rotary decoder, loss-matched"] * 5
