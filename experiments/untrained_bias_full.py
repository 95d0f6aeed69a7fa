"""All kinds of untrained blocks under bias, stacked 1 to 12: sized for a GPU. `:tiny` is a small
one for a CPU.
"""

from anisoscope.config.untrained_config import CHOICES, UntrainedConfig
from anisoscope.experiments import untrained_bias
from anisoscope.utils.settings import replace


def get_config(size: str = "bert") -> UntrainedConfig:
    return replace(untrained_bias.get_config(size), {"blocks": 12, **CHOICES})
