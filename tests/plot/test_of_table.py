"""One quantity of a table, on axes of the user's own."""

import numpy as np
import pandas as pd
import pytest

import anisoscope
from anisoscope import plot
from tests.measurement.tables.made import as_before

X = np.random.default_rng(0).standard_normal((3, 64, 4))


@pytest.fixture(scope="module")
def table():
    return anisoscope.measure(X, families="similarity", names=("first", "second", "third"), nulls=())


def test_the_profile_is_what_the_table_says(table):
    axes = plot.profile(table, "drift", label="x")
    (line,) = axes.lines
    values = table.drift
    np.testing.assert_array_equal(line.get_ydata(), values.sel(statistic="mean"))
    (band,) = axes.collections
    ends = band.get_paths()[0].vertices[:, 1]
    assert (ends.min(), ends.max()) == (values.sel(statistic="low").min(), values.sel(statistic="high").max())
    assert [label.get_text() for label in axes.get_xticklabels()] == ["first", "second", "third"]
    assert axes.get_ylabel() == table.drift.attrs["long_name"] + " " + table.drift.attrs["symbol"]
    assert plot.profile(table, "mean_norm", ax=axes) is axes
    assert len(axes.lines) == 2


def test_with_a_null_model_the_profile_is_the_excess(table):
    beside = anisoscope.measure(X, families="dimension", nulls="gaussian")
    axes = plot.profile(beside, "twonn", null="gaussian")
    excess = beside.twonn_excess.sel(null="gaussian", statistic="mean")
    np.testing.assert_array_equal(axes.lines[0].get_ydata(), excess)
    assert axes.get_ylabel().endswith(",\nexcess over gaussian")
    with pytest.raises(ValueError, match="null 'shuffled' is not in the table; choose from gaussian"):
        plot.profile(beside, "twonn", null="shuffled")
    frame = anisoscope.to_frame(beside)
    np.testing.assert_array_equal(frame[frame.metric == "twonn"].excess_gaussian, excess)
    before = as_before(beside)  # as xarray alone opens it
    np.testing.assert_array_equal(plot.profile(before, "twonn", null="gaussian").lines[0].get_ydata(), excess)
    pd.testing.assert_frame_equal(anisoscope.to_frame(before), frame)


def test_heads_are_lines():
    heads = np.random.default_rng(1).standard_normal((2, 3, 4, 8, 5))
    attention = anisoscope.measure_attention(heads, heads, mask="causal", folds=1)
    axes = plot.profile(attention, "attention_entropy")
    assert [text.get_text() for text in axes.get_legend().get_texts()] == ["head 0", "head 1", "head 2"]
    values = attention.attention_entropy.sel(statistic="mean", head=2)
    np.testing.assert_array_equal(axes.lines[2].get_ydata(), values)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"quantity": "twonn"}, "the table has no 'twonn'; it has mean_cosine"),
        (
            {"quantity": "drift", "null": "gaussian"},
            "null 'gaussian': the table has no null model of drift; leave it out",
        ),
    ],
)
def test_what_the_table_lacks_is_one_line(table, given, words):
    with pytest.raises(ValueError, match=words):
        plot.profile(table, **given)


def test_a_frame_has_a_row_for_each_number(table):
    frame = anisoscope.to_frame(table)
    row = frame[(frame.metric == "drift") & (frame.layer == "second")].iloc[0]
    expected = table.drift.sel(layer="second")
    assert (row["mean"], row.low) == (expected.sel(statistic="mean"), expected.sel(statistic="low"))
