"""All kinds of untrained blocks under bias, stacked 1 to 12: sized for a GPU. `:tiny` is a small one for a CPU."""

from experiments import untrained_bias
from experiments.untrained import CHOICES, UntrainedConfig


def get_config(size: str = "bert") -> UntrainedConfig:
    config = untrained_bias.get_config(size)
    config.blocks = 12
    for name, all_of_them in CHOICES.items():
        setattr(config, name, all_of_them)
    return config
