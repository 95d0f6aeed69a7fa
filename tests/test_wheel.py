"""The wheel as a user has it: installed into a fresh environment, used in a folder of their own."""

import pathlib
import subprocess
import sys
import zipfile

import pytest

import anisoscope
from tests.program import ROOT, environment

# the quick one: tests/test_package.py; this one needs the package index
pytestmark = pytest.mark.slow
MEASURE = """
import numpy as np, anisoscope
x = np.random.default_rng(0).standard_normal((128, 8))
table = anisoscope.measure(x, clusters=np.arange(128) // 8, families="similarity")
print(anisoscope.__file__, "mean_cosine" in table, anisoscope.metrics.twonn(x) > 0)
"""


def called(*command, cwd):
    """What it prints; without this checkout on the path."""
    env = {name: value for name, value in environment().items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from the sdist, as a package index would."""
    folder = tmp_path_factory.mktemp("dist")
    called(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    assert len(list(folder.glob("*.tar.gz"))) == 1
    return next(folder.glob("*.whl"))


def test_the_wheel_puts_one_name_into_site_packages_and_holds_all_of_the_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"anisoscope"}
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    inside = [
        name for name in tracked if name.startswith("anisoscope/") and (ROOT / name).is_file()
    ]
    inside += [
        f"anisoscope/{name}"
        for name in tracked
        if name.startswith(("models/", "metrics/", "experiments/"))
    ]
    assert set(inside) <= set(names)


def test_a_fresh_environment_in_a_folder_with_decoys(wheel, tmp_path):
    for name in ("data", "models", "tables", "metrics", "experiments"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('a decoy')\n")
    called(sys.executable, "-m", "venv", tmp_path / "venv", cwd=tmp_path)
    bin_ = tmp_path / "venv" / "bin"
    install = [
        bin_ / "python",
        "-m",
        "pip",
        "install",
        "-q",
        "--no-compile",
        "-c",
        ROOT / "constraints.txt",
    ]
    called(*install, wheel, cwd=tmp_path)  # the core alone
    where, *said = called(bin_ / "python", "-c", MEASURE, cwd=tmp_path).split()
    assert pathlib.Path(where).is_relative_to(tmp_path / "venv")
    assert said == ["True", "True"]
    called(*install, f"{wheel}[train,plots]", cwd=tmp_path)
    version = called(bin_ / "anisoscope", "--version", cwd=tmp_path)
    assert version == f"anisoscope {anisoscope.__version__}\n"
    assert "--config=decoder_small" in called(bin_ / "anisoscope", "--list", cwd=tmp_path)
    settings = "data.source=pydoc train.steps=1 train.batch_size=4 model.layers=1 model.width=16"
    settings += " model.heads=2 model.context=16 evaluate.windows=8 measure.points=64"
    settings += " measure.batches=1 measure.families=similarity measure.nulls="
    flags = [f"--config.{setting}" for setting in settings.split()]
    experiment = "--config=experiments/decoder_small.py:tiny"
    called(bin_ / "python", "-m", "anisoscope", experiment, *flags, cwd=tmp_path)
    assert (tmp_path / "runs" / "decoder_small_tiny" / "figures" / "training_curve.png").exists()
