"""All runs of an experiment in one table: which belong together, and nothing lost on the way."""

import numpy as np
import pytest
import xarray as xr

from anisoscope.analysis import run_summaries
from anisoscope.analysis.contrasts import contrasts as changes_between
from anisoscope.analysis.shapes import over_depth, shapes
from anisoscope.results import joined_files
from tests.analysis.run_tables import BITS, made


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


def test_a_condition_is_what_runs_share_that_differ_in_seeds_only(tables):
    assert run_summaries.conditions(tables) == {
        "deep": ["deep_0", "deep_1"],
        "shallow": ["shallow_0", "shallow_1"],
    }
    leaks = {f"leak_{seed}": made(seed, model__leak_seed=seed) for seed in (0, 1)}
    assert run_summaries.conditions(leaks) == {"leak": [*leaks]}
    moved = {"a_0": made(0), "a_1": made(1, mesh__fsdp=2, data__path="elsewhere")}
    assert run_summaries.conditions(moved) == {"a": ["a_0", "a_1"]}
    for other in (
        made(1, corpus="other"),
        made(1, train__learning_rate=1.0),
        made(1, measure__points=8),
    ):
        assert run_summaries.conditions({"a_0": made(0), "a_1": other}) == {
            "a_0": ["a_0"],
            "a_1": ["a_1"],
        }


def test_names_are_labels_only():
    crossed = {f"weights_{w}_data_{d}": made(w, d) for w in (0, 1) for d in (3, 4)}
    assert run_summaries.conditions(crossed) == {"all seeds": [*crossed]}
    named = {f"softmax_{name}": table for name, table in crossed.items()}
    assert run_summaries.conditions(named) == {"softmax": [*named]}
    mixed = {"one_0": made(0), "one_sink_0": made(0, model__sink=True), "one_1": made(1)}
    assert run_summaries.conditions(mixed) == {
        "one": ["one_0", "one_1"],
        "one_sink_0": ["one_sink_0"],
    }
    misleading = {
        "x_0": made(0),
        "x_1": made(1),
        "x_2": made(0, model__sink=True),
        "x_3": made(1, model__sink=True),
    }
    assert run_summaries.conditions(misleading) == {"x_0": ["x_0", "x_1"], "x_2": ["x_2", "x_3"]}


def test_runs_with_the_same_seeds_are_not_averaged_and_data_have_that_of_the_run_if_none_of_their_own():
    again = {"first": made(0), "again": made(0), "resolved": made(0, data_seed=0)}
    assert run_summaries.conditions(again) == {name: [name] for name in again}
    assert run_summaries.settings(made(3, 5))["train.data_seed"] == 5


def test_joined_runs_hold_what_each_held_and_nan_elsewhere(tables, tmp_path):
    joined_files.write(
        run_summaries.join(tables, dict.fromkeys(tables, BITS)), tmp_path / "runs.nc"
    )
    joined = joined_files.read_table(tmp_path / "runs.nc")
    assert list(joined.run.values) == list(tables)
    assert list(joined.step.values) == [0, 1, 5, 10]
    for name, table in tables.items():
        own = joined.sel(run=name)
        ends = table.sel(statistic=["mean", "low", "high"])
        for quantity in ("anisotropy", "twonn", "gride", "attention_entropy", "cka_layers"):
            assert own[quantity].dims[:3] == ("step", "statistic", "positions")
            there = own[quantity].sel({dim: ends[dim] for dim in ends[quantity].dims})
            np.testing.assert_array_equal(
                there.transpose(*ends[quantity].dims), ends[quantity], err_msg=quantity
            )
            assert np.isfinite(own[quantity]).sum() == np.isfinite(ends[quantity]).sum()
        for shape, value in shapes(table).items():
            np.testing.assert_array_equal(own[shape], value)
            assert own[shape].attrs["formula"] == value.attrs["formula"]
        np.testing.assert_allclose(own.depth.values[: table.sizes["layer"]], table.depth)
    assert joined.test_bits.attrs["units"] == "bit"
    assert not {"batch", "null"} & {*joined.dims}


def test_coordinates_are_the_settings_that_differ_and_the_seeds(tables):
    joined = run_summaries.join(tables, dict.fromkeys(tables, BITS))
    assert set(run_summaries.varied(joined)) == {
        "model.sink",
        "model.layers",
        "model.mask",
        "objective",
        "train.steps",
    }
    assert list(joined["model.sink"].values) == [False, False, True, True]
    assert (
        list(joined["train.seed"].values) == list(joined["train.data_seed"].values) == [0, 1, 0, 1]
    )
    assert list(joined.condition.values) == ["deep", "deep", "shallow", "shallow"]
    mixed = {
        name: made(train__penalty_layers=layers) for name, layers in (("a", []), ("b", [1, 2]))
    }
    assert list(
        run_summaries.join(mixed, dict.fromkeys(mixed, BITS))["train.penalty_layers"].values
    ) == [
        "[]",
        "[1, 2]",
    ]


def test_a_text_is_a_setting_whatever_its_path(tmp_path):
    """mask x text, two seeds each: no contrast runs over both, and texts of one name are told
    apart.
    """
    tables = {}
    for mask in ("causal", "window"):
        for text, sha in (("letters", "1234567890"), ("figures", "abcdefghij")):
            for seed in (0, 1):
                changes = {
                    "model__mask": mask,
                    "data__path": f"/{seed}/{text}",
                    "data__clean": text == "figures",
                }
                table = made(seed, corpus=sha, **changes)
                tables[f"{mask}_{text}_{seed}"] = table.assign_attrs(corpus="text")
    assert list(run_summaries.conditions(tables)) == [
        "causal_letters",
        "causal_figures",
        "window_letters",
        "window_figures",
    ]
    joined = run_summaries.join(tables, dict.fromkeys(tables, BITS))
    assert set(run_summaries.varied(joined)) == {"model.mask", "data.corpus"}
    assert (
        list(joined["data.corpus"].values[:4]) == ["text (12345678)"] * 2 + ["text (abcdefgh)"] * 2
    )
    found = changes_between(joined)
    texts = ("text (12345678)", "text (abcdefgh)")
    pairs = {("model.mask", "causal", "window", text) for text in texts}
    pairs |= {("data.corpus", *texts, mask) for mask in ("causal", "window")}
    assert (
        set(found[["setting", "before", "after", "held"]].itertuples(index=False, name=None))
        == pairs
    )
    assert set(found[found.quantity == "test_bits"].setting) == {"model.mask"}
    for name, table in tables.items():
        table.attrs["corpus"] = "letters" if "letters" in name else "figures, cleaned"
    assert set(run_summaries.corpora(tables).values()) == {"letters", "figures, cleaned"}
    same = {
        name: table.assign_attrs(corpus_sha256="")
        for name, table in tables.items()
        if "letters" in name
    }
    assert run_summaries.varied(run_summaries.join(same, dict.fromkeys(same, BITS))) == [
        "model.mask"
    ]


def test_a_row_per_run_with_the_last_checkpoint_over_blocks(tables):
    joined = run_summaries.join(tables, dict.fromkeys(tables, BITS))
    frame = run_summaries.rows(tables, joined).set_index("run")
    assert list(frame.index) == list(tables)
    assert list(frame.step) == [10, 10, 5, 5]
    for name, table in tables.items():
        last = table.isel(step=-1)
        for suffix, positions in (("", "all"), ("_without_first", "without_first")):
            means = over_depth(last.anisotropy.sel(positions=positions, statistic="mean"))
            deviation = last.anisotropy_over_blocks.sel(positions=positions, statistic="std")
            assert frame.loc[name, f"anisotropy{suffix}"] == pytest.approx(means.item())
            assert frame.loc[name, f"anisotropy_std{suffix}"] == deviation.item()
            middle = shapes(table).middle_less_ends.sel(positions=positions).item()
            assert frame.loc[name, f"middle_less_ends{suffix}"] == pytest.approx(
                middle, nan_ok=True
            )
    assert list(frame["model.sink"]) == [False, False, True, True]
    assert list(frame.test_bits) == [2.0] * 4


def test_what_is_measured_besides_makes_no_condition():
    """As of a run that was measured again with more, and the others not yet."""
    more = {"measure__families": ["spectrum"], "tangents__enabled": True}
    more |= {"watch__every": 16, "watch__points": 99}
    assert run_summaries.conditions({"plain_0": made(0, **more), "plain_1": made(1)}) == {
        "plain": ["plain_0", "plain_1"]
    }
