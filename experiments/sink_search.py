"""At which size, length and recipe does a character decoder form an attention sink?

The sizes are `:tiny`, `:together` and `:found`.

Each run changes one thing in the first, in the order of how much it favors a sink in Gu et al.
(arXiv 2410.10781; its tables read second-hand; share of the heads with a sink, of models of 60M
parameters after 5B tokens): weight decay 0.5 in place of 0.1 (41 % against 18 %), learned in place
of rotary positions (33 %), twice the learning rate (32 %), an uninformative first token (27 %).
`:together` has all of these, then longer training, more layers, more width and longer windows on
top; `:found` changes one thing in the long run and in the deep one, and with rotary positions the
mask and the norm. AdamW in all but two: Muon is known to suppress outliers. With 50M tokens Gu et
al. find next to none, and a run here sees 6 to 37 million characters. The table is runs.csv.
"""

from typing import Any

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.variants import select_size
from anisoscope.experiments import decoder_small
from anisoscope.utils.settings import replace

ALONE: dict[str, dict[str, Any]] = {
    "plain": {},
    "decay": {"train.weight_decay": 0.5},
    "learned": {"model.position_encoding": "learned"},
    "rate": {"train.learning_rate": 4e-3},
    "same_first": {"model.same_first": True},
}
ALL = {name: value for changes in ALONE.values() for name, value in changes.items()}
# as many steps of warm-up as with 4,500
LONGER = {"train.steps": 9000, "train.warmup_fraction": 0.025}
TOGETHER: dict[str, dict[str, Any]] = {
    "together": {},
    "together_long": {"train.steps": 4500},
    "together_longer": LONGER,
    "together_deep": {"model.layers": 12},
    "together_wide": {"model.width": 256},
    "together_context": {"model.context": 512, "train.batch_size": 8},
}
DEEP = {"model.layers": 12, "train.steps": 1500}
ROTARY = {"model.position_encoding": "rotary"}
# with AdamW and learned positions it hardly learns
MASKED = {"model.mask": "bidirectional", "objective": "masked"}
POST = {"model.norm": "post"}
# An encoder with learned positions learns under Muon. A step takes a tenth of the decay that the
# other runs have: 0.1 of the smaller rate 0.002, in place of 0.5 of 0.004.
MUON = {"train.optimizer": "muon", "train.learning_rate": 0.02, "train.weight_decay": 0.1}
FOUND: dict[str, dict[str, Any]] = {
    "long": {},  # together_long
    "softmax_one": {"model.attention": "softmax_one"},
    "varying_first": {"model.same_first": False},
    "longer": LONGER,  # together_longer
    "longer_softmax_one": LONGER | {"model.attention": "softmax_one"},
    "longer_varying_first": LONGER | {"model.same_first": False},
    "post_norm": POST,
    "post_norm_softmax_one": POST | {"model.attention": "softmax_one"},
    "post_norm_masked": POST | MASKED,
    "rotary": ROTARY,
    "rotary_masked": ROTARY | MASKED,
    "rotary_post_norm": ROTARY | POST,
    "rotary_post_norm_masked": ROTARY | POST | MASKED,
    "muon": MUON,
    "muon_masked": MUON | MASKED,
    "deep": DEEP,  # together_deep
    "deep_rotary": DEEP | ROTARY,
}
FAMILIES = ("spectrum", "leading", "similarity", "attention")


def get_config(size: str = "small") -> Config:
    measure = MeasureConfig(points=2048, batches=2, families=FAMILIES, nulls=())
    shared = {
        "model.position_encoding": "rotary",
        "train.schedule": "constant",
        "train.learning_rate": 2e-3,
    }
    tiny = replace(
        decoder_small.TINY,
        shared | {"model.layers": 4, "train.steps": 1500, "checkpoint.every": 250},
    )
    sizes = {"small": replace(Config(), shared), "tiny": tiny, "together": replace(tiny, ALL)}
    sizes["found"] = replace(sizes["together"], {"train.steps": 4500})
    variants = {"together": TOGETHER, "found": FOUND}.get(size, ALONE)
    return replace(select_size(size, sizes), {"measure": measure, "variants": variants})
