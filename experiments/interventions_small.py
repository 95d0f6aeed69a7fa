"""One intervention a run, beside plain GPT-2, at equal budget and with several seeds. `:tiny` is for two CPU cores.

Runs of one seed share the windows, and the initial parameters but for those that an intervention adds.
"""

from experiments import mask_laboratory
from experiments.config import Config
from workdir.settings import replace

COST = {"small": "16 times decoder_small.py", "tiny": "an hour or two on two CPU cores"}

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
    variants = {
        f"{name}_{seed}": settings | {"train.seed": seed}
        for seed in mask_laboratory.SEEDS
        for name, settings in INTERVENTIONS.items()
    }
    return replace(mask_laboratory.sized(size), {"variants": variants})
