"""Do positions make the geometry? Learned or rotary, decoder and encoder, five seeds; `:tiny` is
for two CPU cores.

Runs of one model and seed differ in positions alone, and in the parameters that learned ones add
(under model.tied=False in the head's initial values too): same windows and budget, Muon at one
rate. Loss-matched contrasts need --stages=train,measure,matched,figures.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.config.recipes import chosen
from anisoscope.experiments import mask_ablations
from anisoscope.experiments.matched_pair_small import MATCHED_PAIR
from anisoscope.experiments.optimizer_ablations import MARGINS, RATES, SEEDS, SHARED, primary
from anisoscope.utils.settings import replace

POSITIONS = ("learned", "rotary")
ASKED = {"middle_minus_ends": 0.05} | MARGINS
PRIMARY = primary(
    {model: tuple(f"{kind}_{model}" for kind in POSITIONS) for model in MATCHED_PAIR}, ASKED
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
