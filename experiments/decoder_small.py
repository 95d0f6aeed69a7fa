"""Decoder: causal mask, next character; `:tiny` runs on a CPU.

It has 6 layers, width 512 and context 512, sized for a single GPU. A recipe may follow the size:
`:tiny,gpt2` (config/variants.py).
"""

from anisoscope.config.experiment_config import Config
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import CheckpointConfig, EvaluateConfig, TrainConfig
from anisoscope.config.variants import select_size_and_recipe

TINY = Config(
    model=ModelConfig(layers=6, width=128, heads=4, context=256),
    train=TrainConfig(steps=2000, batch_size=16, learning_rate=2e-3),
    evaluate=EvaluateConfig(every=500, windows=64),
    checkpoint=CheckpointConfig(every=500),
)


def get_config(size: str = "small") -> Config:
    return select_size_and_recipe(size, {"small": Config(), "tiny": TINY})
