"""The settings of an experiment in words, group by group: read from the comments that stand where they are defined."""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Iterator
from typing import Any

COMMENTED = re.compile(r"    (\w+): .*?  # (.+)")
BESIDE, WIDTH = 46, 120  # columns: where comments begin, where lines end


def settings(config: Any, group: str = "") -> Iterator[str]:
    """Lines: each setting as a flag with its value here, and what it means; groups of settings follow single ones."""
    meanings, groups = comments(type(config)), []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            groups.append(field.name)
        elif not isinstance(value, dict):  # runs of an experiment are set in its file
            yield from beside(f"  --config.{group}{field.name}={plain(value)}", meanings.get(field.name, ""))
    for name in groups:
        yield f"{group}{name}"
        yield from settings(getattr(config, name), f"{group}{name}.")


def groups(config: Any) -> dict[str, Any]:
    values = {field.name: getattr(config, field.name) for field in dataclasses.fields(config)}
    return {name: value for name, value in values.items() if dataclasses.is_dataclass(value)}


def overview(config: Any) -> Iterator[str]:
    """Lines: the names of the single settings, then those of each group."""
    names: dict[str, list[str]] = {"": []}
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if dataclasses.is_dataclass(value):
            names[field.name] = [inner.name for inner in dataclasses.fields(value)]
        elif not isinstance(value, dict):  # runs of an experiment are set in its file
            names[""].append(field.name)
    for group, fields in names.items():
        if fields:
            words = textwrap.wrap(", ".join(fields), WIDTH - 24)
            left = f"  --config.{group}{'.' if group else ''}…"
            yield from (f"{left:24}{words[0]}", *(f"{'':24}{line}" for line in words[1:]))


def comments(kind: type) -> dict[str, str]:
    """What stands behind each field in the source, of the class and of those that it extends."""
    meanings: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if dataclasses.is_dataclass(one):
            try:
                meanings |= dict(COMMENTED.findall(inspect.getsource(one)))
            except (OSError, TypeError):  # of a file that is gone
                continue
    return meanings


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
