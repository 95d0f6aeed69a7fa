"""What an extra of pyproject.toml does not install is not imported by what it serves.

Other libraries are hidden from a fresh Python. tests/test_installs.py installs each extra instead.
"""

import importlib.metadata
import importlib.util
import subprocess
import sys
import tomllib

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from anisoscope.utils.extras import EXTRAS
from tests.program import ROOT

HIDE = """
import importlib.machinery, sys
class Visible(importlib.machinery.PathFinder):  # as if hidden libraries were not there
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        hides = name.partition(".")[0] in hidden
        return None if hides else super().find_spec(name, path, target)
sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Visible
import contextlib, io
import anisoscope, importlib
def lacks(extra, call):
    try:
        call()
    except ImportError as error:
        assert f'pip install "anisoscope[{extra}]"' in str(error), error
        assert "\\n" not in str(error)
    else:
        raise AssertionError(f"nothing is lacking without {extra}")
def load(*names):
    for name in names:
        importlib.import_module(f"anisoscope.{name}")
def command(*flags):
    from anisoscope.cli import process
    with contextlib.redirect_stderr(io.StringIO()) as errors, contextlib.redirect_stdout(errors):
        return process.main(["anisoscope", *flags]), errors.getvalue()
"""
SERVES = {
    "core": """
for name in {*anisoscope.__all__} - {"plot", "report"}:
    getattr(anisoscope, name)
load("sources.array_chunks", "sources.recording.recorder")
assert [command(flag)[0] for flag in ("--help", "--version", "--list")] == [0, 0, 0]
code, error = command("--config=quickstart", "--workdir=/nowhere/run")
assert code == 2 and 'pip install "anisoscope[' in error and error.count("\\n") == 1, error
lacks("plots", lambda: anisoscope.plot)
lacks("plots", lambda: anisoscope.report)
load("cli.measure_file", "sources.vector_files")
open(f"{sys.argv[1]}/a.parquet", "w").close()
code, error = command("measure", f"{sys.argv[1]}/a.parquet")
assert code == 2 and error.endswith("pip install pyarrow\\n") and error.count("\\n") == 1, error
lacks("pretrained", lambda: anisoscope.measure_model("gpt2", ["a text"]))
lacks("pretrained", lambda: anisoscope.compare_models("gpt2", "gpt2", ["a text"]))
lacks("pretrained", lambda: anisoscope.trainer_callback(["h"], "steps"))
lacks("train", lambda: anisoscope.open_run("."))
lacks("files", lambda: anisoscope.record(len, to="a.nc"))
for name, start in {"a.safetensors": b"", "a.nc": b"\\x89HDF"}.items():
    with open(f"{sys.argv[1]}/{name}", "wb") as file:
        file.write(start)
    lacks("files", lambda: anisoscope.measure(f"{sys.argv[1]}/{name}"))
""",
    "files": 'load("sources.vector_files"); import h5netcdf, h5py, safetensors',
    "plots": "anisoscope.plot.by_layer, anisoscope.report; from plotly.io import to_html",
    "train": 'load("sources.finished_run", "cli.training_stages", "cli.untrained_stages")',
    "pretrained": """
load(*(f"sources.hf.{name}" for name in ("measure_model", "two_pretrained", "trainer_callback")))
load("sources.hf.recorder_hooks", "sources.hf.gguf_file")
lacks("train", lambda: anisoscope.open_run("."))
lacks("plots", lambda: anisoscope.plot)
""",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def installed_by(extra: str) -> set[str]:
    """Names of all distributions that the core and an extra install, where they are here."""
    todo = [Requirement(text) for text in PROJECT["dependencies"]]
    todo += [Requirement(f"anisoscope[{extra}]")] * (extra != "core")
    found, done = set(), set()
    while todo:
        requirement = todo.pop()
        name, extras = canonicalize_name(requirement.name), {"", *requirement.extras}
        if (name, *extras) in done:
            continue
        done.add((name, *extras))
        if name == "anisoscope":
            own = PROJECT["optional-dependencies"]
            todo += [Requirement(text) for x in requirement.extras for text in own[x]]
            continue
        found.add(name)
        try:
            lines = importlib.metadata.requires(name) or []
        except importlib.metadata.PackageNotFoundError:
            continue
        for further in map(Requirement, lines):
            if not further.marker or any(further.marker.evaluate({"extra": x}) for x in extras):
                todo.append(further)
    return found


@pytest.mark.parametrize("extra", SERVES)
def test_what_an_extra_serves_needs_nothing_else(extra, tmp_path):
    if not all(map(importlib.util.find_spec, EXTRAS.get(extra, ()))):
        pytest.skip("needs the environment of make test-pretrained")
    installed = installed_by(extra)
    hidden = {
        module
        for module, owners in importlib.metadata.packages_distributions().items()
        if not {*map(canonicalize_name, owners)} & {*installed, "anisoscope"}
    }
    assert ("matplotlib" in hidden) == (extra not in ("plots", "train"))
    code = f"hidden = {hidden!r}\n{HIDE}{SERVES[extra]}"
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_every_library_of_an_extra_is_known_by_the_name_it_is_imported_under():
    """So that the line about a missing one names the extra that installs it."""
    modules = {name: extra for extra, names in EXTRAS.items() for name in names}
    assert len(modules) == sum(map(len, EXTRAS.values()))
    owners = importlib.metadata.packages_distributions()
    for extra, requirements in PROJECT["optional-dependencies"].items():
        for requirement in map(Requirement, requirements):
            names = [
                module
                for module, found in owners.items()
                if canonicalize_name(requirement.name) in map(canonicalize_name, found)
            ]
            if requirement.name != "anisoscope" and names:
                assert extra in [modules.get(name) for name in names], requirement
