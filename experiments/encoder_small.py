"""Encoder matched with the decoder: only mask and objective differ.

Initial parameters, windows and budget are the same.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.experiments import decoder_small
from anisoscope.utils.settings import replace


def get_config(size: str = "small") -> Config:
    return replace(
        decoder_small.get_config(size), {"model.mask": "bidirectional", "objective": "masked"}
    )
