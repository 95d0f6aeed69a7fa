"""Write and read the training log, train.jsonl: an object on each line."""

import json
import os
import pathlib
from typing import Any

from anisoscope.utils.errors import RunError, UserError, format_os_error
from anisoscope.utils.files import read_bytes, read_json, write_file
from anisoscope.utils.processes import is_first

LOG_NAME, SCORE_NAME = "train.jsonl", "test.json"


class Log:
    """An append-only log; opening it drops the lines after `saved`, the newest checkpoint.

    Earlier lines are not written twice where steps are repeated for another seed of the group.
    """

    def __init__(self, folder: pathlib.Path, saved: int):
        self._path, self._lines = folder / LOG_NAME, []
        kept = [line for line in read_log(folder) if line["step"] <= saved]
        self._written = max((line["step"] for line in kept), default=-1)
        if is_first():
            write_file(self._path, "".join(json.dumps(line) + "\n" for line in kept))

    def write(self, step: int, kind: str, **values: float | list[float]) -> None:
        """Add a line; `flush` writes it."""
        if step > self._written:
            self._lines.append(json.dumps({"step": step, "kind": kind, **values}) + "\n")

    def flush(self) -> None:
        """Put everything on the disk; no checkpoint may outlive the lines that explain it."""
        lines, self._lines = self._lines, []
        if not (lines and is_first()):
            return
        try:
            with open(self._path, "a") as file:
                file.writelines(lines)
                file.flush()
                os.fsync(file.fileno())
        except OSError as error:
            error = OSError(error.errno, error.strerror, str(self._path))
            raise RunError(format_os_error(error)) from error


def validated_steps(lines: list[dict[str, Any]]) -> set[int]:
    """Return the steps that were validated."""
    return {line["step"] for line in lines if line["kind"] == "valid"}


def read_log(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Read the lines of train.jsonl, if any; a last line cut short by a kill is left out."""
    path, lines = folder / LOG_NAME, []
    if not path.exists():
        return lines
    for number, text in enumerate(read_bytes(path).split(b"\n")[:-1], 1):
        try:
            line = json.loads(text)
            whole = type(line["step"]) is int and type(line["kind"]) is str
        except (ValueError, TypeError, KeyError):
            whole = False
        if not whole:
            what = text[:40].decode(errors="replace")
            raise RunError(f"{path}, line {number} is damaged ({what!r}…); remove that line")
        lines.append(line)
    return lines


def read_score(folder: pathlib.Path) -> dict[str, Any]:
    """Read the score; empty where the run is not finished, UserError where it is damaged.

    The checkpoints of a finished run may be deleted.
    """
    path, advice = folder / SCORE_NAME, "move it elsewhere and run --stages=train again"
    if not path.exists():
        return {}
    score = read_json(path, advice)
    if not isinstance(score.get("bits_per_character"), float):
        raise UserError(f"{path} has no bits_per_character; {advice}")
    return score
