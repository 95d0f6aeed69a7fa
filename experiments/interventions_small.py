"""One intervention a run, beside plain GPT-2, at equal budget. `:tiny` runs on a CPU.

Runs share the windows, and the initial parameters but for those that an intervention adds.
"""

from experiments import decoder_small
from experiments.base import Config

INTERVENTIONS = {
    "softmax": {},
    "softmax_one": {"model.attention": "softmax_one"},
    "sigmoid": {"model.attention": "sigmoid"},
    "qk_norm": {"model.qk_norm": True},
    "centre_queries": {"model.centre_queries": True},
    "sink": {"model.sink": True},
    "isotropy": {"train.penalty": 1.0},
    "anisotropy": {"train.penalty": -1.0},
}


def get_config(size: str = "small") -> Config:
    config = decoder_small.get_config(size)
    config.variants = INTERVENTIONS
    return config
