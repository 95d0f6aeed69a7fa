"""Define a source of the sweep: a model with steps, such as checkpoints or revisions."""

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
    """What to measure at each step into one table: the residual stream, or a hook point."""

    name: str
    folder: pathlib.Path  # folder of <step>.nc; the joined tables lie in its parent
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
    """List what to measure, the residual stream first; hook points have cloud families only."""
    cloud_families = tuple(
        family for family in measure.families if FAMILIES[family].input_kind == "cloud"
    )
    inside = [
        Target(name, root / "hook_points" / name / "measurements", cloud_families)
        for name in measure.hook_points
    ]
    return [Target(STREAM, root / "measurements", measure.families), *inside]


def check_tables(targets: Sequence[Target], settings: dict[str, Any]) -> None:
    """Raise UserError where existing tables were made with other settings."""
    for target in targets:
        step_files.check_folder(target.folder, target.made_by(settings))


Families = tuple[str, ...]
# (step, targets) -> iterator of (target, raw table)
Reader = Callable[[int, Sequence[Target]], Iterator[tuple[Target, xr.Dataset]]]


class Source(abc.ABC):
    """A model with steps; the sweep reads each step once, in any order."""

    name: str  # in messages
    root: pathlib.Path  # the folder of the tables
    measure: MeasureConfig  # requested settings
    steps: list[int]  # all steps, in the order of measurement
    # settings that decide which vectors form a cloud; only tables that share them are joined
    made_by: dict[str, Any]
    # settings that differ in tables of another run
    run_settings: Mapping[str, Any] = MappingProxyType({})
    independent: bool = False  # whether each process measures other steps (utils/shares.py)

    @property
    def targets(self) -> list[Target]:
        return targets(self.measure, self.root)

    @abc.abstractmethod
    def stored(self) -> set[int]:
        """Return the steps that can be read now; tables of other steps stay unchanged."""

    @abc.abstractmethod
    def outdated(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[int, str]:
        """Return {step: reason} of the tables that are no longer valid."""

    @abc.abstractmethod
    def reader(self, families: dict[str, Families]) -> AbstractContextManager[Reader]:
        """Make the context that reads and measures steps, once, if something is missing.

        `families` lists what to measure by the name of the target, equal for all hook points.
        """

    def nothing_stored(self) -> str:
        """Return the message where no step can be read and no table exists."""
        return f"{self.name}: no step can be read"

    def digest(self, step: int) -> str | None:
        """Return the digest of the parameters of a step, for tangents; None: unknown."""
        return None

    def attributes(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[str, Any]:
        """Describe the source in the joined table of these steps."""
        return {}

    def scores(self, steps: list[int]) -> xr.Dataset | None:
        """Read the scores of the model at these steps; None: unknown."""
        return None
