"""Names say what they are: no pronoun, no participle for a noun, and a file's name occurs once."""

import ast
import collections
import subprocess

from tests.program import ROOT

FORBIDDEN = {"one", "there", "those", "given", "wanted", "told", "beside", "turned", "seen"}
FORBIDDEN |= {"drawn", "said", "asked", "apart"}
REPEATED = {"__init__.py", "__main__.py", "conftest.py"}


def tracked(*patterns):
    listed = subprocess.run(
        ["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [ROOT / name for name in listed.stdout.splitlines()]


def names(tree):
    """Yield the names that a module gives to functions, classes, parameters and variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.id if isinstance(node, ast.Name) else node.attr


def unclear(name):
    parts = name.lower().strip("_").split("_")
    return parts[0] == "of" or bool(FORBIDDEN.intersection(parts))


def test_no_name_of_the_product_is_a_pronoun_or_a_participle():
    folders = ("anisoscope", "metrics", "models", "experiments", "benchmarks", "dev", "main.py")
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in tracked(*folders)
        if path.suffix == ".py" and not path.is_symlink()
        for name in names(ast.parse(path.read_text()))
        if unclear(name)
    }
    assert not found


def test_a_file_name_occurs_once():
    counts = collections.Counter(path.name for path in tracked("*.py"))
    assert {name for name, count in counts.items() if count > 1} <= REPEATED
