"""Names say what they are: no pronoun, no participle for a noun; a name has a single meaning."""

import ast
import collections
import subprocess

from tests.program import ROOT

FORBIDDEN = {"one", "there", "those", "given", "wanted", "told", "beside", "turned", "seen"}
FORBIDDEN |= {"drawn", "said", "asked", "apart"}
REPEATED = {"__init__.py", "__main__.py", "conftest.py"}
INTERFACES = {  # {name: (where several files define it, why)}
    "get_config": ("experiments/", "the command calls it of every experiment"),
    **dict.fromkeys(
        ("dry_run", "run", "verify"),
        ("anisoscope/cli/", "process.py calls it of either module of stages"),
    ),
}


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
    folders = (
        "anisoscope",
        "metrics",
        "models",
        "experiments",
        "benchmarks",
        "findings",
        "main.py",
    )
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


def definitions():
    """Collect the files that define each public function or class at module level."""
    found = collections.defaultdict(list)
    for path in tracked("anisoscope/*.py", "metrics/*.py", "models/*.py", "experiments/*.py"):
        file = path.relative_to(ROOT).as_posix()
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                found[node.name].append(file)
    return {name: files for name, files in found.items() if not name.startswith("_")}


def test_a_public_name_has_a_single_meaning():
    repeated = {}
    for name, files in definitions().items():
        others = files
        if name in INTERFACES:
            others = [file for file in files if not file.startswith(INTERFACES[name][0])]
            others.append(INTERFACES[name][0])
        if len(others) > 1:
            repeated[name] = files
    assert not repeated


def constants():
    """Collect the files that define each constant at module level."""
    found = collections.defaultdict(set)
    for path in tracked("anisoscope/*.py", "metrics/*.py", "models/*.py"):
        for node in () if path.is_symlink() else ast.parse(path.read_text()).body:
            targets = node.targets if isinstance(node, ast.Assign) else []
            targets = [node.target] if isinstance(node, ast.AnnAssign) else targets
            for name in (x for target in targets for x in ast.walk(target)):
                if isinstance(name, ast.Name) and name.id.isupper():
                    found[name.id].add(path.relative_to(ROOT).as_posix())
    return found


def test_a_constant_has_a_single_meaning():
    repeated = {name: files for name, files in constants().items() if len(files) > 1}
    assert not repeated


def test_the_interfaces_are_what_several_files_define():
    found = definitions()
    for name, (folder, why) in INTERFACES.items():
        assert why
        assert sum(file.startswith(folder) for file in found[name]) > 1, name
