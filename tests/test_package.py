"""The package as a whole: what may import what, what an import loads, what the public names
promise.
"""

import ast
import doctest
import graphlib
import importlib
import inspect
import pathlib
import subprocess
import sys
import typing

import pytest

import anisoscope
from anisoscope import api, metrics
from anisoscope.sources import arrays, two_arrays
from anisoscope.sources.recording import recorder as recording
from tests.program import ROOT

SUBPACKAGES = [
    *("utils", "config", "metrics", "models", "data", "training"),
    *("engine", "results", "sources", "subspaces", "analysis", "plot", "cli"),
]
LATE = ("jax", "flax", "optax", "orbax", "torch", "matplotlib", "xarray", "pandas", "scipy")
UNTYPED = (inspect.Signature.empty, typing.Any, "Any")
UNIX = ("fcntl", "resource", "pwd", "grp", "termios")


def sources() -> list[tuple[str, pathlib.Path]]:
    """Every file of the package, with its room."""
    folder = pathlib.Path(anisoscope.__file__).parent
    return [(room, path) for room in SUBPACKAGES for path in sorted((folder / room).rglob("*.py"))]


def imported(path: pathlib.Path, types: bool = True) -> set[str]:
    """Full names, of modules or of what is taken from them, also those for type checkers alone."""
    found, tree = set(), ast.parse(path.read_text())
    for node in () if types else ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: a relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_imports_go_one_way():
    wrong = []
    for room, path in sources():
        for name in imported(path):
            package, _, rest = name.partition(".")
            other = rest.partition(".")[0]
            later = other in SUBPACKAGES and SUBPACKAGES.index(other) > SUBPACKAGES.index(room)
            if package == "anisoscope" and (later or other == "experiments"):
                wrong.append(f"{path}: {name}")
    assert wrong == []


def test_no_files_import_one_another():
    """Not late either, inside of functions; what type checkers alone read may."""
    folder = pathlib.Path(anisoscope.__file__).parent
    files = {}
    for _, path in sources():
        name = ".".join(("anisoscope", *path.relative_to(folder).with_suffix("").parts))
        files[name.removesuffix(".__init__")] = path
    graph = {}
    for name, path in files.items():
        names = imported(path, types=False)
        names = {x if x in files else x.rpartition(".")[0] for x in names}
        graph[name] = names & files.keys()
    list(graphlib.TopologicalSorter(graph).static_order())  # or CycleError, with the circle


def test_libraries_stay_in_their_rooms():
    """Settings are read without JAX; metrics need JAX alone; torch is for pretrained models."""
    wrong, typed = [], ("api.py", "recorder.py")  # which name the types of torch alone
    for room, path in sources():
        for name in imported(path):
            library = name.partition(".")[0]
            allowed = {
                "jax": room not in ("config",),
                "flax": room == "models",
                "torch": "hf" in path.parts or path.name in typed,
                "transformers": "hf" in path.parts or path.name in typed,
                "orbax": path.name == "checkpoint.py",
                "matplotlib": room == "plot",
                "anisoscope": room != "metrics"
                or name.startswith("anisoscope.metrics")
                or name == "anisoscope.utils.compiled",  # what users call keeps its programs
            }
            if room == "plot" and name.startswith("anisoscope.training"):
                allowed["anisoscope"] = False  # figures are drawn from tables alone
            if not allowed.get(library, True):
                wrong.append(f"{path}: {name}")
    assert wrong == []


def run(code: str, *hidden: str, cwd: pathlib.Path = ROOT) -> str:
    """What a fresh Python prints in which these modules cannot be imported."""
    hide = f"import sys; sys.modules.update(dict.fromkeys({hidden!r}))\n"
    done = subprocess.run(
        [sys.executable, "-c", hide + code], capture_output=True, text=True, cwd=cwd, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_import_loads_nothing_and_a_metric_what_it_needs():
    loaded = f"print(sorted({{*{LATE}}} & {{*sys.modules}}))\n"
    code = f"import anisoscope\n{loaded}anisoscope.metrics.twonn\n{loaded}"
    assert run(code).splitlines() == ["[]", "['jax']"]


@pytest.mark.slow
def test_a_user_without_unix_training_and_figures_can_measure():
    """What the wheel's core does not install, and what Windows does not have."""
    code = """
import os
for name in ("geteuid", "getuid", "getgid", "fork"):
    if hasattr(os, name):
        delattr(os, name)
import numpy as np, anisoscope
x = np.random.default_rng(0).standard_normal((64, 4))
table = anisoscope.measure(x, families="similarity")
print(anisoscope.to_frame(table).metric[0], f"{float(anisoscope.metrics.anisotropy(x)):.1f}")
"""
    further = "flax optax orbax tensorflow_datasets absl h5netcdf matplotlib torch"
    assert run(code, *UNIX, *further.split()) == "mean_cosine 0.4\n"


def test_every_public_name_is_there_and_typed_without_any():
    for name in anisoscope.__all__:
        assert getattr(anisoscope, name) is not None
    functions = [getattr(metrics, name) for name in metrics.__all__]
    functions += [
        value
        for module in (api, arrays, recording, two_arrays)
        for name, value in vars(module).items()
        if name in anisoscope.__all__ and value.__module__ == module.__name__
    ]
    functions += [anisoscope.measure_points, anisoscope.measure_step, anisoscope.report]
    functions += [anisoscope.to_frame, anisoscope.to_text]
    functions += [*(getattr(anisoscope.plot, name) for name in anisoscope.plot.__all__)]
    assert len(functions) == len(metrics.__all__) + 12 + 7
    for function in functions:
        for parameter in inspect.signature(function).parameters.values():
            assert parameter.annotation not in UNTYPED, function
        assert inspect.signature(function).return_annotation not in UNTYPED, function
        text = inspect.getdoc(function)
        assert all(part in text for part in ("Args:", "Returns:")), function


# tested where models are
NEED_MODELS = ("measure_model", "compare_models", "open_run", "trainer_callback")


EXAMPLES = """metrics sources.arrays sources.two_arrays sources.point_table
    sources.recording.recorder sources.recording.measure_step results.frame results.text_table
    plot.one_table plot.report"""


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES.split())
def test_the_examples_of_the_docstrings_give_what_they_say(name, monkeypatch):
    monkeypatch.setenv("MPLBACKEND", "agg")
    monkeypatch.chdir(ROOT)
    module = importlib.import_module(f"anisoscope.{name}")
    found = [test for test in doctest.DocTestFinder().find(module) if test.examples]
    results = [
        doctest.DocTestRunner().run(test) for test in found if not test.name.endswith(NEED_MODELS)
    ]
    assert results
    assert not any(result.failed for result in results)


def test_every_public_function_has_an_example():
    functions = [
        getattr(anisoscope, name)
        for name in anisoscope.__all__
        if name not in anisoscope.SUBPACKAGES
    ]
    functions += [getattr(anisoscope.plot, name) for name in anisoscope.plot.__all__]
    assert [function for function in functions if ">>>" not in inspect.getdoc(function)] == []
