"""The checkpoints that another one is compared with."""

import numpy as np
import xarray as xr

from experiments.config import Config
from panel.comparison import OF_PREVIOUS
from tables.raw import Arrays
from training.checkpoint import Checkpoints
from workdir.errors import UserError

REFERENCES = ("previous", "last")


class References:
    """The parameters that a checkpoint is compared with: those before it, and the last of the run."""

    def __init__(self, store: Checkpoints, config: Config):
        self.store, self.stored, self.final, self.kept = store, sorted(store.steps()), config.train.steps, None
        self.wanted = "comparison" in config.measure.families
        if self.wanted and self.final not in self.stored:
            raise UserError(
                f"measure.families=comparison needs the checkpoint of the last step, {self.final}; "
                "finish the training or leave that family out"
            )
        self.last = store.restore_params(self.final) if self.wanted else None

    def of(self, step: int, params: dict) -> dict[str, dict]:
        if not self.wanted:
            return {}
        before = self.before(step)
        if self.kept is None or self.kept[0] != before:
            self.kept = before, params if before is None else self.store.restore_params(before)
        previous, self.kept = self.kept[1], (step, params)
        return dict(zip(REFERENCES, (previous, self.last), strict=True))

    def before(self, step: int) -> int | None:
        return max((other for other in self.stored if other < step), default=None)

    def digests(self, step: int) -> dict[int, str]:
        """Of all checkpoints that the numbers of this one come from."""
        compared = {self.before(step), self.final} - {None} if self.wanted else set()
        return {one: self.store.digest(one) for one in sorted({step} | compared)}

    def recorded(self, step: int) -> dict[str, xr.DataArray]:
        """The step that this one is compared with, where it is."""
        before = self.before(step)
        about = {"long_name": "step of the checkpoint that cka_previous and overlap_previous compare with; -1: none"}
        return {"previous_step": xr.DataArray(-1 if before is None else before, attrs=about)} if self.wanted else {}

    def without_itself(self, step: int, values: dict[str, Arrays]) -> dict[str, Arrays]:
        """The first checkpoint has none before it: NaN."""
        for arrays in values.values() if self.before(step) is None else ():
            for name in OF_PREVIOUS & arrays.keys():
                arrays[name] = np.full_like(arrays[name], np.nan)
        return values
