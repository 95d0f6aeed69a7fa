"""decoder_small and encoder_small in one experiment, compared in each figure; `:tiny` runs on a CPU."""

from experiments import decoder_small
from experiments.base import Config

TWINS = {
    "decoder": {"model.mask": "causal", "objective": "next"},
    "encoder": {"model.mask": "bidirectional", "objective": "masked"},
}


def get_config(size: str = "small") -> Config:
    config = decoder_small.get_config(size)
    config.variants = TWINS
    return config
