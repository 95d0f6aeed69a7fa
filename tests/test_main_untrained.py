"""Untrained blocks as their users start them: processes, exit codes, files."""

import json
import shutil

import pytest

from anisoscope.results import joined_files
from tests.program import here

BIAS = "--config=experiments/untrained_bias.py"
SETTINGS = "width=16 heads=2 sequences=2 context=8 vocabulary=50 norms=0,1,10 seeds=2"
SMALL = [f"{BIAS}:tiny", *(f"--config.{setting}" for setting in SETTINGS.split())]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "bias"
    process = here(*SMALL, f"--workdir={workdir}")
    assert process.returncode == 0, process.stderr
    return workdir, process


def test_one_command_measures_and_draws(run):
    workdir, process = run
    assert "Warning" not in process.stderr
    table = joined_files.read_table(workdir / "results.nc")
    sizes = {"norm_order": 2, "mask": 1, "embedding": 1, "target": 1, "relative_norm": 3}
    assert dict(table.sizes) == {**sizes, "statistic": 4, "block": 1}
    assert joined_files.read_table(workdir / "seeds.nc").sizes["seed"] == 2
    assert json.loads((workdir / "config.json").read_text())["norms"] == [0, 1, 10]
    assert json.loads((workdir / "environment.json").read_text())["corpus"] is None
    assert f"figures: {workdir / 'figures'} (3, each as" in process.stdout
    for name in ("cosine", "norm", "sharpness"):
        for kind in ("png", "pdf"):
            path = workdir / "figures" / f"untrained_{name}.{kind}"
            assert path.stat().st_size > 1000


def test_the_same_command_again_does_nothing(run, tmp_path):
    workdir = shutil.copytree(run[0], tmp_path / "bias")
    before = {path: path.read_bytes() for path in workdir.rglob("*.nc")}
    process = here(*SMALL, f"--workdir={workdir}", "--stages=measure")
    assert "6 tables (0 now)" in process.stdout
    assert {path: path.read_bytes() for path in workdir.rglob("*.nc")} == before
