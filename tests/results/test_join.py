"""The tables of a run over its checkpoints."""

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from anisoscope.metrics.registry import FAMILIES, quantities
from anisoscope.results import joined_files
from anisoscope.results.frame import to_frame
from anisoscope.results.join import join_steps, scores, tidy, write_joined
from anisoscope.results.summary import block_average, summarize_checkpoint
from tests.results.made import BLOCKS, HEADS, LAYERS, NAMES, NULLS, S, table, values

ALL = tuple(FAMILIES)


@pytest.fixture(scope="module")
def tables():
    return {step: table(values(step), step) for step in (0, 7)}


@pytest.fixture(scope="module")
def whole(tables):
    return join_steps(tables, ALL, NULLS)


def test_results_and_batches_are_those_of_every_step(tables, whole):
    results, batches = whole
    assert list(results.step.values) == list(batches.step.values) == [0, 7]
    for step, one in tables.items():
        expected = summarize_checkpoint(one, tables[0], NULLS)
        for every, part in zip((results, batches), expected, strict=True):
            assert set(every.data_vars) == set(part.data_vars)
            for name in part.data_vars:
                np.testing.assert_array_equal(
                    every[name].sel(step=[step]), part[name], err_msg=name
                )
    first = results.sel(step=0, null="untrained", statistic=["mean", "std", "low", "high"])
    np.testing.assert_array_equal(first.anisotropy_excess, 0.0)


def test_a_run_on_disk_has_them_all_and_the_noise_floor_of_a_quantity(tables, whole, tmp_path):
    """It is in the attributes of its variable, and of its averages, which move no further; and
    in a column of the rows.
    """
    noise = '{"anisotropy": 2e-7, "twonn": NaN, "elsewhere": 1.0}'
    about = {"run": "renamed", "corpus": "letters", "noise_floor": noise}
    write_joined(tmp_path, tables, ALL, NULLS, about)
    results, batches = (
        joined_files.read_table(tmp_path / name) for name in ("results.nc", "batches.nc")
    )
    assert results.attrs == batches.attrs == about
    xr.testing.assert_equal(results, whole[0])
    xr.testing.assert_equal(batches, whole[1])
    marked = {name for name in results.data_vars if "noise_floor" in results[name].attrs}
    assert marked == {"anisotropy", block_average("anisotropy")}
    frame = pd.read_csv(tmp_path / "results.csv")
    assert set(frame[frame.noise_floor.notna()].metric) == marked
    assert set(frame.noise_floor.dropna()) == {2e-7}
    assert (set(frame.run), set(frame.batches)) == ({"renamed"}, {3})


def test_a_step_without_a_quantity_has_nan(tables, whole):
    """Its checkpoint is gone, and its table has no such family, or a null model less."""
    part = (
        tables[7].drop_vars(["query_drift", "gride"]).drop_dims(["block", "head"], errors="ignore")
    )
    part["twonn"] = (
        part["twonn"].where(part["cloud"] != "gaussian").assign_attrs(clouds="measured,shuffled")
    )
    results, batches = join_steps({0: tables[0], 7: part}, ALL, NULLS)
    whole, of_clouds = whole
    for name in ("query_drift", "gride"):
        assert np.isnan(results[name].sel(step=7)).all()
        assert np.isnan(batches[name].sel(step=7)).all()
        np.testing.assert_array_equal(results[name].sel(step=0), whole[name].sel(step=0))
        np.testing.assert_array_equal(batches[name].sel(step=0), of_clouds[name].sel(step=0))
    assert np.isnan(results.twonn_excess.sel(step=7, null="gaussian")).all()
    np.testing.assert_array_equal(results.twonn, whole.twonn)
    others = {"null": ["shuffled", "untrained"]}
    np.testing.assert_array_equal(results.twonn_excess.sel(others), whole.twonn_excess.sel(others))
    np.testing.assert_array_equal(results.anisotropy, whole.anisotropy)


def test_what_a_step_is_compared_with_comes_with_its_family(tables):
    """It is no quantity; a step without has -1: none."""
    whole = tables[7].assign(previous_step=xr.DataArray(3))
    results, _ = join_steps({0: tables[0], 7: whole}, ALL, ())
    assert list(results.previous_step.values) == [-1, 3]
    results, batches = join_steps({7: whole}, ("dimension",), ())
    assert set(batches.data_vars) == {"twonn", "duplicate_points"}
    assert set(results.data_vars) == {*batches, *map(block_average, batches)}


def test_tidy_has_one_row_a_number(whole):
    results = whole[0].assign_attrs(run="decoder", corpus="letters")
    frame = tidy(results, 3)
    further = 3 * LAYERS + 7 * LAYERS + LAYERS**2
    averages = 3 + 3 + 7 + (BLOCKS + 1)  # of one number a layer, of top, of neighbors, of heads
    assert len(frame) == 2 * S * (3 * LAYERS + BLOCKS * HEADS + further + averages)
    averaged = map(block_average, {*NAMES} - {"cka_layers"})
    assert set(frame.metric) == {*NAMES, "query_drift_over_heads", *averaged}
    places = ["step", "positions", "metric", "layer", "head", "axis", "at"]
    assert not frame.duplicated(places).any()
    columns = ["run", "corpus", *places, "mean", "std", "low", "high"]
    columns += [f"excess_{null}{end}" for null in NULLS for end in ("", "_low", "_high")]
    assert list(frame) == [*columns, "batches", "units"]
    own = frame[(frame.positions == "all") & (frame.step == 7)].set_index("metric")
    last = results.sel(step=7, positions="all")
    row = own.loc["query_drift"].query("layer == 3 and head == 1").iloc[0]
    drift, excess = (x.sel(block=3, head=1) for x in (last.query_drift, last.query_drift_excess))
    assert row["mean"] == drift.sel(statistic="mean")
    assert row.excess_shuffled_low == excess.sel(statistic="low", null="shuffled")
    assert np.isnan(row.excess_gaussian)
    assert row.units == quantities()["query_drift"].units
    row = own.loc["twonn_over_blocks"]
    assert row.low == last.twonn_over_blocks.sel(statistic="low")
    assert row.excess_gaussian == last.twonn_over_blocks_excess.sel(null="gaussian")[0]
    assert np.isnan(row["at"])
    row = own.loc["top_coordinate_variance_share"].query("layer == 2 and at == 4").iloc[0]
    share = last.top_coordinate_variance_share.sel(layer=2, top=4, statistic="high")
    assert (row.axis, row.high) == ("top", share.item())


def test_a_frame_has_the_names_of_layers_and_of_blocks(whole):
    names = {"layer": list("wxyz"), "block": list("abc")}
    table = whole[0].sel(step=7, positions="all", drop=True)
    frame = to_frame(table.assign_coords(names))
    for metric, dim in (("twonn", "layer"), ("query_drift", "block")):
        assert list(frame[frame.metric == metric].layer.unique()) == names[dim]
    halves = table.assign_coords(layer=[0.5, 1.0, 1.5, 2.0])
    assert list(to_frame(halves).layer.dropna().unique())[:4] == [0.5, 1.0, 1.5, 2.0]
    with pytest.raises(ValueError, match="has the dimensions "):
        to_frame(xr.concat([table, table], "repetition"))


def test_scores_are_those_of_the_step_and_missing_where_there_are_none():
    lines = [
        {"step": 0, "kind": "valid", "bits_per_character": 8.0, "gain_over_unigram": -3.0},
        {"step": 2, "kind": "train", "bits_per_character": 1.0, "gain_over_unigram": 9.0},
        {"step": 4, "kind": "valid", "bits_per_character": 5.0, "gain_over_unigram": 0.5},
    ]
    found = scores(lines, [0, 2, 4])
    np.testing.assert_array_equal(found.validation_gain_over_unigram, [-3.0, np.nan, 0.5])
    np.testing.assert_array_equal(found.validation_bits, [8.0, np.nan, 5.0])
    # as in a decoder, or a log of old
    assert set(found) == {"validation_gain_over_unigram", "validation_bits"}
    assert not set(scores([], [0, 2]))
