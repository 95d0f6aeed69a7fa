"""Tables of an experiment on the disk: what is written, what comes back, and what is left out of
contrasts.
"""

import numpy as np
import pandas as pd
import pytest

from anisoscope.analysis import on_disk
from anisoscope.results import joined_files
from tests.analysis.synthetic_runs import folders, made, sinks


def written(tables, folder, named=None):
    paths = on_disk.write_experiment(folders(tables, folder), folder, named or {})
    return [path.name for path in paths]


def test_tables_of_an_experiment_are_written_where_they_say_something(tmp_path):
    tables = sinks((0, 1))
    where = folders(tables, tmp_path)
    (where["sink_1"] / "test.json").unlink()
    paths = on_disk.write_experiment(where, tmp_path, {})
    assert [path.name for path in paths] == [
        *("runs.nc", "runs.csv", "layers.csv", "contrasts.csv"),
        "contrasts_loss_matched.csv",
    ]
    rows, found = on_disk.read_runs(tmp_path)
    last = tables["sink_0"].isel(step=-1).sel(statistic="mean")
    row = rows.set_index("run").loc["sink_0"]
    peak = last.anisotropy.sel(positions="without_first_token")[1:].max()
    assert row.largest_anisotropy_without_first_token == pytest.approx(float(peak))
    first = last.attention_first_token.sel(positions="all").max()
    assert row.largest_attention_first_token == pytest.approx(float(first))
    np.testing.assert_array_equal(rows.test_bits, [2, 3, 4, np.nan])
    assert list(rows.valid_bits) == [3] * 4
    assert set(found.before + " -> " + found.after) == {"no sink -> sink"}
    assert set(found.held) == {""}
    changes = pd.read_csv(tmp_path / "contrasts.csv").drop(columns="held")
    pd.testing.assert_frame_equal(found.drop(columns="held"), changes)
    assert list(joined_files.read_table(paths[0]).run.values) == list(tables)
    assert on_disk.why_outdated(tmp_path, on_disk.RUNS_CSV, where) == ""
    score = where["sink_0"] / "test.json"
    before = score.read_text()
    score.write_text(before.replace("4.0", "9.0"))
    assert "is outdated" in on_disk.why_outdated(tmp_path, on_disk.RUNS_CSV, where)
    score.write_text(before)
    assert on_disk.why_outdated(tmp_path, on_disk.RUNS_CSV, where) == ""
    joined_files.write_table(made(9), where["sink_1"] / "results.nc")
    assert "run --stages=measure again" in on_disk.why_outdated(tmp_path, on_disk.RUNS_CSV, where)


def test_tables_that_are_up_to_date_are_not_written_again(tmp_path, monkeypatch):
    tables, work, real = sinks((0,)), [], joined_files.write_csv
    where = folders(tables, tmp_path)
    run = where["sink_0"]
    monkeypatch.setattr(
        joined_files, "write_csv", lambda frame, path: (work.append(path.name), real(frame, path))
    )

    def write():
        work.clear()
        on_disk.write_run("sink_0", run)
        on_disk.write_experiment(where, tmp_path, {})
        return [*work]

    experiment = ["runs.csv", "layers.csv", "contrasts.csv", on_disk.LOSS_MATCHED_CSV]
    assert write() == ["correlations.csv", *experiment]
    assert write() == []
    (tmp_path / "layers.csv").unlink()
    assert write() == experiment
    (run / "correlations.csv").write_text("altered")
    assert write() == ["correlations.csv"]
    log = run / "train.jsonl"
    log.write_text(log.read_text().replace("3", "4"))
    assert write() == experiment
    joined_files.write_table(tables["sink_0"].assign_attrs(note="new"), run / "results.nc")
    assert write() == ["correlations.csv", *experiment]


def test_tables_that_a_kill_left_half_written_are_outdated(tmp_path, monkeypatch):
    where = folders(sinks((0,)), tmp_path)
    on_disk.write_experiment(where, tmp_path, {})
    assert on_disk.why_outdated(tmp_path, on_disk.RUNS_CSV, where) == ""
    (tmp_path / "layers.csv").unlink()

    def kill(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(joined_files, "write_csv", kill)
    with pytest.raises(KeyboardInterrupt):
        on_disk.write_experiment(where, tmp_path, {})
    assert "is outdated" in on_disk.why_outdated(tmp_path, on_disk.RUNS_CSV, where)


def test_runs_of_one_condition_have_no_contrasts(tmp_path):
    tables = {f"weights_{w}_data_{d}": made(w, d) for w in (0, 1) for d in (0, 1)}
    (tmp_path / "contrasts.csv").write_text("of an experiment that had other runs")
    assert written(tables, tmp_path) == ["runs.nc", "runs.csv", "layers.csv"]
    assert not (tmp_path / "contrasts.csv").exists()
    rows, found = on_disk.read_runs(tmp_path)
    assert (len(rows), len(found)) == (4, 0)


def test_a_table_that_ends_before_its_training_is_in_no_contrast(tmp_path, capsys):
    tables = sinks((0, 1, 2))
    tables["sink_1"] = tables["sink_1"].sel(step=slice(None, 1))
    written(tables, tmp_path)
    assert "not measured to their last step: sink_1" in capsys.readouterr().out
    rows, found = on_disk.read_runs(tmp_path)
    growth = found[(found.quantity == "growth") & (found.positions == "all")].iloc[0]
    assert growth.pairs == 2
    assert growth.change == pytest.approx(0)
    assert list(rows.step) == [10, 10, 10, 10, 1, 10]
