import json

import pytest

import stages
from tables import files
from tests import tiny
from tests.figures.tables import make_run
from workdir.errors import UserError
from workdir.folder import claim
from workdir.settings import replace


@pytest.fixture
def folder(tmp_path):
    """A run's folder as far as figures read it."""
    run, path = make_run(steps=(0, 1), layers=2, heads=1, batches=2, groups=2, nulls=()), tmp_path / "run"
    files.write(run.results, path / "results.nc")
    files.write(run.batches, path / "batches.nc")
    (path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run.log))
    (path / "environment.json").write_text("{}")
    return path


@pytest.mark.parametrize("name", ["measurements", "measurements_old"])
def test_tables_that_were_moved_away_are_no_run(folder, name):
    (folder / name).mkdir()
    (folder / name / "config.json").write_text("{}")
    assert stages.load(folder).results.sizes["step"] == 2


def test_a_folder_of_runs_is_named_with_them(folder):
    with pytest.raises(UserError, match=r"holds the runs run; name one of them: .*/run$"):
        stages.load(folder.parent)


def test_auto_becomes_the_type_the_run_began_with_or_that_of_this_machine(tmp_path):
    config = replace(tiny.config(), {"model.dtype": "auto"})
    assert stages.resolved(config, tmp_path).model.dtype == "float32"
    claim(tmp_path / "run", replace(config, {"model.dtype": "bfloat16"}), new=True)
    assert stages.resolved(config, tmp_path / "run").model.dtype == "bfloat16"
