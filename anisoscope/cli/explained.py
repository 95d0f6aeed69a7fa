"""Experiments in words: settings, read from the comments where they are defined; and which there are, from their files.

No file is run for it.
"""

import ast
import contextlib
import dataclasses
import pathlib
import textwrap
from collections.abc import Iterator
from typing import Any, NamedTuple

from anisoscope.cli.flags import EXPERIMENTS

BESIDE, WIDTH = 46, 120  # columns: where comments begin, where lines end


def settings(config: Any, group: str = "") -> Iterator[str]:
    """Lines: each setting as a flag with its value here, and what it means; groups of settings follow single ones."""
    meanings, inner = comments(type(config)), groups(config)
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if field.name not in inner and not isinstance(value, dict):  # runs of an experiment are set in its file
            yield from beside(f"  --config.{group}{field.name}={plain(value)}", meanings.get(field.name, ""))
    for name, one in inner.items():
        yield f"{group}{name}"
        yield from settings(one, f"{group}{name}.")


def groups(config: Any) -> dict[str, Any]:
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: value for name, value in values.items() if dataclasses.is_dataclass(value)}


def overview(config: Any) -> Iterator[str]:
    """Lines: the names of the single settings, then those of each group."""
    inner, single = groups(config), []
    for field in dataclasses.fields(config):
        if field.name not in inner and not isinstance(getattr(config, field.name), dict):
            single.append(field.name)
    names = {"": single} | {name: [field.name for field in dataclasses.fields(one)] for name, one in inner.items()}
    for group, fields in names.items():
        if fields:
            words = textwrap.wrap(", ".join(fields), WIDTH - 24)
            left = f"  --config.{group}{'.' if group else ''}…"
            yield from (f"{left:24}{words[0]}", *(f"{'':24}{line}" for line in words[1:]))


def comments(kind: type) -> dict[str, str]:
    """Give what each setting means, {name: help}."""
    return {field.name: field.metadata.get("help", "") for field in dataclasses.fields(kind)}


def plain(value: Any) -> str:
    """A value as a flag takes it."""
    if isinstance(value, tuple):
        return ",".join(f"{item:g}" if isinstance(item, float) else str(item) for item in value)
    return str(value)


def beside(left: str, right: str) -> list[str]:
    """Two columns; the right one is broken into lines, and begins below a left one that leaves it no room."""
    lines = textwrap.wrap(right, WIDTH - BESIDE) or [""]
    if len(left) > WIDTH:  # of a list, after a comma
        cut = left.rfind(",", 0, WIDTH) + 1
        return [left[:cut], *beside(f"{'':6}{left[cut:]}", right)] if cut else [left, *beside("", right)]
    if len(left) >= BESIDE and right:
        return [left, *(f"{'':{BESIDE}}{line}" for line in lines)]
    return [f"{left:{BESIDE}}{lines[0]}".rstrip(), *(f"{'':{BESIDE}}{line}" for line in lines[1:])]


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
