"""Residual streams of the revisions that others are compared with, on disk while a sweep runs."""

import pathlib
from collections.abc import Callable

import numpy as np

from anisoscope.measurement.families.comparison_family import KINDS
from anisoscope.measurement.quantity import Values
from anisoscope.utils import files

COMPARED = ("previous", "last")


def previous_step(steps: list[int], step: int, default: int = -1) -> int:
    return max((other for other in steps if other < step), default=default)


def compared_with(steps: list[int], step: int) -> str:
    """Say which steps a step is compared with, for tables: that before (-1: none), and the last."""
    return f"{previous_step(steps, step)}, {max(steps)}"


def clear(folder: pathlib.Path, needed: set[int] = frozenset()) -> None:
    """Remove the files of all steps that are not needed, and the folder where none is."""
    for path in folder.glob("*.npy"):
        if int(path.stem.split("_")[0]) not in needed:
            path.unlink()
    if not needed and folder.exists():
        folder.rmdir()


class Residuals:
    """Residual streams by step and batch; what is missing is read again by `read(step)`."""

    def __init__(
        self,
        folder: pathlib.Path,
        steps: list[int],
        compare: bool,
        read: Callable[[int], list[np.ndarray]],
    ):
        self.folder, self.steps, self.read = folder, steps, read
        self.compare = compare and len(steps) > 1

    def keep(self, step: int, batch: int, resid_NWTD: np.ndarray) -> None:
        if self.compare:
            self.folder.mkdir(parents=True, exist_ok=True)
            with files.replacing(self._path(step, batch), synced=False) as file:
                np.save(file, resid_NWTD)

    def compared(self, step: int, batch: int) -> dict[str, np.ndarray]:
        """Load the streams to compare with; the first revision stands for the one before it."""
        if not self.compare:
            return {}
        others = previous_step(self.steps, step, step), self.steps[-1]
        for other in others:
            if not self._path(other, batch).exists():
                for number, resid_NWTD in enumerate(self.read(other)):
                    self.keep(other, number, resid_NWTD)
        return {
            name: np.load(self._path(other, batch), mmap_mode="r")
            for name, other in zip(COMPARED, others, strict=True)
        }

    def mark_missing(self, step: int, values: dict[str, Values]) -> dict[str, Values]:
        """Write NaN where there is no other revision: the first has none before it."""
        missing = COMPARED if not self.compare else COMPARED[: step == self.steps[0]]
        for own in values.values():
            for kind in (kind for kind in KINDS if f"{kind}_layers" in own):
                batch, positions, layer, _, replicate = own[f"{kind}_layers"].shape
                nothing = np.full((batch, positions, layer, replicate), np.nan)
                own |= {f"{kind}_{name}": nothing for name in missing}
        return values

    def _path(self, step: int, batch: int) -> pathlib.Path:
        return self.folder / f"{step}_{batch}.npy"
