import json
import shutil

import numpy as np
import pytest

from anisoscope.results import join, joined_files
from anisoscope.sources import run_source, sweep
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.processes import Stop
from anisoscope.utils.settings import replace
from tests import tiny
from tests.sources.swept import exchanged, measured


def test_tables_that_are_up_to_date_are_neither_read_nor_written(tables, monkeypatch):
    """If an input or a file has changed, they are joined again."""
    folder, config = tables
    work = []

    def count(module, name):
        real = getattr(module, name)
        monkeypatch.setattr(module, name, lambda *x: (work.append(name), real(*x))[1])

    count(join, "write_joined")
    count(joined_files, "read_table")
    measured(config, folder)
    assert work == []
    log, csv = folder / "train.jsonl", folder / "results.csv"
    table = joined_files.read_table(folder / "measurements" / "2.nc").assign_coords(step=4)
    for change in (
        csv.unlink,
        lambda: log.write_bytes(log.read_bytes().replace(b'"bits_per_character"', b'"other"')),
        lambda: joined_files.write_table(table, folder / "measurements" / "4.nc"),
    ):
        change()
        measured(config, folder)
        assert work.count("write_joined") == 1
        work.clear()
        measured(config, folder)
        assert work == []
    results = joined_files.read_table(folder / "results.nc")
    assert "validation_bits" not in results
    np.testing.assert_array_equal(results.anisotropy.sel(step=4), results.anisotropy.sel(step=2))
    assert csv.exists()


def test_other_settings_are_refused_before_any_work(tables):
    other = replace(tiny.config(), {"measure.points": 24})
    with pytest.raises(UserError, match=r"measure\.points=16 there, 24 now"):
        run_source.check_measurable(other, tiny.corpus(), tables[0])


def test_a_table_is_measured_again_when_its_checkpoint_has_changed(tables, capsys):
    folder, config = tables
    exchanged(folder, 4, 2)
    shutil.rmtree(folder / "checkpoints" / "5")
    capsys.readouterr()
    measured(config, folder)
    said = capsys.readouterr().out
    assert "run: measured again, since a checkpoint has changed: step 4\n" in said
    assert "(1 now)" in said
    table = joined_files.read_table(folder / "results.nc")
    np.testing.assert_array_equal(table.anisotropy.sel(step=4), table.anisotropy.sel(step=2))
    measured(config, folder)
    assert "(0 now)" in capsys.readouterr().out


def test_steps_that_nothing_is_known_of_are_named(run, capsys):
    folder, config = run
    for step in (0, 5):
        shutil.rmtree(folder / "checkpoints" / str(step))
    measured(config, folder)
    said = capsys.readouterr().out
    assert "run: neither checkpoint nor table: steps 0, 5\n" in said
    assert "run: without step 0 there is no excess over the untrained network\n" in said
    excess = joined_files.read_table(folder / "results.nc").anisotropy_excess
    assert np.isnan(excess.sel(null="untrained")).all()


def test_a_table_in_the_place_of_another_is_refused_and_nothing_is_written(tables):
    """Of another step, of another run, and of something else than the residual stream."""
    folder, config = tables
    here, whole = folder / "measurements", (folder / "results.nc").read_bytes()
    shutil.rmtree(folder / "checkpoints" / "4")  # nothing can be measured again
    own = joined_files.read_table(here / "4.nc")
    other = json.loads(own.attrs["config"])
    other["train"]["seed"] += 1
    for table, why in (
        (joined_files.read_table(here / "2.nc"), "of step 2, not of step 4"),
        (own.assign_attrs(config=json.dumps(other)), r"of another run, with train\.seed=1"),
        (own.assign_attrs(hook_point="values"), "of values, not of the residual stream"),
        (own.drop_vars("step"), r"of step \?, not of step 4"),
        (own.assign_attrs(early_proxies="{}"), "of tangents, not of the residual stream"),
    ):
        joined_files.write_table(table, here / "4.nc")
        with pytest.raises(RunError, match=rf"4\.nc says that it is {why}; move it to its place"):
            measured(config, folder)
        assert (folder / "results.nc").read_bytes() == whole
    joined_files.write_table(own, here / "4.nc")
    measured(config, folder)


def test_parts_of_the_steps_are_joined_by_the_sweep_of_all(tables, capsys):
    folder, config = tables
    whole = (folder / "results.nc").read_bytes()
    shutil.rmtree(folder / "measurements")
    (folder / "results.nc").unlink()
    with Stop() as stop:
        for part, steps in ((slice(0, None, 2), {0, 2, 5}), (slice(1, None, 2), {1, 4, 6})):
            source = run_source.open_run_source(config, tiny.corpus(), folder, "run")
            before = {*folder.glob("measurements/*.nc")}
            sweep.measure_steps(source, stop, part)
            made = {int(path.stem) for path in {*folder.glob("measurements/*.nc")} - before}
            assert made == steps
    assert "run: 3 of 6 checkpoints measured (3 now); the same command" in capsys.readouterr().out
    assert not (folder / "results.nc").exists()
    measured(config, folder)
    assert "6 checkpoints measured (0 now)" in capsys.readouterr().out
    assert (folder / "results.nc").read_bytes() == whole
