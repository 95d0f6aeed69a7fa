"""Mask × objective × seeds: which shapes follow the mask, and which the objective?

`:tiny` is for two CPU cores. Runs of a seed differ only in mask and objective: initial parameters,
windows and budget are the same. The next character is predicted only under masks that hide it;
bidirectional and leaking masks show it and predict masked characters only. Windows and prefixes
have the lengths that go with the size's own context, also under another one.
"""

from typing import Any

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import CheckpointConfig, EvaluateConfig, TrainConfig
from anisoscope.config.variants import matched_contrasts, select_size_and_recipe, with_seeds
from anisoscope.utils.settings import replace

SEEDS = (2, 3, 4, 5, 6)  # 0 and 1 were already seen while this was built
LEAKS = {"leak_01": 0.01, "leak_10": 0.1}  # of the pairs (query, later key)
# many runs, so `tiny` is smaller than elsewhere, and less is measured
TINY = Config(
    model=ModelConfig(layers=4, width=64, heads=4, context=128),
    train=TrainConfig(steps=1200, batch_size=16, learning_rate=3e-3),
    evaluate=EvaluateConfig(every=250, windows=64, draws=4),
    checkpoint=CheckpointConfig(every=500),
    measure=MeasureConfig(
        points=2048,
        batches=2,
        families=("spectrum", "outliers", "leading", "dimension", "similarity", "attention"),
        nulls=("gaussian", "untrained"),
    ),
)
SIZES = {"small": Config(), "tiny": TINY}
# Loss-matched, each with the change that would still count as none: a fifth of what anisotropy
# grows in a decoder of this size, a middle as far above the ends as its noise, a fifth of a
# doubling of the dimension, half a doubling of the drift.
MARGINS = {"growth": 0.05, "middle_minus_ends": 0.05, "expansion": 0.2, "drift_growth": 0.5}
PAIRS = {
    "by_objective": ("causal_next", "causal_masked"),
    "by_mask": ("causal_masked", "bidirectional_masked"),
}
PRIMARY = matched_contrasts(PAIRS, MARGINS)
HIDING = ("causal", "window", "prefix")  # masks under which the next character is a task


def get_config(size: str = "small") -> Config:
    config = select_size_and_recipe(size, SIZES)
    return replace(config, {"variants": variants(config.model.context), "primary": PRIMARY})


def masks(context: int) -> dict[str, dict[str, Any]]:
    """List masks: a window has an eighth of the size's own context, a prefix a quarter."""
    return {
        "causal": {"model.mask": "causal"},
        "window": {"model.mask": "window", "model.window": context // 8},
        "prefix": {"model.mask": "prefix", "model.prefix": context // 4},
        **{name: {"model.mask": "leak", "model.leak": leak} for name, leak in LEAKS.items()},
        "bidirectional": {"model.mask": "bidirectional"},
    }


def variants(context: int) -> dict[str, dict[str, Any]]:
    """Make the variants; a seed decides initial parameters, windows, masked characters and leaks."""
    conditions = {
        f"{mask}_{objective}": settings | {"objective": objective}
        for objective in ("next", "masked")
        for mask, settings in masks(context).items()
        if objective == "masked" or mask in HIDING
    }
    runs = with_seeds(conditions, SEEDS)
    return {name: run | {"model.leak_seed": run["train.seed"]} for name, run in runs.items()}
