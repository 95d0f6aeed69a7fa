"""Read and write test.json, the score of the test split, which marks a finished run."""

import pathlib
from typing import Any

from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json, write_json

NAME = "test.json"


def is_finished(folder: pathlib.Path) -> bool:
    """Return whether the test split is scored; the checkpoints may be deleted then."""
    return (folder / NAME).exists()


def write_score(folder: pathlib.Path, score: dict[str, Any]) -> None:
    """Write the score of the test split."""
    write_json(folder / NAME, score)


def read_score(folder: pathlib.Path) -> dict[str, Any]:
    """Read the score; empty where the run is not finished, UserError where it is damaged."""
    path, advice = folder / NAME, "move it elsewhere and run --stages=train again"
    if not path.exists():
        return {}
    score = read_json(path, advice)
    if not isinstance(score.get("bits_per_character"), float):
        raise UserError(f"{path} has no bits_per_character; {advice}")
    return score
