"""Interventions on a decoder, each compared with the plain decoder; `:tiny` is for two CPU cores.

All runs have the same budget, with five seeds. Runs of a seed share the windows and the initial
parameters, except those that an intervention adds. Loss-matched contrasts need
--stages=train,measure,matched,figures.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.experiments import mask_ablations
from anisoscope.utils.settings import replace

INTERVENTIONS = {
    "softmax": {},
    "softmax_one": {"model.attention": "softmax_one"},
    "sigmoid": {"model.attention": "sigmoid"},
    "qk_norm": {"model.qk_norm": True},
    "center_queries": {"model.center_queries": True},
    "sink": {"model.sink": True},
    "isotropy": {"train.penalty": 1.0},
    "anisotropy": {"train.penalty": -1.0},
}
PRIMARY = {  # does anisotropy grow otherwise? 0.05 would still count as no
    f"growth_{name}": {
        **{"quantity": "growth", "before": "softmax", "after": name, "at": "matched"},
        "margin": mask_ablations.MARGINS["growth"],
    }
    for name in INTERVENTIONS
    if name != "softmax"
}


def get_config(size: str = "small") -> Config:
    variants = {
        f"{name}_{seed}": settings | {"train.seed": seed}
        for seed in mask_ablations.SEEDS
        for name, settings in INTERVENTIONS.items()
    }
    return replace(mask_ablations.sized(size), {"variants": variants, "primary": PRIMARY})
