"""The training log: train.jsonl, one object a line, and the same numbers for TensorBoard."""

import contextlib
import json
import os
import pathlib
import time
from collections.abc import Iterator
from typing import Any

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from anisoscope.utils.errors import RunError, format_os_error
from anisoscope.utils.files import check_held, from_json, open_in_place, refuse_link, write
from anisoscope.utils.processes import is_first

NAME = "train.jsonl"


class Log:
    """Append-only. Lines past step `saved`, the newest checkpoint of this run, are dropped: their
    steps are done again.

    Lines up to it stand; where those steps are done again too, because another seed of the group
    has lost its own, nothing is written twice.

    Events are written at once, not by a thread: one that dies of a full disk would leave the
        training waiting for it.
    """

    def __init__(self, folder: pathlib.Path, saved: int):
        self._writes = is_first()
        if not self._writes:
            return
        path, kept = folder / NAME, []
        refuse_link(path)
        if path.exists():
            kept = [line for line in read_log(folder) if line["step"] <= saved]
            write(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._told = max((line["step"] for line in kept), default=-1)
        self._path, self._file = (
            path,
            os.fdopen(open_in_place(path, os.O_WRONLY | os.O_APPEND), "a"),
        )
        # Names carry whole seconds only; with nanoseconds each is a new file, which no link can
        # await.
        self._started = time.time_ns()
        self._events = EventsWriter(str(folder / "events"), f".{self._started}")
        # TensorBoard forgets what it has read from this step on
        start = SessionLog(status=SessionLog.START)
        self._events.write_event(Event(wall_time=time.time(), step=saved + 1, session_log=start))

    def write(self, step: int, kind: str, **values: float | list[float]) -> None:
        """Of a list, TensorBoard has a curve for each place."""
        if not self._writes or step <= self._told:
            return
        with self._failing_once():
            self._file.write(json.dumps({"step": step, "kind": kind, **values}) + "\n")
            for name, value in _single(values):
                summary = scalar(f"{kind}/{name}", value)
                self._events.write_event(Event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        if self._writes:
            check_held(self._path)
            with self._failing_once():
                self._file.flush()
                os.fsync(self._file.fileno())  # no checkpoint may outlive the lines that explain it
                self._events.flush()

    def close(self) -> None:
        self.flush()
        if self._writes:
            self._file.close()
            self._events.close()

    @contextlib.contextmanager
    def _failing_once(self) -> Iterator[None]:
        """What could not be written stays in the buffers: closing the files, or Python's end, would
        fail once more.
        """
        try:
            yield
        except OSError as error:
            self._writes = False
            with open(os.devnull, "wb") as nowhere:
                for file in (self._file, self._events._py_recordio_writer._writer):
                    os.dup2(nowhere.fileno(), file.fileno())
                    file.close()
            raise RunError(
                format_os_error(OSError(error.errno, error.strerror, str(self._path)))
            ) from error


def set_aside(folder: pathlib.Path) -> pathlib.Path | None:
    """Rename a log of steps that have no checkpoint any more; None where there is none of a step
    beyond 0.
    """
    path = folder / NAME
    if not is_first() or not path.exists() or all(line["step"] <= 0 for line in read_log(folder)):
        return None
    target = next(one for i in range(1000) if not (one := folder / f"train.{i}.jsonl").exists())
    path.rename(target)
    return target


def _single(values: dict[str, float | list[float]]) -> Iterator[tuple[str, float]]:
    for name, value in values.items():
        if isinstance(value, list):
            yield from ((f"{name}/{place}", one) for place, one in enumerate(value))
        else:
            yield name, value


def validated(lines: list[dict[str, Any]]) -> set[int]:
    return {line["step"] for line in lines if line["kind"] == "valid"}


def check_order(lines: list[dict[str, Any]], path: pathlib.Path) -> None:
    """Raise RunError where a line stands twice, or after one of a later step."""
    seen, newest = set(), -1
    for number, line in enumerate(lines, 1):
        one = line["step"], line["kind"]
        if one in seen or line["step"] < newest:
            what = "twice" if one in seen else f"after step {newest:,}"
            raise RunError(
                f"{path}, line {number}: step {line['step']:,} ({line['kind']}) stands there {what}"
            )
        seen.add(one)
        newest = line["step"]


def read_log(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The lines of train.jsonl; a last line cut short by a kill is left out."""
    path, entries = folder / NAME, []
    for number, text in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            line = from_json(text)
        except ValueError:
            line = None
        if not (
            isinstance(line, dict)
            and type(line.get("step")) is int
            and type(line.get("kind")) is str
        ):
            raise RunError(
                f"{path}, line {number} is damaged ({text[:40].decode(errors='replace')!r}…); remove that line"
            )
        entries.append(line)
    return entries
