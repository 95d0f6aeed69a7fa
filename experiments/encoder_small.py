"""Encoder: the decoder's twin. Only mask and objective differ: same initial parameters, windows and budget."""

from experiments import decoder_small
from experiments.base import Config


def get_config(size: str = "small") -> Config:
    config = decoder_small.get_config(size)
    config.model.mask = "bidirectional"
    config.objective = "masked"
    return config
