"""Decoder: causal mask, next character. 6 layers, D = 512, T = 512, sized for one GPU; `:tiny` runs on a CPU.

A recipe may follow the size: `:tiny,gpt2` (experiments/recipes.py).
"""

from experiments import recipes
from experiments.config import Config
from models.config import ModelConfig
from training.config import CheckpointConfig, EvaluateConfig, TrainConfig

COST = {"small": "4e16 operations: a GPU's work for hours, not timed yet", "tiny": "half an hour on two CPU cores"}
TINY = Config(
    model=ModelConfig(layers=6, width=128, heads=4, context=256),
    train=TrainConfig(steps=2000, batch_size=16, learning_rate=2e-3),
    evaluate=EvaluateConfig(every=500, windows=64),
    checkpoint=CheckpointConfig(every=500),
)


def get_config(size: str = "small") -> Config:
    return recipes.sized(size, {"small": Config(), "tiny": TINY})
