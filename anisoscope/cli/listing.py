"""The experiments that there are, each with a line and its expected cost: read from their files, which are not run."""

import ast
import contextlib
import pathlib
from collections.abc import Iterator
from typing import NamedTuple

from anisoscope.cli.flags import EXPERIMENTS


class Entry(NamedTuple):
    path: pathlib.Path
    words: str  # the first line of the file's docstring
    cost: dict[str, str]  # by size: what COST in the file says


def entries(folder: pathlib.Path = EXPERIMENTS) -> Iterator[Entry]:
    """Every file that defines get_config(), and that Python can read."""
    for path in sorted(folder.glob("*.py")):
        try:
            tree = ast.parse(path.read_bytes())
        except (SyntaxError, ValueError):
            continue
        if any(isinstance(node, ast.FunctionDef) and node.name == "get_config" for node in tree.body):
            words = (ast.get_docstring(tree) or "").partition("\n")[0]
            yield Entry(path, words, _cost(tree))


def _cost(tree: ast.Module) -> dict[str, str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and [getattr(name, "id", "") for name in node.targets] == ["COST"]:
            with contextlib.suppress(ValueError):  # what is no plain value
                return dict(ast.literal_eval(node.value))
    return {}


def format_experiments(folder: pathlib.Path = EXPERIMENTS) -> Iterator[str]:
    for path, words, cost in entries(folder):
        yield f"--config={path.stem if path.is_relative_to(EXPERIMENTS) else path}"
        yield f"    {words}"
        for size, what in cost.items() or [("", "see --dry_run")]:
            yield f"    {f':{size} ' if size else ''}cost: {what}"
    yield "Costs are rough: --dry_run estimates time, memory and disk for this machine, and starts nothing."
