"""The wheel as users have it: an environment for each extra, outside of the checkout.

`make test-installs` runs this, two environments at a time; tests/test_extras.py is the quick one.
"""

import os
import re
import subprocess
import sys
import zipfile

import pytest

import anisoscope
from tests.program import ROOT

pytestmark = pytest.mark.slow
CALLS = ROOT / "tests" / "installed_calls.py"
PINS = ROOT / "tests" / "requirements-pretrained.txt"
EXTRAS = ("all", "train", "pretrained", "core", "plots", "files")  # the longest first


def run(*command, cwd):
    """Return what it prints, without this checkout on the path."""
    left_out = ("PYTHONPATH", "XLA_FLAGS")
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    done = subprocess.run(
        list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build the wheel from the sdist, as a package index would."""
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", folder, ROOT, cwd=folder)
    assert len(list(folder.glob("*.tar.gz"))) == 1
    return next(folder.glob("*.whl"))


def test_the_wheel_puts_one_name_into_site_packages_and_holds_all_of_the_package(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"anisoscope"}
    tracked = run("git", "ls-files", cwd=ROOT).split()
    inside = [
        name for name in tracked if name.startswith("anisoscope/") and (ROOT / name).is_file()
    ]
    inside += [
        f"anisoscope/{name}"
        for name in tracked
        if name.startswith(("models/", "metrics/", "experiments/"))
    ]
    assert set(inside) <= set(names)


@pytest.mark.parametrize("extra", EXTRAS)
def test_what_an_extra_serves_works_where_it_alone_is_installed(extra, wheel, tmp_path):
    """In a folder with packages of the user's own that have our names."""
    for name in ("data", "models", "tables", "metrics", "experiments"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('a decoy')\n")
    run(sys.executable, "-m", "venv", "--without-pip", "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "--no-compile"]
    what = wheel if extra == "core" else f"{wheel}[{extra}]"
    run(*pip, "-c", PINS, what, cwd=tmp_path)
    run(python, "-P", CALLS, extra, cwd=tmp_path)


def test_every_public_function_is_called():
    called = set(re.findall(r"\banisoscope\.((?:plot\.)?\w+)", CALLS.read_text()))
    public = {*anisoscope.__all__, *(f"plot.{name}" for name in anisoscope.plot.__all__)}
    assert public - called - {"plot"} == set()
