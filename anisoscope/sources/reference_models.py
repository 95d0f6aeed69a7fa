"""The checkpoints that another one is compared with.

Letters: G probe batches, S sets of positions.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import xarray as xr

from anisoscope.config.experiment_config import Config
from anisoscope.measurement.families.comparison_family import OF_PREVIOUS
from anisoscope.measurement.resampling import Searched
from anisoscope.results.replicates_table import Arrays
from anisoscope.sources.activations import Measured
from anisoscope.training.checkpoint import Checkpoints
from anisoscope.utils.errors import UserError

OTHERS = ("previous", "last")


class Reference(NamedTuple):
    params: dict
    # as the program found them: of another one, some could be others to rounding
    nearest_GS: Searched


class References:
    """The checkpoints that one is compared with: the one before it, and the last of the run.

    Their neighbours are those that were found when they were measured. Where they were not measured
    in this process, `measure`, the same program, searches them alone.
    """

    def __init__(self, store: Checkpoints, config: Config, measure: Callable[..., Measured]):
        self.store, self.stored, self.final = store, sorted(store.steps()), config.train.steps
        self.measure, self.kept = measure, {}
        self.wanted = "comparison" in config.measure.families
        if self.wanted and self.final not in self.stored:
            raise UserError(
                f"measure.families=comparison needs the checkpoint of the last step, {self.final}; "
                "finish the training or leave that family out"
            )

    def of(self, step: int) -> dict[str, Reference]:
        """The first checkpoint has none before it: the last takes its place, and its values are
        left out.
        """
        if not self.wanted:
            return {}
        before = self.before(step)
        steps = self.final if before is None else before, self.final
        self.kept = {one: self.kept.get(one) or self._searched(one) for one in {*steps}}
        return {name: self.kept[one] for name, one in zip(OTHERS, steps, strict=True)}

    def _searched(self, step: int) -> Reference:
        params = self.store.restore_params(step)
        return Reference(params, self.measure(params, {}).nearest_GS)

    def keep(self, step: int, params: dict, measured: Measured) -> None:
        """For those that will be compared with it."""
        if self.wanted:
            self.kept[step] = Reference(params, measured.nearest_GS)

    def before(self, step: int) -> int | None:
        return max((other for other in self.stored if other < step), default=None)

    def digests(self, step: int) -> dict[int, str]:
        """Of all checkpoints that the numbers of this one come from."""
        compared = {self.before(step), self.final} - {None} if self.wanted else set()
        return {one: self.store.digest(one) for one in sorted({step} | compared)}

    def recorded(self, step: int) -> dict[str, xr.DataArray]:
        """The step that this one is compared with, where it is."""
        before = self.before(step)
        about = {
            "long_name": "step of the checkpoint that cka_previous and overlap_previous compare with; -1: none"
        }
        return (
            {"previous_step": xr.DataArray(-1 if before is None else before, attrs=about)}
            if self.wanted
            else {}
        )

    def without_itself(self, step: int, values: dict[str, Arrays]) -> dict[str, Arrays]:
        """The first checkpoint has none before it: NaN."""
        for arrays in values.values() if self.before(step) is None else ():
            for name in OF_PREVIOUS & arrays.keys():
                arrays[name] = np.full_like(arrays[name], np.nan)
        return values
