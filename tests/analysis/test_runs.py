"""All runs of an experiment in one table: which belong together, and nothing lost on the way."""

import functools
import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from anisoscope.analysis import loss_matched, on_disk, runs
from anisoscope.analysis.contrasts import contrasts as changes_between
from anisoscope.analysis.shapes import over_depth, shapes
from anisoscope.measurement.tables import files
from anisoscope.plot.experiment import Compared, contrasts
from anisoscope.plot.run import Run
from anisoscope.utils.errors import RunError
from tests.plot.tables import make_run

BITS = {"test_bits": 2.0, "valid_bits": 2.5}


@functools.cache
def plain(causal: bool, steps: tuple[int, ...], layers: int, seed: int) -> Run:
    return make_run(causal, steps, layers=layers, heads=2, batches=2, seed=seed, nulls=("gaussian",))


def made(seed=0, data_seed=None, corpus="digest", steps=(0, 1, 10), layers=3, causal=True, **changes) -> xr.Dataset:
    """A table, with settings changed by dotted name ("model__qk_norm"), data_seed as the config holds it."""
    table = plain(causal, steps, layers, seed).results.copy()
    config = json.loads(table.attrs["config"])
    config["train"] |= {"data_seed": data_seed}
    for name, value in changes.items():
        group, _, leaf = name.partition("__")
        config[group][leaf] = value
    table.attrs |= {"config": json.dumps(config), "corpus_sha256": corpus}
    return table


@pytest.fixture(scope="module")
def tables() -> dict[str, xr.Dataset]:
    """Two conditions of two seeds, of other depth and length."""
    return {
        "deep_0": made(0),
        "deep_1": made(1),
        "shallow_0": made(0, layers=2, steps=(0, 1, 5), causal=False, model__sink=True, model__layers=2),
        "shallow_1": made(1, layers=2, steps=(0, 1, 5), causal=False, model__sink=True, model__layers=2),
    }


def test_a_condition_is_what_runs_share_that_differ_in_seeds_only(tables):
    assert runs.conditions(tables) == {"deep": ["deep_0", "deep_1"], "shallow": ["shallow_0", "shallow_1"]}
    leaks = {f"leak_{seed}": made(seed, model__leak_seed=seed) for seed in (0, 1)}
    assert runs.conditions(leaks) == {"leak": [*leaks]}
    moved = {"a_0": made(0), "a_1": made(1, mesh__fsdp=2, data__path="elsewhere")}
    assert runs.conditions(moved) == {"a": ["a_0", "a_1"]}
    for other in (made(1, corpus="other"), made(1, train__learning_rate=1.0), made(1, measure__points=8)):
        assert runs.conditions({"a_0": made(0), "a_1": other}) == {"a_0": ["a_0"], "a_1": ["a_1"]}


def test_names_are_labels_only():
    crossed = {f"softmax_weights_{w}_data_{d}": made(w, d) for w in (0, 1) for d in (3, 4)}
    assert runs.conditions(crossed) == {"softmax": [*crossed]}
    assert runs.conditions({name.removeprefix("softmax_"): table for name, table in crossed.items()}).keys() == {
        "all seeds"
    }
    mixed = {"one_0": made(0), "one_sink_0": made(0, model__sink=True), "one_1": made(1)}
    assert runs.conditions(mixed) == {"one": ["one_0", "one_1"], "one_sink_0": ["one_sink_0"]}
    misleading = {"x_0": made(0), "x_1": made(1), "x_2": made(0, model__sink=True), "x_3": made(1, model__sink=True)}
    assert runs.conditions(misleading) == {"x_0": ["x_0", "x_1"], "x_2": ["x_2", "x_3"]}


def test_runs_with_the_same_seeds_are_not_averaged():
    again = {"first": made(0), "again": made(0), "resolved": made(0, data_seed=0)}
    assert runs.conditions(again) == {name: [name] for name in again}


def test_data_have_the_seed_of_the_run_where_they_have_none_of_their_own():
    assert [runs.settings(made(3, d))["train.data_seed"] for d in (None, 5)] == [3, 5]


def test_joined_runs_hold_what_each_held_and_nan_elsewhere(tables, tmp_path):
    files.write(runs.join(tables, dict.fromkeys(tables, BITS)), tmp_path / "runs.nc")
    joined = files.read_table(tmp_path / "runs.nc")
    assert list(joined.run.values) == list(tables)
    assert list(joined.step.values) == [0, 1, 5, 10]
    for name, table in tables.items():
        own = joined.sel(run=name)
        ends = table.sel(statistic=["mean", "low", "high"])
        for quantity in ("anisotropy", "twonn", "gride", "attention_entropy", "cka_layers"):
            assert own[quantity].dims[:3] == ("step", "statistic", "positions")
            there = own[quantity].sel({dim: ends[dim] for dim in ends[quantity].dims})
            np.testing.assert_array_equal(there.transpose(*ends[quantity].dims), ends[quantity], err_msg=quantity)
            assert np.isfinite(own[quantity]).sum() == np.isfinite(ends[quantity]).sum()
        for shape, value in shapes(table).items():
            np.testing.assert_array_equal(own[shape], value)
            assert own[shape].attrs["formula"] == value.attrs["formula"]
        np.testing.assert_allclose(own.depth.values[: table.sizes["layer"]], table.depth)
    assert joined.test_bits.attrs["units"] == "bit"
    assert not {"batch", "null"} & {*joined.dims}


def test_coordinates_are_the_settings_that_differ_and_the_seeds(tables):
    joined = runs.join(tables, dict.fromkeys(tables, BITS))
    assert set(runs.varied(joined)) == {"model.sink", "model.layers", "model.mask", "objective", "train.steps"}
    assert list(joined["model.sink"].values) == [False, False, True, True]
    assert list(joined["train.seed"].values) == list(joined["train.data_seed"].values) == [0, 1, 0, 1]
    assert list(joined.condition.values) == ["deep", "deep", "shallow", "shallow"]
    mixed = {name: made(train__penalty_layers=layers) for name, layers in (("a", []), ("b", [1, 2]))}
    assert list(runs.join(mixed, dict.fromkeys(mixed, BITS))["train.penalty_layers"].values) == ["[]", "[1, 2]"]


def test_a_text_is_a_setting_whatever_its_path(tmp_path):
    """mask x text, two seeds each: no contrast runs over both, and texts of one name are told apart."""
    tables = {}
    for mask in ("causal", "window"):
        for text, sha in (("letters", "1234567890"), ("figures", "abcdefghij")):
            for seed in (0, 1):
                changes = {"model__mask": mask, "data__path": f"/{seed}/{text}", "data__clean": text == "figures"}
                table = made(seed, corpus=sha, **changes)
                tables[f"{mask}_{text}_{seed}"] = table.assign_attrs(corpus="text")
    assert list(runs.conditions(tables)) == ["causal_letters", "causal_figures", "window_letters", "window_figures"]
    joined = runs.join(tables, dict.fromkeys(tables, BITS))
    assert set(runs.varied(joined)) == {"model.mask", "data.corpus"}
    assert list(joined["data.corpus"].values[:4]) == ["text (12345678)"] * 2 + ["text (abcdefgh)"] * 2
    found = changes_between(joined)
    texts = ("text (12345678)", "text (abcdefgh)")
    pairs = {("model.mask", "causal", "window", text) for text in texts}
    pairs |= {("data.corpus", *texts, mask) for mask in ("causal", "window")}
    assert set(found[["setting", "before", "after", "held"]].itertuples(index=False, name=None)) == pairs
    assert set(found[found.quantity == "test_bits"].setting) == {"model.mask"}
    for name, table in tables.items():
        table.attrs["corpus"] = "letters" if "letters" in name else "figures, cleaned"
    assert set(runs.corpora(tables).values()) == {"letters", "figures, cleaned"}
    same = {name: table.assign_attrs(corpus_sha256="") for name, table in tables.items() if "letters" in name}
    assert runs.varied(runs.join(same, dict.fromkeys(same, BITS))) == ["model.mask"]


def test_seeds_become_dimensions_in_one_line():
    crossed = {f"weights_{w}_data_{d}": made(w, d) for w in (0, 1) for d in (3, 4, 5)}
    joined = runs.join(crossed, dict.fromkeys(crossed, BITS))
    seeds = joined.set_index(run=["condition", "train.seed", "train.data_seed"]).unstack("run")
    assert {name: seeds.sizes[name] for name in ("condition", "train.seed", "train.data_seed")} == {
        "condition": 1,
        "train.seed": 2,
        "train.data_seed": 3,
    }
    place = {"condition": "all seeds", "train.seed": 1, "train.data_seed": 4}
    np.testing.assert_array_equal(
        seeds.anisotropy.sel(place | {"statistic": "low"}).transpose("step", "positions", "layer"),
        crossed["weights_1_data_4"].anisotropy.sel(statistic="low"),
    )


def test_a_row_per_run_with_the_last_checkpoint_over_blocks(tables):
    joined = runs.join(tables, dict.fromkeys(tables, BITS))
    frame = runs.rows(tables, joined).set_index("run")
    assert list(frame.index) == list(tables)
    assert list(frame.step) == [10, 10, 5, 5]
    for name, table in tables.items():
        last = table.isel(step=-1)
        for suffix, positions in (("", "all"), ("_without_first", "without_first")):
            means = over_depth(last.anisotropy.sel(positions=positions, statistic="mean"))
            deviation = last.anisotropy_over_blocks.sel(positions=positions, statistic="std")
            assert frame.loc[name, f"anisotropy{suffix}"] == pytest.approx(means.item())
            assert frame.loc[name, f"anisotropy_std{suffix}"] == deviation.item()
            assert frame.loc[name, f"middle_less_ends{suffix}"] == pytest.approx(
                shapes(table).middle_less_ends.sel(positions=positions).item(), nan_ok=True
            )
    assert list(frame["model.sink"]) == [False, False, True, True]
    assert list(frame.test_bits) == [2.0] * 4


def folders(tables, to):
    for number, (name, table) in enumerate(tables.items()):
        files.write(table, to / name / "results.nc")
        lines = [
            {"step": s, "kind": k, "bits_per_character": b}
            for s, k, b in ((0, "valid", 7), (5, "valid", 3), (6, "train", 1))
        ]
        (to / name / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        (to / name / "test.json").write_text(json.dumps({"bits_per_character": 2.0 + number, "step": 6}))
    return {name: to / name for name in tables}


def test_tables_of_an_experiment_are_written_where_they_say_something(tmp_path):
    tables = {f"{kind}_{seed}": made(seed, model__sink=kind == "sink") for kind in ("plain", "sink") for seed in (0, 1)}
    where = folders(tables, tmp_path)
    (tmp_path / "sink_1" / "test.json").unlink()
    paths = on_disk.write(where, tmp_path, {})
    assert [path.name for path in paths] == ["runs.nc", "runs.csv", "layers.csv", "contrasts.csv"]
    frame = pd.read_csv(tmp_path / "runs.csv")
    last = tables["sink_0"].isel(step=-1).sel(statistic="mean", positions="without_first")
    row = frame[frame.run == "sink_0"].iloc[0]
    assert row.largest_anisotropy_without_first == pytest.approx(float(last.anisotropy[1:].max()))
    last = tables["sink_0"].isel(step=-1).sel(statistic="mean", positions="all")
    assert row.largest_attention_first == pytest.approx(float(last.attention_first.max()))
    np.testing.assert_array_equal(frame.test_bits, [2, 3, 4, np.nan])
    assert list(frame.valid_bits) == [3] * 4
    changes = pd.read_csv(tmp_path / "contrasts.csv")
    assert set(changes.before + " -> " + changes.after) == {"no sink -> sink"}
    rows, found = on_disk.read_runs(tmp_path)
    pd.testing.assert_frame_equal(rows, frame)
    assert set(found.held) == {""}
    pd.testing.assert_frame_equal(found.drop(columns="held"), changes.drop(columns="held"))
    assert list(files.read_table(paths[0]).run.values) == list(tables)
    assert not list(tmp_path.glob("*.tmp"))
    changes.drop(columns="pairs").to_csv(tmp_path / "contrasts.csv", index=False)  # as an earlier version wrote it
    with pytest.raises(RunError, match=r"contrasts\.csv has other columns .*; --stages=measure"):
        on_disk.read_runs(tmp_path)
    frame.rename(columns={"condition": "cell"}).to_csv(tmp_path / "runs.csv", index=False)
    with pytest.raises(RunError, match=r"runs\.csv has other columns"):
        on_disk.read_runs(tmp_path)


def test_runs_measured_without_the_spectrum_have_no_table_by_layer(tmp_path):
    tables = {f"run_{seed}": made(seed)[["gride"]].assign_attrs(made(seed).attrs) for seed in (0, 1)}
    paths = on_disk.write(folders(tables, tmp_path), tmp_path, {})
    assert [path.name for path in paths] == ["runs.nc", "runs.csv"]


def test_words_that_stand_for_nothing_elsewhere_are_words_here(tmp_path):
    """Variants named null and nan, a setting that is None in one of them, and a number that is missing."""
    tables = {f"{kind}_{seed}": made(seed) for kind in ("null", "nan") for seed in (0, 1)} | {
        "None": made(2),
        "NA": made(3),
    }
    for name, table in tables.items():
        config = json.loads(table.attrs["config"])
        config["evaluate"]["stride"] = 8 if name.startswith("nan") else None
        config["model"]["qk_norm"] = name == "NA"
        config["model"]["sink"] = name == "None"
        table.attrs["config"] = json.dumps(config)
    where = folders(tables, tmp_path)
    (where["NA"] / "test.json").unlink()
    on_disk.write(where, tmp_path, {})
    rows, found = on_disk.read_runs(tmp_path)
    assert list(rows.run) == list(tables)
    assert list(rows.condition) == ["null", "null", "nan", "nan", "None", "NA"]
    assert list(rows["evaluate.stride"]) == ["None", "None", "8", "8", "None", "None"]
    assert np.isnan(rows.test_bits.iloc[-1])
    assert rows.test_bits.notna().sum() == 5
    stride = found[found.setting == "evaluate.stride"]
    assert set(stride.before + " -> " + stride.after) == {"None -> 8"}
    assert not found[["setting", "before", "after", "held"]].isna().any(axis=None)
    assert np.isfinite(stride[stride.quantity == "middle_less_ends"].change).all()


def test_crossed_seeds_have_components_and_no_contrasts(tmp_path):
    tables = {f"weights_{w}_data_{d}": made(w, d) for w in (0, 1) for d in (0, 1)}
    (tmp_path / "contrasts.csv").write_text("of an experiment that had other runs")
    paths = on_disk.write(folders(tables, tmp_path), tmp_path, {})
    assert [path.name for path in paths] == ["runs.nc", "runs.csv", "layers.csv", "components.csv"]
    assert not (tmp_path / "contrasts.csv").exists()
    rows, found = on_disk.read_runs(tmp_path)
    assert len(rows) == 4
    assert found.empty
    assert contrasts(Compared({}, rows, found)) is None  # nothing to draw
    frame = pd.read_csv(paths[-1])
    assert {"test_bits", "middle_less_ends", "anisotropy"} <= set(frame.quantity)
    bits = frame[frame.quantity == "test_bits"].iloc[0]
    assert (bits["mean"], bits.weights_freedom) == (3.5, 1)
    assert bits.weights == pytest.approx(2)  # 2, 3; 4, 5: two apart between weight seeds, one between data seeds
    assert bits.data == pytest.approx(0.5)


def test_what_is_measured_besides_makes_no_condition():
    """As of a run that was measured again with more, and the others not yet."""
    more = {
        "measure__updates": True,
        "measure__families": ["spectrum"],
        "watch__every": 16,
        "watch__points": 99,
        "tangents__enabled": True,
    }
    assert runs.conditions({"plain_0": made(0, **more), "plain_1": made(1)}) == {"plain": ["plain_0", "plain_1"]}


def test_a_table_that_ends_before_its_training_is_in_no_contrast(tmp_path, capsys):
    tables = {f"plain_{seed}": made(seed) for seed in (0, 1, 2)}
    tables |= {f"sink_{seed}": made(seed, model__sink=True) for seed in (0, 1, 2)}
    tables["sink_1"] = tables["sink_1"].sel(step=slice(None, 1))
    on_disk.write(folders(tables, tmp_path), tmp_path, {})
    assert "left out of contrasts, as they are not measured to their last step: sink_1" in capsys.readouterr().out
    rows, found = on_disk.read_runs(tmp_path)
    growth = found[(found.quantity == "growth") & (found.positions == "all")].iloc[0]
    assert growth.pairs == 2
    assert growth.change == pytest.approx(0)
    assert list(rows.step) == [10, 10, 10, 10, 1, 10]


def test_contrasts_loss_matched_of_older_tables_are_not_taken(tmp_path, capsys):
    tables = {f"{kind}_{seed}": made(seed, model__sink=kind == "sink") for kind in ("plain", "sink") for seed in (0, 1)}
    where, named = (
        folders(tables, tmp_path),
        {"middle_less_ends": {"quantity": "middle_less_ends", "before": "plain", "after": "sink"}},
    )
    named["middle_less_ends"] |= {"at": "matched"}
    joined = runs.join(tables, {name: {} for name in tables})
    planned = loss_matched.plan(joined, dict.fromkeys(tables, 1.0))
    on_disk.write_loss_matched(
        planned, {(name, 1.0): table for name, table in tables.items()}, where, tmp_path, joined, named
    )
    on_disk.write(where, tmp_path, named)
    assert np.isfinite(on_disk.read_primary(tmp_path).change).all()
    files.write(tables["plain_0"].assign(anisotropy=tables["plain_0"].anisotropy / 2), where["plain_0"] / "results.nc")
    on_disk.write(where, tmp_path, named)
    assert on_disk.read_primary(tmp_path).change.isna().all()
    assert "--stages=matched reads them again" in capsys.readouterr().out
