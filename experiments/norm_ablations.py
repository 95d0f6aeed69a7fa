"""Mask × place of LayerNorm × seeds: which shapes follow which? `:tiny` is for two CPU cores.

A causal mask goes with the next character, a bidirectional mask with masked characters. Runs of a
mask and seed differ only in `model.norm`: initial parameters, windows, budget and learning rate
are the same, and all four learn at this rate.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import CheckpointConfig, EvaluateConfig, TrainConfig
from anisoscope.config.variants import select_size_and_recipe, with_seeds
from anisoscope.experiments import mask_ablations
from anisoscope.utils.settings import replace

SEEDS = (0, 1)
TASKS = {"causal": "next", "bidirectional": "masked"}
NORMS = ("pre", "post")
# unless another is named: Muon is known to suppress the vectors that a bell depends on
RECIPE = "rotary"
TINY = Config(
    model=ModelConfig(layers=4, width=128, heads=4, context=128, position_encoding="rotary"),
    train=TrainConfig(steps=1000, batch_size=16, learning_rate=1e-3, warmup_fraction=0.1),
    evaluate=EvaluateConfig(every=250, windows=64),
    checkpoint=CheckpointConfig(every=500),
    measure=mask_ablations.TINY.measure,
)


def get_config(size: str = "small") -> Config:
    config = select_size_and_recipe(size, {"small": Config(), "tiny": TINY}, RECIPE)
    conditions = {
        f"{mask}_{norm}": {"model.mask": mask, "objective": task, "model.norm": norm}
        for mask, task in TASKS.items()
        for norm in NORMS
    }
    return replace(config, {"variants": with_seeds(conditions, SEEDS)})
