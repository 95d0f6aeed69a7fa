"""Are the phases of training those of skewed frequencies? A decoder for texts with homophones.

Li et al. (arXiv 2509.23024, read second-hand) find a collapse, a growth and a compression of the
effective rank, and explain them by skewed frequencies of tokens and more tokens than the width.
`findings/scripts/homophones.py` writes a text in four ways: with fewer or more symbols than the
width 64, and with natural or flattened frequencies. Each is a run of its own, with data.path and
train.seed on the command line; the runs of a seed have the same windows. The predictions and their
bounds stand in `findings/claims/phases.py`. The recipe is that of `scale_ladder.py:220k,rotary`,
and gain over unigram is in bits per character: the choice of a homophone cancels.
"""

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.experiments import scale_ladder
from anisoscope.utils.settings import replace

SETTINGS = {"variants": {}, "train.num_seeds": 1, "checkpoint.every": 500}


def get_config() -> Config:
    measure = MeasureConfig(
        points=1024, batches=2, families=("spectrum", "dimension"), nulls=("gaussian",)
    )
    return replace(scale_ladder.get_config("220k,rotary"), SETTINGS | {"measure": measure})
