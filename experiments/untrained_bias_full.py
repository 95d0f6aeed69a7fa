"""Untrained blocks of all kinds with a common bias, 1 to 12 blocks deep, sized for a GPU.

`:tiny` runs on a CPU.
"""

from anisoscope.config.untrained_config import CHOICES, UntrainedConfig
from anisoscope.experiments import untrained_bias
from anisoscope.utils.settings import replace


def get_config(size: str = "bert") -> UntrainedConfig:
    return replace(untrained_bias.get_config(size), {"blocks": 12, **CHOICES})
