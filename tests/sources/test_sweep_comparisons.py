import shutil

import numpy as np
import pytest

from anisoscope.results import joined_files
from anisoscope.sources import run_source, sweep
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace
from tests import tiny
from tests.sources.swept import VALUE, exchanged, measured


def comparing(config):
    return replace(config, {"measure.families": ("comparison",), "measure.nulls": ()})


def test_checkpoints_are_compared_with_the_one_before_and_the_last(run):
    folder, config = run
    measured(comparing(config), folder)
    table = joined_files.read_table(folder / "results.nc")
    for name in ("cka", "neighbor_overlap"):
        last, previous = (table[f"{name}_{which}"].sel(VALUE) for which in ("last", "previous"))
        np.testing.assert_allclose(last.sel(step=6), 1.0, rtol=1e-5)
        # symmetric but for rounding
        np.testing.assert_allclose(last.sel(step=5), previous.sel(step=6), rtol=1e-6)
        assert np.isnan(previous.sel(step=0)).all()
        assert np.isfinite(previous.sel(step=[1, 2, 4, 5, 6])).all()
        assert (last.sel(step=0) < 0.999).any()
    assert (table.neighbor_overlap_last.sel(VALUE).sel(step=6) == 1).all()
    assert table.previous_step.values.tolist() == [-1, 0, 1, 2, 4, 5]
    shutil.rmtree(folder / "checkpoints" / "6")
    shutil.rmtree(folder / "measurements")
    with pytest.raises(UserError, match="needs the checkpoint of the last step, 6"):
        measured(comparing(config), folder)


def test_measuring_again_a_part_of_the_checkpoints_gives_the_same_bytes(run):
    folder, config = run
    measured(comparing(config), folder)
    whole = {path.name: path.read_bytes() for path in folder.rglob("*.nc")}
    for name in ("0.nc", "2.nc"):
        (folder / "measurements" / name).unlink()
    measured(comparing(config), folder)
    assert {path.name: path.read_bytes() for path in folder.rglob("*.nc")} == whole


@pytest.mark.slow
def test_comparisons_are_measured_again_when_what_they_compare_with_has_changed(run, capsys):
    folder, config = run
    config = comparing(config)
    measured(config, folder)
    exchanged(folder, 2, 1)
    with pytest.raises(UserError, match=r"2\.nc does not exist or is outdated"):
        sweep.check_measured(run_source.open_run_source(config, tiny.corpus(), folder, "run"))
    measured(config, folder)
    sweep.check_measured(run_source.open_run_source(config, tiny.corpus(), folder, "run"))
    assert "measured again, since a checkpoint has changed: steps 2, 4\n" in capsys.readouterr().out
    kept = shutil.copytree(folder / "checkpoints" / "4", folder / "kept")
    for step in (0, 4):
        shutil.rmtree(folder / "checkpoints" / str(step))
    exchanged(folder, 6, 5)
    measured(config, folder)
    said = capsys.readouterr().out
    assert "run: measured again, since a checkpoint has changed: steps 1, 2, 5, 6\n" in said
    assert "but its own checkpoint is gone: steps 0, 4\n" in said
    table = joined_files.read_table(folder / "results.nc")
    np.testing.assert_allclose(table.cka_last.sel(VALUE).sel(step=5), 1.0, rtol=1e-5)
    assert table.previous_step.sel(step=5) == 2
    shutil.copytree(kept, folder / "checkpoints" / "4")  # it is there again
    measured(config, folder)
    said = capsys.readouterr().out
    assert "since a nearer checkpoint to compare with is there: step 5\n" in said


def test_hook_points_need_a_family_of_single_clouds():
    chosen = replace(tiny.config(), {"measure.hook_points": ("values",)}).measure
    sweep.check_hook_points(chosen)
    with pytest.raises(UserError, match="add a family such as spectrum"):
        sweep.check_hook_points(replace(chosen, {"families": ("comparison", "attention")}))
