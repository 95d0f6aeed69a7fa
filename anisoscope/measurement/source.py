"""What the sweep asks of a model that has steps: checkpoints of a run, or revisions of a pretrained model."""

import pathlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol

import numpy as np
import xarray as xr

from anisoscope.config.measure import MeasureConfig
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.tables import measurements
from anisoscope.measurement.tables.measurements import POINTS, STREAM, Standing
from anisoscope.measurement.tables.raw import Missing, families_of
from anisoscope.utils.folder import hook_points


class Target(NamedTuple):
    """What a step has a table of: the residual stream, a hook point inside the blocks, or single points."""

    name: str
    folder: pathlib.Path  # of <step>.nc; what is joined of them stands beside that folder
    families: tuple[str, ...]

    @property
    def is_hook_point(self) -> bool:
        return self.name not in (STREAM, POINTS)


def targets(measure: MeasureConfig, root: pathlib.Path) -> list[Target]:
    """All that is asked for; the residual stream comes first. Of hook points families of clouds alone."""
    of_clouds = tuple(family for family in measure.families if FAMILIES[family].of == "cloud")
    inside = [Target(name, hook_points(root) / name / "measurements", of_clouds) for name in measure.hook_points]
    points = [Target(POINTS, root / POINTS, ())] * measure.points_table
    return [Target(STREAM, root / "measurements", measure.families), *inside, *points]


def check_tables(targets: Sequence[Target], made_by: dict[str, Any]) -> None:
    """Raise UserError where tables that were made otherwise are there."""
    for target in targets:
        measurements.check_folder(target.folder, made_by)


class Wanted(NamedTuple):
    """Of a target, the families and null models of which some step lacks something."""

    families: tuple[str, ...]
    nulls: tuple[str, ...]


def wanted(target: Target, missing: Sequence[Missing], nulls: tuple[str, ...]) -> Wanted:
    clouds = {cloud for one in missing for clouds in one.values() for cloud in clouds}
    quantities = {name: () for one in missing for name in one if name != POINTS}
    return Wanted(families_of(quantities, target.families), tuple(null for null in nulls if null in clouds))


Reader = Callable[[int, Sequence[Target]], dict[str, xr.Dataset]]  # a step -> the raw table of each target, by name


class Source(Protocol):
    """Steps may be read in any order, each once, for all that is missing of it."""

    name: str  # in messages
    root: pathlib.Path  # the folder of the tables
    measure: MeasureConfig  # what is asked for
    steps: list[int]  # in the order in which they are measured
    targets: list[Target]
    made_by: dict[str, Any]  # settings that decide which vectors make up a cloud
    of_run: dict[str, Any]  # settings that a table of another run has otherwise
    apart: bool  # whether processes take steps of their own (utils/shares.py)

    def stored(self) -> set[int]:
        """Steps whose parameters can be read now."""
        ...

    def digest(self, step: int) -> str | None:
        """Of the parameters; None: not known."""
        ...

    def outdated(self, target: Target, standing: dict[int, Standing]) -> dict[int, str]:
        """Steps whose table holds no longer, and why."""
        ...

    def reader(self, wanted: dict[str, Wanted]) -> AbstractContextManager[Reader]:
        """What reads and measures, by target: made once, where there is something to measure."""
        ...

    def extend(self, steps: list[int]) -> set[int]:
        """Add to tables of the residual stream what is no quantity of a cloud; the steps whose tables it changed."""
        ...

    def attributes(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[str, Any]:
        """What the joined table of these steps says of itself."""
        ...

    def scores(self, steps: list[int]) -> xr.Dataset | None:
        """What the model had learned at these steps, if that is known."""
        ...

    def token_names(self, ids: np.ndarray) -> list[str]: ...
