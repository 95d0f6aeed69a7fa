"""Turn docstrings, plain words with `code` in single backticks, into what Sphinx reads."""

import re
from typing import Any

from sphinx.application import Sphinx

CODE = re.compile(r"(`[^`]+`)")
SIGNS = re.compile(r"([\\*|])")  # that mean something to docutils, and in a formula are themselves


def escape_line(line: str) -> str:
    if line.lstrip().startswith((">>>", "...")):
        return line
    parts = CODE.split(line)
    return "".join(
        f"`{part}`" if CODE.fullmatch(part) else SIGNS.sub(r"\\\1", part) for part in parts
    )


def escape_docstring(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    lines[:] = [escape_line(line) for line in lines]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", escape_docstring, priority=100)  # before napoleon
    return {"parallel_read_safe": True, "parallel_write_safe": True}
