"""Provide the checkpoints of a run as a source, measured by one compiled program.

Letters: G batches of windows, S sets of positions.
"""

import contextlib
import functools
import json
import pathlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import xarray as xr

from anisoscope.config.experiment_config import Config
from anisoscope.config.run_config import checkpoint_steps
from anisoscope.data.corpus import Corpus
from anisoscope.results import kept_vectors, replicates_table
from anisoscope.results.scores import scores
from anisoscope.results.step_files import STREAM
from anisoscope.sources import provenance
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.sources.reference_models import References
from anisoscope.sources.run_program import draw_probe, make_program
from anisoscope.sources.source import Families, Reader, Source, Target, check_tables, targets
from anisoscope.training import checkpoint, log, replay
from anisoscope.utils import mesh
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop


@contextlib.contextmanager
def open_checkpoints(
    config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop
) -> Iterator["Checkpoints"]:
    """Open the scheduled checkpoints of a run, and the requested steps to replay."""
    steps = sorted({*checkpoint_steps(config), *config.measure.steps})
    yield Checkpoints(config, corpus, run, name, steps, replay.open_checkpoints(run), stop)


@contextlib.contextmanager
def open_extra_checkpoints(
    config: Config,
    corpus: Corpus,
    run: pathlib.Path,
    folder: str,
    steps: list[int],
    name: str,
    stop: Stop,
) -> Iterator["Checkpoints"]:
    """Open checkpoints in <run>/<folder>/checkpoints, to measure the residual stream alone."""
    config = replace(config, {"measure.hook_points": ()})
    store = checkpoint.CheckpointReader(run / "checkpoints", run / folder / "checkpoints")
    yield Checkpoints(config, corpus, run / folder, name, steps, store, stop)


@dataclass(frozen=True)
class Checkpoints(Source):
    """The checkpoints of a run as a source."""

    config: Config
    corpus: Corpus
    root: pathlib.Path
    name: str
    steps: list[int]
    store: checkpoint.CheckpointReader
    stop: Stop

    @property
    def measure(self) -> Any:
        return self.config.measure

    @property
    def independent(self) -> bool:
        return mesh.measures_independently(self.config.mesh)

    @functools.cached_property
    def made_by(self) -> dict[str, Any]:
        return provenance.made_by(self.config, self.corpus)

    @functools.cached_property
    def run_settings(self) -> dict[str, Any]:
        return provenance.run_settings(self.config)

    def stored(self) -> set[int]:
        return {*self.store.all_steps()}

    def nothing_stored(self) -> str:
        return (
            f"{self.root / 'checkpoints'} holds no checkpoint to measure; run --stages=train first"
        )

    def digest(self, step: int) -> str | None:
        return self.store.digest(step)

    def outdated(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[int, str]:
        return {
            step: "a checkpoint has changed"
            for step, table in tables.items()
            if provenance.is_outdated(table, self.store)
        }

    @contextlib.contextmanager
    def reader(self, families: dict[str, Families]) -> Iterator[Reader]:
        make_table = {}
        with provenance.advice_on_damage():
            for name, missing in families.items():
                config = replace(self.config, {"measure.families": missing})
                make_table[name] = self._compile(config, name != STREAM)

        def read(step: int, requested: Sequence[Target]) -> Iterator[tuple[Target, xr.Dataset]]:
            with provenance.advice_on_damage():
                params = self.store.restore_params(step)
            for target in requested:
                with provenance.advice_on_damage():
                    table = make_table[target.name](step, params, target)
                yield target, table

        yield read

    def _compile(
        self, config: Config, inside_blocks: bool
    ) -> Callable[[int, dict, Target], xr.Dataset]:
        """Make table(step, params, target); one program reads any hook point, by its index."""
        names = self.measure.hook_points if inside_blocks else ()
        program = make_program(config, self.corpus, names, self.independent)
        references = References(self.store, config, program)
        picks_P = program.fixed.probe.picks_SGP[0, 0]

        def make_table(step: int, params: dict, target: Target) -> xr.Dataset:
            number = names.index(target.name) if inside_blocks else 0
            checkpoint, others = references.search(step, params), references.restore(step)
            measured = program.measure(checkpoint, others, number)
            values = references.mask_missing(step, measured.values)
            digests = {"checkpoints": json.dumps(references.digests(step))}
            about = self.attributes(target, {}) | digests
            table = replicates_table.table(values, step, POSITION_SETS, about)
            if inside_blocks:
                return provenance.number_blocks(table)
            head, context = config.measure.projected_head, config.model.context
            vectors = kept_vectors.labeled(measured.vectors, picks_P, context, head)
            return table.assign(**references.variables(step), **vectors)

        return make_table

    def attributes(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[str, Any]:
        run = provenance.attributes(self.config, self.corpus, self.name)
        inside = (
            provenance.hook_point_attributes(self.name, target.name) if target.is_hook_point else {}
        )
        return run | inside

    def scores(self, steps: list[int]) -> xr.Dataset:
        """Read the log of the training, and print the steps without scores."""
        lines = log.read_log(self.root) if (self.root / log.NAME).exists() else []
        if lost := sorted({*steps} - log.validated_steps(lines)):
            missing = f"step{'s' * (len(lost) > 1)} {', '.join(map(str, lost))}"
            print(
                f"{self.name}: {self.root / log.NAME} has no scores of {missing}; their tables have none either"
            )
        return scores(lines, steps)


def check_run(config: Config, corpus: Corpus, run: pathlib.Path) -> None:
    """Raise UserError before any work where the run could not be measured later."""
    mesh.make_mesh(config.mesh)
    draw_probe(config, corpus)
    check_tables(targets(config.measure, run), provenance.made_by(config, corpus))
