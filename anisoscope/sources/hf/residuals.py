"""Keep residual streams on disk while a sweep runs, for comparisons of revisions."""

import pathlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xarray as xr

from anisoscope.metrics.comparison import SIMILARITIES
from anisoscope.metrics.quantity import Values

COMPARED = ("previous", "last")
PREVIOUS_REVISION = "step that cka_previous and neighbor_overlap_previous compare with; -1: none"


def compared_steps(steps: list[int], step: int) -> tuple[int, int]:
    """Return the steps that a step is compared with: the previous (-1: none) and the last."""
    return max((other for other in steps if other < step), default=-1), max(steps)


def clear(folder: pathlib.Path, needed: set[int] = frozenset()) -> None:
    """Remove the files of all steps that are not needed, and an empty folder."""
    for path in folder.glob("*.npy"):
        if int(path.stem.split("_")[0]) not in needed:
            path.unlink()
    if not needed and folder.exists():
        folder.rmdir()


@dataclass(frozen=True)
class Residuals:
    """Residual streams by step and batch."""

    steps: list[int]  # ascending
    folder: pathlib.Path
    read: Callable[[int], list[np.ndarray]] | None  # reads missing streams again; None: no need

    @property
    def compare(self) -> bool:
        return self.read is not None and len(self.steps) > 1

    def keep(self, step: int, batch: int, resid_NWTD: np.ndarray) -> None:
        if self.compare:
            self.folder.mkdir(parents=True, exist_ok=True)
            np.save(self.folder / f"{step}_{batch}.npy", resid_NWTD)

    def compared(self, step: int, batch: int) -> dict[str, np.ndarray]:
        """Load the streams to compare with; the first revision is its own previous revision."""
        if not self.compare:
            return {}
        streams = {}
        for name, other in zip(COMPARED, compared_steps(self.steps, step), strict=True):
            other = step if other < 0 else other
            path = self.folder / f"{other}_{batch}.npy"
            if not path.exists():
                for number, resid_NWTD in enumerate(self.read(other)):
                    self.keep(other, number, resid_NWTD)
            streams[name] = np.load(path, mmap_mode="r")
        return streams

    def mark_missing(self, step: int, values: dict[str, Values]) -> dict[str, Values]:
        """Write NaN for comparisons with a revision that does not exist."""
        missing = COMPARED if not self.compare else COMPARED[: step == self.steps[0]]
        for measured in values.values():
            for index in (index for index in SIMILARITIES if f"{index}_layers" in measured):
                batch, positions, layer, _, replicate = measured[f"{index}_layers"].shape
                nothing = np.full((batch, positions, layer, replicate), np.nan)
                measured |= {f"{index}_{name}": nothing for name in missing}
        return values

    def annotate(self, step: int, table: xr.Dataset) -> xr.Dataset:
        """Record which revisions a table is compared with."""
        if not self.compare:
            return table
        others = compared_steps(self.steps, step)
        previous = xr.DataArray(others[0], attrs={"long_name": PREVIOUS_REVISION})
        return table.assign(previous_step=previous).assign_attrs(compared_with=str(others))
