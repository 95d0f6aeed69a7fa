"""A matched encoder–decoder pair, compared in each figure; `:tiny` runs on a CPU.

It consists of decoder_small and encoder_small.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.experiments import decoder_small
from anisoscope.utils.settings import replace

MATCHED_PAIR = {
    "decoder": {"model.mask": "causal", "objective": "next"},
    "encoder": {"model.mask": "bidirectional", "objective": "masked"},
}


def get_config(size: str = "small") -> Config:
    return replace(decoder_small.get_config(size), {"variants": MATCHED_PAIR})
