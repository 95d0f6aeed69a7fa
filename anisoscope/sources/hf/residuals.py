"""Residual streams of the other revisions that one is compared with, on disk while a sweep runs."""

import pathlib
from collections.abc import Callable

import numpy as np

from anisoscope.measurement.families.comparison_family import KINDS
from anisoscope.measurement.quantity import Values
from anisoscope.utils import files

COMPARED = ("previous", "last")


def before(steps: list[int], step: int, default: int = -1) -> int:
    return max((other for other in steps if other < step), default=default)


def compared_with(steps: list[int], step: int) -> str:
    """In the words of a table: the step before, -1 where there is none, and the last."""
    return f"{before(steps, step)}, {max(steps)}"


def clear(folder: pathlib.Path, needed: set[int] = frozenset()) -> None:
    """Remove all but what is `needed`, and the folder where nothing is."""
    for path in folder.glob("*.npy"):
        if int(path.stem.split("_")[0]) not in needed:
            path.unlink()
    if not needed and folder.exists():
        folder.rmdir()


class Residuals:
    """By step and batch; a revision that was measured in an earlier session is read again by
    `read(step)`.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        steps: list[int],
        wanted: bool,
        read: Callable[[int], list[np.ndarray]],
    ):
        self.folder, self.steps, self.read, self.wanted = (
            folder,
            steps,
            read,
            wanted and len(steps) > 1,
        )

    def keep(self, step: int, batch: int, resid_NWTD: np.ndarray) -> None:
        if self.wanted:
            self.folder.mkdir(parents=True, exist_ok=True)
            with files.replacing(self._path(step, batch), synced=False) as file:
                np.save(file, resid_NWTD)

    def beside(self, step: int, batch: int) -> dict[str, np.ndarray]:
        """Those to compare with; the first revision has none before it, and stands in its own
        place.
        """
        if not self.wanted:
            return {}
        residuals = {}
        for name, other in zip(
            COMPARED, (before(self.steps, step, step), self.steps[-1]), strict=True
        ):
            if not self._path(other, batch).exists():
                for number, resid_NWTD in enumerate(self.read(other)):
                    self.keep(other, number, resid_NWTD)
            residuals[name] = np.load(self._path(other, batch), mmap_mode="r")
        return residuals

    def without_itself(self, step: int, values: dict[str, Values]) -> dict[str, Values]:
        """NaN where there is no other revision: for a model alone, and for the first of a sweep
        before it.
        """
        lacking = COMPARED if not self.wanted else COMPARED[:1] if step == self.steps[0] else ()
        for own in values.values():
            for kind in (kind for kind in KINDS if f"{kind}_layers" in own):
                batch, positions, layer, _, replicate = own[f"{kind}_layers"].shape
                own |= {
                    f"{kind}_{name}": np.full((batch, positions, layer, replicate), np.nan)
                    for name in lacking
                }
        return values

    def _path(self, step: int, batch: int) -> pathlib.Path:
        return self.folder / f"{step}_{batch}.npy"
