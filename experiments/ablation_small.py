"""The grid mask × objective: what follows the causal mask, and what the objective? `:tiny` runs on a CPU.

Its fourth cell, next character under a bidirectional mask, is no task: the answer stands in the input.
"""

from experiments import decoder_small
from experiments.base import Config


def get_config(size: str = "small") -> Config:
    config = decoder_small.get_config(size)
    config.variants = {
        "causal_next": {"model.mask": "causal", "objective": "next"},
        "causal_masked": {"model.mask": "causal", "objective": "masked"},
        "bidirectional_masked": {"model.mask": "bidirectional", "objective": "masked"},
    }
    return config
