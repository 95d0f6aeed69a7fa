"""Does the optimizer shape the geometry? AdamW, Muon or SGD; `:tiny` is for two CPU cores.

The optimizers differ only for the blocks' matrices; the rest has AdamW at the same learning rate.
Runs of a model and seed have the same initial parameters, windows and budget. `:rates`
tries several learning rates for each optimizer on a separate seed. The rate with the smallest sum
of both models' last valid_bits belongs in RATES.
"""

from typing import Any

from anisoscope.config.experiment_config import Config
from anisoscope.config.variants import ROTARY, matched_contrasts, select_size, with_seeds
from anisoscope.experiments import mask_ablations
from anisoscope.experiments.matched_pair_small import MATCHED_PAIR
from anisoscope.utils.settings import replace

SEEDS = (2, 3, 4, 5, 6)
REST = 0.002  # AdamW's learning rate for everything but the matrices of blocks
TRIED = {
    "adamw": (0.001, 0.002, 0.004, 0.008),
    "muon": (0.005, 0.01, 0.02, 0.04),
    "sgd": (0.015, 0.03, 0.06, 0.1, 0.3, 1.0),
}
# the best of these (docs/explanation/decisions.md)
RATES = {"adamw": 0.004, "muon": 0.02, "sgd": 0.03}
# Loss-matched, in the decoder. What would still count as no change: as in mask_ablations.py, and a
# quarter of a doubling for shapes in log2 units.
MARGINS = {
    "last_anisotropy": 0.05,
    "last_dimension": 0.2,
    "last_drift": 0.5,
    "last_outliers": 0.25,
    "last_query_drift": 0.5,
    "last_key_drift": 0.5,
}
SHARED = ROTARY | {"train.other_learning_rate": REST}
PRIMARY = matched_contrasts(
    {name: ("adamw_decoder", f"{name}_decoder") for name in ("muon", "sgd")}, MARGINS
)


def get_config(size: str = "small") -> Config:
    sizes = mask_ablations.SIZES | {"rates": replace(mask_ablations.TINY, {"train.steps": 500})}
    config = replace(select_size(size, sizes), SHARED)
    if size != "rates":
        runs = {
            f"{name}_{model}": optimizer_settings(name, model, rate)
            for model in MATCHED_PAIR
            for name, rate in RATES.items()
        }
        return replace(config, {"variants": with_seeds(runs, SEEDS), "primary": PRIMARY})
    trials = {  # numbered from 1 in their names
        f"{name}_{place}_{model}": optimizer_settings(name, model, rate) | {"train.seed": 0}
        for name, rates in TRIED.items()
        for place, rate in enumerate(rates, 1)
        for model in MATCHED_PAIR
    }
    return replace(config, {"variants": trials})


def optimizer_settings(optimizer: str, model: str, rate: float) -> dict[str, Any]:
    return {"train.optimizer": optimizer, "train.learning_rate": rate} | MATCHED_PAIR[model]
