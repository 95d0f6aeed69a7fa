"""The training log: train.jsonl, one object a line, and the same numbers for TensorBoard."""

import json
import pathlib
import time

from tensorboardX.event_file_writer import EventsWriter
from tensorboardX.proto.event_pb2 import Event, SessionLog
from tensorboardX.summary import scalar

from processes import is_first
from training.folder import write_atomically


class Log:
    """Append-only; what an interrupted session wrote past step `resumed` is dropped, since it will be done again.

    Events are written at once, not by a thread: one that dies of a full disk would leave the training waiting for it.
    """

    def __init__(self, folder: pathlib.Path, resumed: int):
        self._writes = is_first()
        if not self._writes:
            return
        path = folder / "train.jsonl"
        if path.exists():
            kept = [line for line in read(folder) if line["step"] <= resumed]
            write_atomically(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a")
        self._events = EventsWriter(str(folder / "events"), f".{time.time_ns()}")  # names carry whole seconds only
        start = SessionLog(status=SessionLog.START)  # TensorBoard forgets what it has read from this step on
        self._events.write_event(Event(wall_time=time.time(), step=resumed + 1, session_log=start))

    def write(self, step: int, kind: str, **values: float) -> None:
        if not self._writes:
            return
        self._file.write(json.dumps({"step": step, "kind": kind, **values}) + "\n")
        for name, value in values.items():
            summary = scalar(f"{kind}/{name}", value)
            self._events.write_event(Event(wall_time=time.time(), step=step, summary=summary))

    def flush(self) -> None:
        if self._writes:
            self._file.flush()
            self._events.flush()

    def close(self) -> None:
        if self._writes:
            self._file.close()
            self._events.close()


def read(folder: pathlib.Path) -> list[dict]:
    """The lines of train.jsonl; a last line cut short by a kill is left out."""
    lines = (folder / "train.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
