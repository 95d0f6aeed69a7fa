"""Does the optimizer decide what positions do to anisotropy? A full 2 × 2; `:tiny` is for two cores.

Learned or rotary positions × AdamW or Muon, decoders, five seeds, at one budget: the recipes and
seeds of `optimizer_ablations.py` and `position_ablations.py`, which have three of the four cells.
Claims and bounds stand in `findings/claims/positions_by_optimizer.py`.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.config.variants import matched_contrasts, select_size, with_seeds
from anisoscope.experiments import mask_ablations
from anisoscope.experiments.optimizer_ablations import (
    MARGINS,
    RATES,
    SEEDS,
    SHARED,
    optimizer_settings,
)
from anisoscope.experiments.position_ablations import POSITIONS
from anisoscope.utils.settings import replace

OPTIMIZERS = ("adamw", "muon")
PRIMARY = matched_contrasts(
    {name: (f"{name}_learned", f"{name}_rotary") for name in OPTIMIZERS}, MARGINS
)


def get_config(size: str = "small") -> Config:
    conditions = {
        f"{name}_{kind}": optimizer_settings(name, "decoder", RATES[name])
        | {"model.position_encoding": kind}
        for name in OPTIMIZERS
        for kind in POSITIONS
    }
    changes = {"variants": with_seeds(conditions, SEEDS), "primary": PRIMARY}
    return replace(select_size(size, mask_ablations.SIZES), SHARED | changes)
