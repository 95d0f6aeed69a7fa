"""Blocks of code in a document, as Sybil finds them: Python is run, its output compared, commands
are looked up, and files measured.

A block that cannot run here stands below a comment with the reason: <!-- skip: next "needs a
network" -->.
"""

import contextlib
import importlib.util
import io
import pathlib
import re
import shlex

from sybil import Example, Sybil
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.myst import CodeBlockParser, SkipParser

from anisoscope.cli import flags
from anisoscope.utils.errors import UserError
from tests.program import ROOT, here

PRINTED = "printed by the block before"
SAVED = re.compile(r"Save this as `([\w.]+)`:\s*$")
COMMENT = re.compile(r"(?<!\S)#.*$")
VARIABLES = re.compile(r"^(\w+=\S* )+")
PYTHON = re.compile(r"(\.venv[\w-]*/bin/)?python")


def python(example: Example) -> None:
    """Run it among the names of the blocks before; what it prints is what the next block of text
    may show.
    """
    if saved := SAVED.search(example.document.text[: example.region.start]):
        pathlib.Path(saved[1]).write_text(example.parsed)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        PythonEvaluator()(example)
    example.namespace[PRINTED] = printed.getvalue()


def shown(example: Example) -> None:
    """Text below a block that prints is its output, blanks at the ends of lines apart."""
    if printed := example.namespace.pop(PRINTED, ""):
        assert lines(printed) == lines(example.parsed)


def lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.strip("\n").splitlines()]


def shell(example: Example) -> None:
    """Look commands up; measure files, which says what the next block of text may show."""
    for line in example.parsed.replace("\\\n", " ").splitlines():
        if words := shlex.split(VARIABLES.sub("", COMMENT.sub("", line))):
            if words[:2] == ["anisoscope", "measure"]:
                for table in (word[6:] for word in words if word.startswith("--out=")):
                    pathlib.Path(table).unlink(missing_ok=True)  # another page's
                done = here(*words[1:])
                assert done.returncode == 0, done.stderr
                example.namespace[PRINTED] = done.stdout
            else:
                look_up(words)


def look_up(words: list[str]) -> None:
    """Raise unless there is such a command, with such flags and settings; nothing is started."""
    if words[0].startswith("--config."):
        settings_alone(words)
    elif words[0] == "make":
        targets = re.findall(r"^([\w.-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        unknown = [word for word in words[1:] if word not in targets and "=" not in word]
        assert not unknown, f"no target of the Makefile: {unknown}"
    elif PYTHON.fullmatch(words[0]) and words[1] == "-m":
        assert importlib.util.find_spec(words[2]), f"no module {words[2]}"
    elif PYTHON.fullmatch(words[0]) or words[0] == "anisoscope":
        program = "main.py" if words[0] == "anisoscope" else words[1]
        assert pathlib.Path(program).is_file(), f"no file {program}"
        if program == "main.py":
            flags.parse(["main.py", *words[1 if words[0] == "anisoscope" else 2 :]])
    elif words[0] == "sbatch":
        assert pathlib.Path(words[1]).is_file(), f"no file {words[1]}"
    else:
        assert words[0] in ("pip", ".venv/bin/pip", "git"), f"unknown command: {words[0]}"


def settings_alone(words: list[str]) -> None:
    """Settings without their experiment: some kind of experiment has them all."""
    names = "quickstart untrained_bias curved_manifolds pretrained:a shape_of_learning"
    failures = []
    for name in names.split():
        try:
            flags.parse(["main.py", f"--config={name}", *words])
            return
        except UserError as error:
            failures.append(error)
    raise failures[0]


PARSERS = [
    SkipParser(),
    *(CodeBlockParser(*pair) for pair in (("python", python), ("text", shown), ("sh", shell))),
]
DOCUMENTS = Sybil(PARSERS, patterns=["*.md"])
