"""Untrained blocks as their users start them: processes, exit codes, files."""

import dataclasses
import json
import shutil

import pytest

from anisoscope.cli import untrained_stages
from anisoscope.config.untrained_config import UntrainedConfig
from anisoscope.experiments import quickstart
from anisoscope.results import joined_files
from anisoscope.utils import folder
from anisoscope.utils.errors import UserError
from tests.program import asked, here

BIAS = "--config=experiments/untrained_bias.py"
SETTINGS = "width=16 heads=2 sequences=2 context=8 vocabulary=50 norms=0,1,10 seeds=2"
SMALL = [f"{BIAS}:tiny", *(f"--config.{setting}" for setting in SETTINGS.split())]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "bias"
    process = here(*SMALL, f"--workdir={workdir}")
    assert process.returncode == 0, process.stderr
    return workdir, process


def files_of(workdir):
    """Content of all tables, and when those that are joined were measured."""
    paths = [path for path in workdir.rglob("*") if path.suffix in (".nc", ".csv")]
    return {
        path: (path.read_bytes(), path.parent != workdir and path.stat().st_mtime_ns)
        for path in paths
    }


def test_one_command_measures_and_draws(run):
    workdir, process = run
    assert "Warning" not in process.stderr
    assert "6/6" in process.stderr  # the progress bar
    table = joined_files.read_table(workdir / "results.nc")
    assert dict(table.sizes) == {
        **{"norm_order": 2, "mask": 1, "embedding": 1, "target": 1},
        **{"relative_norm": 3, "statistic": 4, "block": 1},
    }
    assert joined_files.read_table(workdir / "seeds.nc").sizes["seed"] == 2
    assert json.loads((workdir / "config.json").read_text())["norms"] == [0, 1, 10]
    assert json.loads((workdir / "environment.json").read_text())["corpus"] is None
    assert f"figures: {workdir / 'figures'} (3, each as" in process.stdout
    for name in ("cosine", "norm", "sharpness"):
        for kind in ("png", "pdf"):
            path = workdir / "figures" / f"untrained_{name}.{kind}"
            assert path.stat().st_size > 1000


@pytest.fixture
def again(run, tmp_path):
    """Measure in a copy of the run's folder, here: the tests above say what the program makes of
    what is raised.
    """
    workdir = tmp_path / "bias"
    shutil.copytree(run[0], workdir)
    config = UntrainedConfig(**json.loads((workdir / "config.json").read_text()))
    tuples = {
        name: tuple(value)
        for name, value in dataclasses.asdict(config).items()
        if isinstance(value, list)
    }

    def measure(stages_wanted=("measure",), **changes):
        changed = dataclasses.replace(config, **tuples | changes)
        untrained_stages.run(changed, asked(workdir, *stages_wanted, title="bias"))

    return workdir, measure


def test_the_same_command_again_does_nothing(again, capsys):
    workdir, measure = again
    before = files_of(workdir)
    measure()
    assert "6 tables (0 now)" in capsys.readouterr().out
    assert files_of(workdir) == before


def test_an_occupied_folder_is_refused(again):
    workdir, measure = again
    before = files_of(workdir)
    for wanted in ("measure", "figures"):
        with pytest.raises(UserError, match="seed=0 there, 1 now"):
            measure([wanted], seed=1)
        assert files_of(workdir) == before
    with pytest.raises(UserError, match="holds a run with other settings"):
        folder.claim(workdir, quickstart.get_config(), new=True)
    assert files_of(workdir) == before
