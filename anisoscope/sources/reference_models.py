"""The checkpoints that another one is compared with."""

import numpy as np
import xarray as xr

from anisoscope.config.experiment_config import Config
from anisoscope.measurement.families.comparison_family import NEEDS_PREVIOUS_CHECKPOINT
from anisoscope.results.replicates_table import BEFORE, Arrays
from anisoscope.sources.run_program import OTHERS, Reference, RunProgram
from anisoscope.training.checkpoint import Checkpoints
from anisoscope.utils.errors import UserError

WORDS = (
    "step of the checkpoint that cka_previous and neighbor_overlap_previous compare with; -1: none"
)


class References:
    """The checkpoints that one is compared with: the one before it, and the last of the run."""

    def __init__(self, store: Checkpoints, config: Config, program: RunProgram):
        self.store, self.steps, self.last = store, sorted(store.steps()), config.train.steps
        self.program, self.kept = program, {}
        self.compared = "comparison" in config.measure.families
        if self.compared and self.last not in self.steps:
            raise UserError(
                f"measure.families=comparison needs the checkpoint of the last step, {self.last}; "
                "finish the training or leave that family out"
            )

    def before(self, step: int) -> int | None:
        return max((other for other in self.steps if other < step), default=None)

    def search(self, step: int, params: dict) -> Reference:
        """Search the neighbors of a checkpoint, and keep both for those compared with it.

        Every checkpoint is searched by the same program, whether it is measured in this process or
        not: of another program, some neighbors could be others to rounding.
        """
        if not self.compared:
            return Reference(params, None)
        if step not in self.kept:
            self.kept[step] = Reference(params, self.program.search(params))
        return self.kept[step]

    def of(self, step: int) -> dict[str, Reference]:
        """Restore and search what a step is compared with.

        The first checkpoint has none before it: the last takes its place, and `without_itself`
        leaves its values out.
        """
        if not self.compared:
            return {}
        before = self.before(step)
        steps = self.last if before is None else before, self.last
        needed = {step, *steps}
        self.kept = {other: kept for other, kept in self.kept.items() if other in needed}
        for other in needed - self.kept.keys():
            self.search(other, self.store.restore_params(other))
        return {name: self.kept[other] for name, other in zip(OTHERS, steps, strict=True)}

    def digests(self, step: int) -> dict[int, str]:
        """List the digests of all checkpoints that the numbers of this one come from."""
        compared = {self.before(step), self.last} - {None} if self.compared else set()
        return {other: self.store.digest(other) for other in sorted({step} | compared)}

    def variables(self, step: int) -> dict[str, xr.DataArray]:
        """Say in the table which step it is compared with."""
        before = self.before(step)
        value = xr.DataArray(-1 if before is None else before, attrs={"long_name": WORDS})
        return {BEFORE: value} if self.compared else {}

    def without_itself(self, step: int, values: dict[str, Arrays]) -> dict[str, Arrays]:
        """Replace by NaN what would compare the first checkpoint with the one before."""
        for arrays in values.values() if self.before(step) is None else ():
            for name in NEEDS_PREVIOUS_CHECKPOINT & arrays.keys():
                arrays[name] = np.full_like(arrays[name], np.nan)
        return values
