"""Files that are no text, found in a folder, and what a kind of them tells of itself."""

import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from anisoscope.utils.errors import UserError

MOST = 10_000  # files of a folder, drawn at random: many times what is measured


class Material(NamedTuple):
    """Windows that a model can read, by number, in random order."""

    name: str
    what: str  # what a window is
    count: int
    # numbers of windows -> the model's inputs (W, …)
    prepared: Callable[[Sequence[int]], np.ndarray]
    # the null model of these inputs
    shuffled: Callable[[Sequence[int], np.ndarray, np.random.Generator], np.ndarray]
    called: Callable[[int], str]  # what a window is called
    sha256: Callable[[], str]  # of the files that have been read
    about: dict[str, Any]  # what is recorded


def listed(
    path: pathlib.Path, endings: Collection[str], what: str, seed: int
) -> list[pathlib.Path]:
    """The files below a folder, or the one that is named, in random order; hidden ones are left
    out.

    UserError where there is none, or one of another kind: nobody would know that it was not read.
    """
    if not path.exists():
        raise UserError(f"data.path {path} does not exist: check --config.data.path=")
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    hidden = [any(part.startswith(".") for part in file.relative_to(path).parts) for file in files]
    files = [file for file, left_out in zip(files, hidden, strict=True) if not left_out]
    if not files:
        raise UserError(
            f"data.path {path} is empty: name a folder of {what}s with --config.data.path="
        )
    for file in files:
        if file.suffix.lower() not in endings:
            known = (
                ", ".join(sorted(endings))
                if len(endings) < 5
                else f".png, .jpg and {len(endings) - 2} more"
            )
            raise UserError(
                f"data.path {path}: {file.name} is no {what}, which this model reads; the names of files that can be "
                f"read end in {known}: move others away, or name another folder"
            )
    order = np.random.default_rng(seed).permutation(len(files))
    return [files[place] for place in order[:MOST]]
