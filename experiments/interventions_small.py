"""Interventions on a decoder, each compared with the plain decoder; `:tiny` is for two CPU cores.

All runs have the same budget, with five seeds. Runs of a seed share the windows and the initial
parameters, except those that an intervention adds.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.config.variants import matched_contrasts, select_size_and_recipe, with_seeds
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
# does anisotropy grow differently? a change of 0.05 would still count as no
PRIMARY = matched_contrasts(
    {name: ("softmax", name) for name in INTERVENTIONS if name != "softmax"},
    {"growth": mask_ablations.MARGINS["growth"]},
)


def get_config(size: str = "small") -> Config:
    changes = {"variants": with_seeds(INTERVENTIONS, mask_ablations.SEEDS), "primary": PRIMARY}
    return replace(select_size_and_recipe(size, mask_ablations.SIZES), changes)
