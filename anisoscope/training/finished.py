"""Whether a run is finished, and with what score: test.json, which is written last. Its checkpoints
may be deleted.
"""

import pathlib
from typing import Any

from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json, write_json

NAME = "test.json"


def is_finished(folder: pathlib.Path) -> bool:
    return (folder / NAME).exists()


def write(folder: pathlib.Path, score: dict[str, Any]) -> None:
    write_json(folder / NAME, score)


def read_score(folder: pathlib.Path) -> dict[str, Any]:
    """The score of the test split; empty where the run is not finished. UserError where the file is
    damaged.
    """
    path, advice = folder / NAME, "move it elsewhere and run --stages=train again"
    if not path.exists():
        return {}
    score = read_json(path, advice)
    if not isinstance(score.get("bits_per_character"), float):
        raise UserError(f"{path} has no bits_per_character; {advice}")
    return score
