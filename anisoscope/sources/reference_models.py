"""Restore and search the checkpoints that a checkpoint is compared with."""

import numpy as np
import xarray as xr

from anisoscope.config.experiment_config import Config
from anisoscope.measurement.families.comparison_family import NEEDS_PREVIOUS_CHECKPOINT
from anisoscope.results.replicates_table import BEFORE, Arrays
from anisoscope.sources.run_program import OTHERS, Reference, RunProgram
from anisoscope.training.checkpoint import CheckpointReader
from anisoscope.utils.errors import UserError

WORDS = (
    "step of the checkpoint that cka_previous and neighbor_overlap_previous compare with; -1: none"
)


class References:
    """The references of every checkpoint: the previous checkpoint, and the last of the run."""

    def __init__(self, store: CheckpointReader, config: Config, program: RunProgram):
        self.store, self.steps, self.last = store, sorted(store.steps()), config.train.steps
        self.program, self.kept = program, {}
        self.compared = "comparison" in config.measure.families
        if self.compared and self.last not in self.steps:
            raise UserError(
                f"measure.families=comparison needs the checkpoint of the last step, {self.last}; "
                "finish the training or leave that family out"
            )

    def previous(self, step: int) -> int | None:
        """Return the step of the previous checkpoint; None for the first."""
        return max((other for other in self.steps if other < step), default=None)

    def search(self, step: int, params: dict) -> Reference:
        """Search the neighbors of a checkpoint, and keep both for later comparisons.

        Every checkpoint is searched by the same program, whether this process measures it or not:
        another program could return other neighbors where distances tie up to rounding.
        """
        if not self.compared:
            return Reference(params, None)
        if step not in self.kept:
            self.kept[step] = Reference(params, self.program.search(params))
        return self.kept[step]

    def restore(self, step: int) -> dict[str, Reference]:
        """Restore and search the references of a step.

        The first checkpoint has no previous checkpoint: the last takes its place, and
        `mask_missing` removes its values.
        """
        if not self.compared:
            return {}
        previous = self.previous(step)
        steps = self.last if previous is None else previous, self.last
        needed = {step, *steps}
        self.kept = {other: kept for other, kept in self.kept.items() if other in needed}
        for other in needed - self.kept.keys():
            self.search(other, self.store.restore_params(other))
        return {name: self.kept[other] for name, other in zip(OTHERS, steps, strict=True)}

    def digests(self, step: int) -> dict[int, str]:
        """List the digests of all checkpoints that contribute to the numbers of this step."""
        compared = {self.previous(step), self.last} - {None} if self.compared else set()
        return {other: self.store.digest(other) for other in sorted({step} | compared)}

    def variables(self, step: int) -> dict[str, xr.DataArray]:
        """Return the variable that records the previous step in the table."""
        previous = self.previous(step)
        value = xr.DataArray(-1 if previous is None else previous, attrs={"long_name": WORDS})
        return {BEFORE: value} if self.compared else {}

    def mask_missing(self, step: int, values: dict[str, Arrays]) -> dict[str, Arrays]:
        """Replace comparisons with the previous checkpoint by NaN where there is none."""
        for arrays in values.values() if self.previous(step) is None else ():
            for name in NEEDS_PREVIOUS_CHECKPOINT & arrays.keys():
                arrays[name] = np.full_like(arrays[name], np.nan)
        return values
