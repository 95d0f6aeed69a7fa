"""Encoder: the decoder's twin. Only mask and objective differ: same initial parameters, windows and budget."""

from experiments import decoder_small
from experiments.config import Config
from workdir.settings import replace

COST = {"small": "as decoder_small.py", "tiny": "half an hour on two CPU cores"}


def get_config(size: str = "small") -> Config:
    return replace(decoder_small.get_config(size), {"model.mask": "bidirectional", "objective": "masked"})
