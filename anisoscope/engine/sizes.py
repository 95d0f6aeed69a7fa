"""Pad clouds to a few sizes, and label their points, so that few programs serve all clouds.

Points come first and padding last. J are folds, S sections.
"""

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from anisoscope.engine.intervals import degrees_of_freedom, weight_replicates
from anisoscope.metrics.resampling import Labels, TokenPositions, Types

SMALLEST, MULTIPLE = 64, 64  # points
FOLDS = 8  # folds that every program has room for; with more, the next power of 2


class Folds(NamedTuple):
    """The fold and section of each point, and the sizes that weight them."""

    fold_P: np.ndarray
    section_P: np.ndarray
    fold_sizes: tuple[np.ndarray, np.ndarray]  # points (1: all alike), summed squares of clusters
    section_sizes: tuple[np.ndarray, np.ndarray]

    @property
    def count(self) -> int:
        """Count the folds."""
        return len(self.fold_sizes[0])

    @property
    def sections(self) -> int:
        """Count the sections; 0 where nothing is resampled."""
        return len(self.section_sizes[0]) if self.count > 1 else 0

    @property
    def unequal(self) -> bool:
        """Tell whether folds differ in size, and replicates are weighted."""
        return self.fold_sizes[0].min() < self.fold_sizes[0].max()

    def degrees_of_freedom(self, kind: str) -> float:
        """Compute Student's degrees of freedom of an interval of this kind."""
        sizes = self.fold_sizes if kind == "jackknife" else self.section_sizes
        return degrees_of_freedom(*sizes, kind) if self.unequal else len(sizes[0]) - 1

    def weight(self, value_R: np.ndarray, kind: str) -> np.ndarray:
        """Leave out replicates of folds or sections that are none, and weight unequal ones."""
        if not kind:
            return value_R
        sizes, count = self.fold_sizes, self.count * (self.count > 1)
        if kind != "jackknife":
            sizes, count = self.section_sizes, self.sections
        value_R = value_R[..., : 1 + count]
        return weight_replicates(value_R, kind, *sizes) if count and self.unequal else value_R


class Layout(NamedTuple):
    """The points of a cloud as programs see them: the same for all of its layers."""

    size: int  # points and padding
    fewest: int  # points of any cloud that shares the programs
    labels: Labels
    places: TokenPositions
    types: Types | None = None  # None where they are unknown


def padded_size(points: int) -> int:
    """Return the smallest size that holds the points: 64 times a power of the root of 2, about."""
    return next(size for size in _sizes() if size >= points)


def fewest_points(size: int) -> int:
    """Return the fewest points that are padded to this size, of 2 or more."""
    return max(itertools.takewhile(lambda smaller: smaller < size, _sizes()), default=1) + 1


def _sizes() -> Iterator[int]:
    for power in itertools.count():
        yield -(-int(SMALLEST * 2 ** (power / 2)) // MULTIPLE) * MULTIPLE


def lay_out(
    folds: Folds,
    places: TokenPositions | None,
    size: int | None = None,
    types: Types | None = None,
    exact: bool = False,
) -> Layout:
    """Make the labels of a cloud's points, padded; all arrays have one shape for one size.

    `exact`: neither points nor folds are padded, where a source has one number of them for all of
    its clouds. Types ask for that.
    """
    points = len(folds.fold_P)
    size = points if exact else size or padded_size(points)
    fold_P, section_P = (pad(label_P, size, -1) for label_P in (folds.fold_P, folds.section_P))
    valid_P = np.arange(size) < points
    rooms = [0, 0]
    if folds.count > 1:
        room = max(FOLDS, 1 << (folds.count - 1).bit_length())
        rooms = [folds.count, folds.sections] if exact else [room, room]
    label_J1, label_S1 = (np.arange(room)[:, None] for room in rooms)
    keep_RP = np.concatenate([valid_P[None], valid_P[None] & (fold_P[None] != label_J1)])
    part_SP = np.concatenate([valid_P[None], valid_P[None] & (section_P[None] == label_S1)])
    labels = Labels(
        keep_RP.astype(np.float32), part_SP, np.int32(1 + folds.sections), np.int32(points)
    )
    unknown_P = np.full(points, -1)
    places = TokenPositions(unknown_P, unknown_P) if places is None else places
    places = TokenPositions(*(pad(np.int32(label_P), size, -1) for label_P in places))
    return Layout(size, points if exact else fewest_points(size), labels, places, types)


def pad(x_P: np.ndarray, size: int, value: float = 0) -> np.ndarray:
    """Pad the first axis to this size, in NumPy: XLA would compile for each number of points."""
    if len(x_P) == size:
        return x_P
    x_P = np.asarray(x_P)
    padded_P = np.full((size, *x_P.shape[1:]), value, x_P.dtype)
    padded_P[: len(x_P)] = x_P
    return padded_P
