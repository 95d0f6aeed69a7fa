"""Do position encodings shape the geometry? Learned or rotary; `:tiny` is for two CPU cores.

It has a decoder and an encoder, with five seeds. Runs of a model and seed differ only in positions
and in the parameters that learned positions add (with model.tied=False also in the head's initial
values). Windows and budget are the same, with Muon at the same rate.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.config.variants import matched_contrasts, select_size, with_seeds
from anisoscope.experiments import mask_ablations
from anisoscope.experiments.matched_pair_small import MATCHED_PAIR
from anisoscope.experiments.optimizer_ablations import MARGINS, RATES, SEEDS, SHARED
from anisoscope.utils.settings import replace

POSITIONS = ("learned", "rotary")
PRIMARY = matched_contrasts(
    {model: (f"learned_{model}", f"rotary_{model}") for model in MATCHED_PAIR},
    {"middle_minus_ends": 0.05} | MARGINS,
)


def get_config(size: str = "small") -> Config:
    shared = SHARED | {"train.optimizer": "muon", "train.learning_rate": RATES["muon"]}
    conditions = {
        f"{kind}_{model}": MATCHED_PAIR[model] | {"model.position_encoding": kind}
        for model in MATCHED_PAIR
        for kind in POSITIONS
    }
    changes = {"variants": with_seeds(conditions, SEEDS), "primary": PRIMARY}
    return replace(select_size(size, mask_ablations.SIZES), shared | changes)
