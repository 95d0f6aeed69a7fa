"""All kinds of untrained blocks under bias, stacked 1 to 12: sized for a GPU. `:tiny` is a small one for a CPU."""

from experiments import untrained_bias
from untrained.config import CHOICES, UntrainedConfig
from workdir.settings import replace

COST = {"bert": "a GPU's work, not timed yet", "tiny": "minutes on two CPU cores"}


def get_config(size: str = "bert") -> UntrainedConfig:
    return replace(untrained_bias.get_config(size), {"blocks": 12, **CHOICES})
