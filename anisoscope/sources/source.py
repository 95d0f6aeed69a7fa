"""What the sweep asks of a model that has steps: checkpoints of a run, or revisions of a pretrained
model.
"""

import abc
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from types import MappingProxyType
from typing import Any, NamedTuple

import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.results import step_files
from anisoscope.results.step_files import STREAM

HEAD = "measure.projected_head"


class Target(NamedTuple):
    """The residual stream, or a hook point inside the blocks: a step has a table of each."""

    name: str
    folder: pathlib.Path  # of <step>.nc; what is joined of them stands beside that folder
    families: tuple[str, ...]

    @property
    def is_hook_point(self) -> bool:
        return self.name != STREAM

    def made_by(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Keep the settings that affect this target: hook points ignore `projected_head`."""
        if not self.is_hook_point:
            return settings
        return {name: value for name, value in settings.items() if name != HEAD}


def targets(measure: MeasureConfig, root: pathlib.Path) -> list[Target]:
    """List what to measure, the residual stream first; of hook points families of clouds alone."""
    of_clouds = tuple(
        family for family in measure.families if FAMILIES[family].input_kind == "cloud"
    )
    inside = [
        Target(name, root / "hook_points" / name / "measurements", of_clouds)
        for name in measure.hook_points
    ]
    return [Target(STREAM, root / "measurements", measure.families), *inside]


def check_tables(targets: Sequence[Target], settings: dict[str, Any]) -> None:
    """Raise UserError where tables that were made otherwise are there."""
    for target in targets:
        step_files.check_folder(target.folder, target.made_by(settings))


Families = tuple[str, ...]
# a step and targets -> the raw table of each, one after another
Reader = Callable[[int, Sequence[Target]], Iterator[tuple[Target, xr.Dataset]]]


class Source(abc.ABC):
    """A model with steps, which may be read in any order, each once for all that is missing of it."""

    name: str  # in messages
    root: pathlib.Path  # the folder of the tables
    measure: MeasureConfig  # what is asked for
    steps: list[int]  # all that there ever were, in the order in which they are measured
    # settings that decide which vectors make up a cloud: tables of others are not joined
    made_by: dict[str, Any]
    # settings that a table of another run has otherwise
    run_settings: Mapping[str, Any] = MappingProxyType({})
    apart: bool = False  # whether processes take steps of their own (utils/shares.py)

    @property
    def targets(self) -> list[Target]:
        return targets(self.measure, self.root)

    @abc.abstractmethod
    def stored(self) -> set[int]:
        """Steps that can be read now; tables of others stay as they are."""

    @abc.abstractmethod
    def outdated(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[int, str]:
        """Say of which steps the table holds no longer, and why."""

    @abc.abstractmethod
    def reader(self, families: dict[str, Families]) -> AbstractContextManager[Reader]:
        """Make what reads and measures a step: once, where something is missing.

        `families` are what to measure, by the name of the target, alike for all hook points.
        """

    def nothing_stored(self) -> str:
        """Say what to do where no step can be read, and no table is there."""
        return f"{self.name}: no step can be read"

    def digest(self, step: int) -> str | None:
        """Digest the parameters of a step; None: not known. Tangents alone ask for it."""
        return None

    def attributes(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[str, Any]:
        """Describe the source in the joined table of these steps."""
        return {}

    def scores(self, steps: list[int]) -> xr.Dataset | None:
        """Read what the model had learned at these steps, if that is known."""
        return None
