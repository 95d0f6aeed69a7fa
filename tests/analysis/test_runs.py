"""All runs of an experiment in one table: which belong together, and nothing lost on the way."""

import numpy as np
import pytest
import xarray as xr

from anisoscope.analysis.contrasts import contrast_conditions
from anisoscope.analysis.run_summaries import (
    conditions,
    corpora,
    join_runs,
    run_rows,
    table_settings,
    varied,
)
from anisoscope.analysis.shapes import shapes
from anisoscope.results import joined_files
from tests.analysis.synthetic_runs import BITS, made


@pytest.fixture(scope="module")
def tables() -> dict[str, xr.Dataset]:
    """Two conditions of two seeds, of other depth and length."""
    other = {
        "layers": 2,
        "steps": (0, 1, 5),
        "causal": False,
        "model__sink": True,
        "model__layers": 2,
    }
    return {f"deep_{seed}": made(seed) for seed in (0, 1)} | {
        f"shallow_{seed}": made(seed, **other) for seed in (0, 1)
    }


@pytest.fixture(scope="module")
def runs(tables):
    return join_runs(tables, dict.fromkeys(tables, BITS))


def test_settings_make_a_condition_if_they_change_a_run():
    more = {"measure__families": ["spectrum"], "tangents__enabled": True, "watch__every": 16}
    for same in ({"model__leak_seed": 1}, {"mesh__fsdp": 2, "data__path": "elsewhere"}, more):
        assert conditions({"a_0": made(0), "a_1": made(1, **same)}) == {"a": ["a_0", "a_1"]}
    for other in ({"corpus": "other"}, {"train__learning_rate": 1.0}, {"measure__points": 8}):
        found = conditions({"a_0": made(0), "a_1": made(1, **other)})
        assert found == {"a_0": ["a_0"], "a_1": ["a_1"]}


def test_names_are_labels_only(tables):
    assert conditions(tables) == {kind: [f"{kind}_0", f"{kind}_1"] for kind in ("deep", "shallow")}
    crossed = {f"weights_{w}_data_{d}": made(w, d) for w in (0, 1) for d in (3, 4)}
    assert conditions(crossed) == {"all seeds": [*crossed]}
    named = {f"softmax_{name}": table for name, table in crossed.items()}
    assert conditions(named) == {"softmax": [*named]}
    sink = made(0, model__sink=True)
    mixed = {"one_0": made(0), "one_sink_0": sink, "one_1": made(1)}
    assert conditions(mixed) == {"one": ["one_0", "one_1"], "one_sink_0": ["one_sink_0"]}
    misleading = {"x_0": made(0), "x_1": made(1), "x_2": sink, "x_3": made(1, model__sink=True)}
    assert conditions(misleading) == {"x_0": ["x_0", "x_1"], "x_2": ["x_2", "x_3"]}


def test_runs_with_the_same_seeds_are_not_averaged():
    """Data have the seed of the run where they have none of their own."""
    again = {"first": made(0), "again": made(0), "resolved": made(0, data_seed=0)}
    assert conditions(again) == {name: [name] for name in again}
    assert table_settings(made(3, 5))["train.data_seed"] == 5


def test_joined_runs_hold_what_each_held_and_nan_elsewhere(tables, runs, tmp_path):
    joined_files.write_table(runs, tmp_path / "runs.nc")
    joined = joined_files.read_table(tmp_path / "runs.nc")
    assert list(joined.run.values) == list(tables)
    assert list(joined.step.values) == [0, 1, 5, 10]
    for name, table in tables.items():
        own, ends = joined.sel(run=name), table.sel(statistic=["mean", "low", "high"])
        for quantity in ("anisotropy", "gride", "attention_entropy", "cka_layers"):
            values = ends[quantity]
            known = own[quantity].sel({dim: values[dim] for dim in values.dims})
            np.testing.assert_array_equal(known.transpose(*values.dims), values, quantity)
            assert np.isfinite(own[quantity]).sum() == np.isfinite(values).sum()
        for shape, value in shapes(table).items():
            np.testing.assert_array_equal(own[shape], value)
            assert own[shape].attrs["formula"] == value.attrs["formula"]
        np.testing.assert_allclose(own.depth.values[: table.sizes["layer"]], table.depth)
    assert not {"batch", "null"} & {*joined.dims}


def test_coordinates_are_the_settings_that_differ_and_the_seeds(runs):
    settings = {"model.sink", "model.layers", "model.mask", "objective", "train.steps"}
    assert {*varied(runs)} == settings
    assert list(runs["model.sink"].values) == [False, False, True, True]
    assert list(runs["train.seed"].values) == list(runs["train.data_seed"].values) == [0, 1, 0, 1]
    assert list(runs.condition.values) == ["deep", "deep", "shallow", "shallow"]
    mixed = {name: made(train__penalty_layers=own) for name, own in (("a", []), ("b", [1, 2]))}
    column = join_runs(mixed, dict.fromkeys(mixed, BITS))["train.penalty_layers"]
    assert list(column.values) == ["[]", "[1, 2]"]


def test_a_text_is_a_setting_whatever_its_path():
    """mask x text, two seeds each: no contrast runs over both, and texts of one name are told
    apart.
    """
    tables = {}
    for mask in ("causal", "window"):
        for text, sha in (("letters", "1234567890"), ("figures", "abcdefghij")):
            for seed in (0, 1):
                changes = {"model__mask": mask, "data__path": f"/{seed}/{text}"}
                table = made(seed, corpus=sha, data__clean=text == "figures", **changes)
                tables[f"{mask}_{text}_{seed}"] = table.assign_attrs(corpus="text")
    joined = join_runs(tables, dict.fromkeys(tables, BITS))
    assert list(dict.fromkeys(joined.condition.values)) == [
        f"{mask}_{text}" for mask in ("causal", "window") for text in ("letters", "figures")
    ]
    assert {*varied(joined)} == {"model.mask", "data.corpus"}
    found, texts = contrast_conditions(joined), ("text (12345678)", "text (abcdefgh)")
    pairs = {("model.mask", "causal", "window", text) for text in texts}
    pairs |= {("data.corpus", *texts, mask) for mask in ("causal", "window")}
    columns = found[["setting", "before", "after", "held"]]
    assert {*columns.itertuples(index=False, name=None)} == pairs
    assert {*found[found.quantity == "test_bits"].setting} == {"model.mask"}
    names = {name: name.split("_")[1] for name in tables}
    named = {name: table.assign_attrs(corpus=names[name]) for name, table in tables.items()}
    assert corpora(named) == names


def test_a_row_per_run_with_the_last_checkpoint_over_blocks(tables, runs):
    frame = run_rows(tables, runs, [list(tables)[1]]).set_index("run")
    assert frame.unfinished.tolist() == [n == 1 for n in range(len(tables))]
    assert list(frame.index) == list(tables)
    assert list(frame.step) == [10, 10, 5, 5]
    for name, table in tables.items():
        row, last = frame.loc[name], table.isel(step=-1)
        for suffix, positions in (("", "all"), ("_without_first_token", "without_first_token")):
            own = last.sel(positions=positions)
            mean = own.anisotropy.sel(statistic="mean")[1:].mean().item()
            assert row[f"anisotropy{suffix}"] == pytest.approx(mean)
            deviation = own.anisotropy_over_blocks.sel(statistic="std").item()
            assert row[f"anisotropy_std{suffix}"] == deviation
            middle = shapes(table).middle_minus_ends.sel(positions=positions).item()
            assert row[f"middle_minus_ends{suffix}"] == pytest.approx(middle, nan_ok=True)
    assert list(frame["model.sink"]) == [False, False, True, True]
    assert list(frame.test_bits) == [2.0] * 4
