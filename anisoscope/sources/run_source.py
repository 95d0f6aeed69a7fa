"""Provide the checkpoints of a run as a source, measured by one compiled program.

Letters: S sets of positions, G batches.
"""

import dataclasses
import functools
import json
import pathlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.run_config import checkpoint_steps
from anisoscope.data.corpus import Corpus
from anisoscope.metrics.comparison import NEEDS_PREVIOUS_CHECKPOINT
from anisoscope.models.model_settings import describe_model
from anisoscope.results import replicates_table
from anisoscope.results.join import scores
from anisoscope.results.replicates_table import BEFORE
from anisoscope.results.summary import FIRST_BLOCK
from anisoscope.sources.evaluation_windows import POSITION_SETS, add_massive_set
from anisoscope.sources.run_program import OTHERS, RunProgram, draw_probe, make_measure_program
from anisoscope.sources.sweep import (
    Families,
    Source,
    Tables,
    Target,
    check_tables,
    is_outdated,
)
from anisoscope.training import log
from anisoscope.training.checkpoint import CheckpointReader
from anisoscope.training.objective import OBJECTIVES
from anisoscope.utils import mesh
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.folder import digest_run, run_settings
from anisoscope.utils.settings import replace

PREVIOUS = (
    "step of the checkpoint that cka_previous and neighbor_overlap_previous compare with; -1: none"
)


def open_run_source(config: Config, corpus: Corpus, run: pathlib.Path, name: str) -> "RunSource":
    """Open the scheduled checkpoints of a run."""
    store = CheckpointReader(run / "checkpoints", run=digest_run(config, corpus.sha256))
    return RunSource(config, corpus, run, name, checkpoint_steps(config), store)


@dataclass(frozen=True)
class RunSource(Source):
    """The checkpoints of a run as a source."""

    config: Config
    corpus: Corpus
    root: pathlib.Path
    name: str
    steps: list[int]
    store: CheckpointReader
    # by families and hook points
    programs: dict[tuple[Families, tuple[str, ...]], RunProgram] = field(default_factory=dict)
    # parameters of the step and of the steps that it is compared with
    params: dict[int, dict] = field(default_factory=dict)

    @property
    def measure(self) -> MeasureConfig:
        return self.config.measure

    @functools.cached_property
    def made_by(self) -> dict[str, Any]:
        names = ["points", "batches", "folds", "seed", "masked"]
        settings = {f"measure.{name}": getattr(self.measure, name) for name in names}
        return settings | {"corpus_sha256": self.corpus.sha256, "positions": self.position_sets}

    @property
    def position_sets(self) -> tuple[str, ...]:
        return add_massive_set(POSITION_SETS, self.measure)

    @functools.cached_property
    def run_settings(self) -> dict[str, Any]:
        return run_settings(self.config)

    @property
    def nothing_stored(self) -> str:
        return f"{self.root / 'checkpoints'} is empty; run --stages=train first"

    def stored(self) -> set[int]:
        return {*self.store.steps()}

    def digest(self, step: int) -> str | None:
        return self.store.digest(step)

    def state(self) -> dict[str, Any]:
        checkpoints = {step: self.digest(step) for step in sorted(self.stored())}
        settings = dataclasses.asdict(self.measure), self.made_by, self.run_settings
        return {"checkpoints": checkpoints, "settings": settings}

    def outdated(self, target: Target, tables: Tables) -> dict[int, str]:
        changed = [step for step, table in tables.items() if is_outdated(table, self.store)]
        again = dict.fromkeys(changed, "a checkpoint has changed")
        for step, table in tables.items():
            previous = self.previous(step)
            if BEFORE in table and previous is not None and int(table[BEFORE]) < previous:
                again.setdefault(step, "a nearer checkpoint to compare with is there")
        return again

    def measure_step(
        self, step: int, families: dict[Target, Families]
    ) -> Iterator[tuple[Target, xr.Dataset]]:
        try:
            compared = any("comparison" in names for names in families.values())
            needed = {step, *(self.references(step).values() if compared else ())}
            for other in self.params.keys() - needed:
                del self.params[other]
            for other in needed - self.params.keys():
                self.params[other] = self.store.restore_params(other)
            for target, names in families.items():
                yield target, self._measure(step, target, names)
        except RunError as error:  # a damaged checkpoint
            raise RunError(f"{error}; delete it to measure without it") from error

    def previous(self, step: int) -> int | None:
        """Return the step of the checkpoint before; None for the first."""
        return max((other for other in self.store.steps() if other < step), default=None)

    def references(self, step: int) -> dict[str, int]:
        """Return the steps that a step is compared with: the one before, and the last.

        The first has none before: the last takes its place, and its values are removed afterward.
        """
        last, previous = self.config.train.steps, self.previous(step)
        if last not in self.store.steps():
            raise UserError(
                f"measure.families=comparison needs the checkpoint of the last step, {last}; "
                "finish the training or leave that family out"
            )
        return dict(zip(OTHERS, (last if previous is None else previous, last), strict=True))

    def _measure(self, step: int, target: Target, families: Families) -> xr.Dataset:
        """Make the raw table of a target; one program reads any hook point, by its index."""
        inside = target.is_hook_point
        hook_points = self.measure.hook_points if inside else ()
        if (families, hook_points) not in self.programs:
            config = replace(self.config, {"measure.families": families})
            program = make_measure_program(config, self.corpus, hook_points)
            self.programs[families, hook_points] = program
        program = self.programs[families, hook_points]
        compared = self.references(step) if "comparison" in families else {}
        references = {name: self.params[other] for name, other in compared.items()}
        number = hook_points.index(target.name) if inside else 0
        values, massive = program.measure(self.params[step], references, number)
        previous = self.previous(step)
        for arrays in values.values() if previous is None else ():
            for name in NEEDS_PREVIOUS_CHECKPOINT & arrays.keys():
                arrays[name] = np.full_like(arrays[name], np.nan)
        attributes = self.attributes(target, {})
        # all checkpoints that contribute to the numbers of this step
        read = sorted({step, *compared.values()})
        attributes["checkpoints"] = json.dumps({other: self.store.digest(other) for other in read})
        table = replicates_table.build_table(values, step, self.position_sets, attributes)
        table = replicates_table.add_massive(table, massive) if massive else table
        if inside:  # layer l is block l, numbered from 1
            layer = np.arange(1, table.sizes["layer"] + 1)
            return table.assign_coords(layer=layer, depth=("layer", layer / len(layer)))
        if compared:
            previous = -1 if previous is None else previous
            table[BEFORE] = xr.DataArray(previous, attrs={"long_name": PREVIOUS})
        return table

    def attributes(self, target: Target, tables: Tables) -> dict[str, Any]:
        """Describe the run and its clouds."""
        config, settings, name = self.config, self.measure, target.name
        masked = settings.masked and OBJECTIVES[config.objective].random_targets
        read = "masked as in training" if masked else "unmasked"
        attributes = run_attributes(config, self.corpus, self.name) | {
            "points": settings.points,
            "batches": settings.batches,
            "folds": settings.folds,
            "input": f"validation windows, {read}, model applied in float32",
        }
        if target.is_hook_point:
            attributes |= {
                "run": f"{self.name}, {name}",
                "hook_point": name,
                "layer_0": FIRST_BLOCK,
            }
        return attributes

    def scores(self, steps: list[int]) -> xr.Dataset:
        """Read the log of the training, and print the steps without scores."""
        lines = log.read_log(self.root)
        if lost := sorted({*steps} - log.validated_steps(lines)):
            missing = f"step{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}"
            print(
                f"{self.name}: {self.root / log.LOG_NAME} has no scores of {missing}; their tables have none either"
            )
        return scores(lines, steps)


def check_measurable(config: Config, corpus: Corpus, run: pathlib.Path) -> None:
    """Raise UserError before any work where the run could not be measured later."""
    mesh.make_mesh(config.mesh.data, config.mesh.fsdp)
    draw_probe(config, corpus)
    check_tables(open_run_source(config, corpus, run, ""))


def run_attributes(config: Config, corpus: Corpus, name: str) -> dict[str, Any]:
    """Describe a run, for tables of any kind."""
    return {
        "run": name,
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256,
        "model": describe_model(config.model),
        "objective": config.objective,
        "steps": config.train.steps,
        "seed": config.train.seed,
        "config": json.dumps(dataclasses.asdict(config)),
    }
