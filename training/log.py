"""The training log: train.jsonl, one object a line, and the same numbers for TensorBoard."""

import json
import pathlib
import tempfile

from tensorboardX import SummaryWriter

from processes import is_first
from training.folder import write_atomically


class Log:
    """Append-only; what an interrupted session wrote past step `resumed` is dropped, since it will be done again."""

    def __init__(self, folder: pathlib.Path, resumed: int):
        if not is_first():
            folder = pathlib.Path(tempfile.mkdtemp())  # every process logs, but only the first one's log is the run's
        path = folder / "train.jsonl"
        if path.exists():
            kept = [line for line in read(folder) if line["step"] <= resumed]
            write_atomically(path, "".join(json.dumps(line) + "\n" for line in kept))
        self._file = path.open("a")
        self._board = SummaryWriter(str(folder), purge_step=resumed + 1)

    def write(self, step: int, kind: str, **values: float) -> None:
        self._file.write(json.dumps({"step": step, "kind": kind, **values}) + "\n")
        for name, value in values.items():
            self._board.add_scalar(f"{kind}/{name}", value, step)

    def flush(self) -> None:
        self._file.flush()
        self._board.flush()

    def close(self) -> None:
        self._file.close()
        self._board.close()


def read(folder: pathlib.Path) -> list[dict]:
    """The lines of train.jsonl; a last line cut short by a kill is left out."""
    lines = (folder / "train.jsonl").read_text().splitlines(keepends=True)
    return [json.loads(line) for line in lines if line.endswith("\n")]
