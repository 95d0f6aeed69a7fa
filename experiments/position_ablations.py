"""Do position encodings shape the geometry? Learned or rotary; `:tiny` is for two CPU cores.

It has a decoder and an encoder, with five seeds. Runs of a model and seed differ only in positions
and in the parameters that learned positions add (with model.tied=False also in the head's initial
values). Windows and budget are the same, with Muon at the same rate. Loss-matched contrasts need
--stages=train,measure,matched,figures.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.config.recipes import chosen
from anisoscope.experiments import mask_ablations
from anisoscope.experiments.matched_pair_small import MATCHED_PAIR
from anisoscope.experiments.optimizer_ablations import MARGINS, RATES, SEEDS, SHARED, primary
from anisoscope.utils.settings import replace

POSITIONS = ("learned", "rotary")
MARGIN_OF_SHAPE = {"middle_minus_ends": 0.05} | MARGINS
PRIMARY = primary(
    {model: tuple(f"{kind}_{model}" for kind in POSITIONS) for model in MATCHED_PAIR},
    MARGIN_OF_SHAPE,
)


def get_config(size: str = "small") -> Config:
    sizes = {"small": Config(), "tiny": mask_ablations.TINY}
    shared = SHARED | {"train.optimizer": "muon", "train.learning_rate": RATES["muon"]}
    variants = {
        f"{kind}_{model}_{seed}": MATCHED_PAIR[model]
        | {"model.position_encoding": kind, "train.seed": seed}
        for seed in SEEDS
        for model in MATCHED_PAIR
        for kind in POSITIONS
    }
    return replace(chosen(size, sizes), shared | {"variants": variants, "primary": PRIMARY})
