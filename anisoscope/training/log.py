"""Write and read the training log, train.jsonl, and write the same numbers for TensorBoard.

The log has an object on each line.
"""

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from anisoscope.utils.errors import RunError, UserError, format_os_error
from anisoscope.utils.files import read_json, write
from anisoscope.utils.processes import is_first

NAME, SCORE = "train.jsonl", "test.json"
SKIPPED = "skipped"  # kind of a line: an update was left out as not finite


class Log:
    """An append-only log; opening it drops the lines after `saved`, the newest checkpoint.

    Earlier lines stay and are not written twice, where another seed of the group has lost its own
    checkpoints and its steps are repeated. Events are written at once: a writer thread that dies
    because the disk is full would make the training wait forever.
    """

    def __init__(self, folder: pathlib.Path, saved: int):
        self._writes = is_first()
        if not self._writes:
            return
        from tensorboardX.event_file_writer import EventsWriter  # late: only training needs it
        from tensorboardX.proto.event_pb2 import Event, SessionLog

        path = folder / NAME
        kept = [line for line in read_log(folder) if line["step"] <= saved]
        write(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._written = max((line["step"] for line in kept), default=-1)
        self._path = path
        self._file = open(path, "a")  # noqa: SIM115 (stays open until `close`)
        # Names have whole seconds only; with nanoseconds each is new, and no link can exist yet.
        self._events = EventsWriter(str(folder / "events"), f".{time.time_ns()}")
        # TensorBoard drops what it has read from this step on
        start = SessionLog(status=SessionLog.START)
        self._events.write_event(Event(wall_time=time.time(), step=saved + 1, session_log=start))

    def write(self, step: int, kind: str, **values: float | list[float]) -> None:
        """Write a line; TensorBoard gets a curve for each entry of a list."""
        if not self._writes or step <= self._written:
            return
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.summary import scalar

        with self._failing_once():
            self._file.write(json.dumps({"step": step, "kind": kind, **values}) + "\n")
            for name, value in _scalars(values):
                summary = scalar(f"{kind}/{name}", value)
                self._events.write_event(Event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        """Put everything on the disk; no checkpoint may outlive the lines that explain it."""
        if self._writes:
            with self._failing_once():
                self._file.flush()
                os.fsync(self._file.fileno())
                self._events.flush()

    def close(self) -> None:
        self.flush()
        if self._writes:
            self._file.close()
            self._events.close()

    @contextlib.contextmanager
    def _failing_once(self) -> Iterator[None]:
        """Close the files when a write fails: otherwise their buffers would fail again."""
        try:
            yield
        except OSError as error:
            self._writes = False
            with open(os.devnull, "wb") as nowhere:
                for file in (self._file, self._events._py_recordio_writer._writer):
                    os.dup2(nowhere.fileno(), file.fileno())
                    file.close()
            error = OSError(error.errno, error.strerror, str(self._path))
            raise RunError(format_os_error(error)) from error


def _scalars(values: dict[str, float | list[float]]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, list):
            yield from ((f"{name}/{place}", number) for place, number in enumerate(value))
        else:
            yield name, value


def validated_steps(lines: list[dict[str, Any]]) -> set[int]:
    """Return the steps that were validated."""
    return {line["step"] for line in lines if line["kind"] == "valid"}


def check_order(lines: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Raise RunError where a line occurs twice, or after a line of a later step."""
    known, newest = set(), -1
    for number, line in enumerate(lines, 1):
        step, kind = line["step"], line["kind"]
        if (step, kind) in known or step < newest:
            what = "twice" if (step, kind) in known else f"after step {newest:,}"
            raise RunError(f"{path}, line {number}: step {step:,} ({kind}) occurs {what}")
        known.add((step, kind))
        newest = step


def read_log(folder: pathlib.Path) -> list[dict[str, Any]]:
    """Read the lines of train.jsonl, if any; a last line cut short by a kill is left out."""
    path, lines = folder / NAME, []
    if not path.exists():
        return lines
    for number, text in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
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


def is_finished(folder: pathlib.Path) -> bool:
    """Return whether the test split is scored; the checkpoints may be deleted then."""
    return (folder / SCORE).exists()


def read_score(folder: pathlib.Path) -> dict[str, Any]:
    """Read the score; empty where the run is not finished, UserError where it is damaged."""
    path, advice = folder / SCORE, "move it elsewhere and run --stages=train again"
    if not path.exists():
        return {}
    score = read_json(path, advice)
    if not isinstance(score.get("bits_per_character"), float):
        raise UserError(f"{path} has no bits_per_character; {advice}")
    return score
