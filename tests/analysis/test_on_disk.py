"""Tables of an experiment on the disk: what is written, what comes back, and what is left out of
contrasts.
"""

import numpy as np
import pandas as pd
import pytest

from anisoscope.analysis import loss_matched, on_disk, run_summaries
from anisoscope.plot.experiment_figures import Compared, contrasts
from anisoscope.results import joined_files
from tests.analysis.run_tables import folders, made, sinks


def test_tables_of_an_experiment_are_written_where_they_say_something(tmp_path):
    tables = sinks((0, 1))
    where = folders(tables, tmp_path)
    (tmp_path / "sink_1" / "test.json").unlink()
    paths = on_disk.write(where, tmp_path, {})
    assert [path.name for path in paths] == ["runs.nc", "runs.csv", "layers.csv", "contrasts.csv"]
    frame = pd.read_csv(tmp_path / "runs.csv")
    last, row = (
        tables["sink_0"].isel(step=-1).sel(statistic="mean"),
        frame[frame.run == "sink_0"].iloc[0],
    )
    without_first = last.anisotropy.sel(positions="without_first")
    assert row.largest_anisotropy_without_first == pytest.approx(float(without_first[1:].max()))
    assert row.largest_attention_first == pytest.approx(
        float(last.attention_first.sel(positions="all").max())
    )
    np.testing.assert_array_equal(frame.test_bits, [2, 3, 4, np.nan])
    assert list(frame.valid_bits) == [3] * 4
    changes = pd.read_csv(tmp_path / "contrasts.csv")
    assert set(changes.before + " -> " + changes.after) == {"no sink -> sink"}
    rows, found = on_disk.read_runs(tmp_path)
    pd.testing.assert_frame_equal(rows, frame)
    assert set(found.held) == {""}
    pd.testing.assert_frame_equal(found.drop(columns="held"), changes.drop(columns="held"))
    assert list(joined_files.read_table(paths[0]).run.values) == list(tables)
    assert not list(tmp_path.glob("*.tmp"))


def test_runs_measured_without_the_spectrum_have_no_table_by_layer(tmp_path):
    tables = {
        f"run_{seed}": made(seed)[["gride"]].assign_attrs(made(seed).attrs) for seed in (0, 1)
    }
    paths = on_disk.write(folders(tables, tmp_path), tmp_path, {})
    assert [path.name for path in paths] == ["runs.nc", "runs.csv"]


def test_words_that_stand_for_nothing_elsewhere_are_words_here(tmp_path):
    """Variants named null and nan, a setting that is None in one of them, and a number that is
    missing.
    """
    seeds = {"null_0": 0, "null_1": 1, "nan_0": 0, "nan_1": 1, "None": 2, "NA": 3}
    tables = {}
    for name, seed in seeds.items():
        stride = 8 if name.startswith("nan") else None
        tables[name] = made(
            seed, evaluate__stride=stride, model__qk_norm=name == "NA", model__sink=name == "None"
        )
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
    # 2, 3; 4, 5: two apart between weight seeds, one between data seeds
    assert bits.weights == pytest.approx(2)
    assert bits.data == pytest.approx(0.5)


def test_a_table_that_ends_before_its_training_is_in_no_contrast(tmp_path, capsys):
    tables = sinks((0, 1, 2))
    tables["sink_1"] = tables["sink_1"].sel(step=slice(None, 1))
    on_disk.write(folders(tables, tmp_path), tmp_path, {})
    assert (
        "left out of contrasts, as they are not measured to their last step: sink_1"
        in capsys.readouterr().out
    )
    rows, found = on_disk.read_runs(tmp_path)
    growth = found[(found.quantity == "growth") & (found.positions == "all")].iloc[0]
    assert growth.pairs == 2
    assert growth.change == pytest.approx(0)
    assert list(rows.step) == [10, 10, 10, 10, 1, 10]


def test_contrasts_loss_matched_of_older_tables_are_not_taken(tmp_path, capsys):
    tables = sinks((0, 1))
    where, joined = (
        folders(tables, tmp_path),
        run_summaries.join(tables, {name: {} for name in tables}),
    )
    named = {
        "it": {"quantity": "middle_less_ends", "before": "plain", "after": "sink", "at": "matched"}
    }
    planned = loss_matched.plan(joined, dict.fromkeys(tables, 1.0))
    at_level = {(name, 1.0): table for name, table in tables.items()}
    on_disk.write_loss_matched(planned, at_level, where, tmp_path, joined, named)
    on_disk.write(where, tmp_path, named)
    assert np.isfinite(on_disk.read_primary(tmp_path).change).all()
    joined_files.write(
        tables["plain_0"].assign(anisotropy=tables["plain_0"].anisotropy / 2),
        where["plain_0"] / "results.nc",
    )
    on_disk.write(where, tmp_path, named)
    assert on_disk.read_primary(tmp_path).change.isna().all()
    assert "--stages=matched reads them again" in capsys.readouterr().out
