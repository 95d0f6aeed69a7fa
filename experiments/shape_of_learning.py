"""Figures 1 to 4 of The Shape of Learning, from its pretrained models.

`:paper` prepares texts and layers as the paper does.
"""

from typing import Any

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import ModelsConfig, collect_changes
from anisoscope.utils.settings import replace

ENCODERS = (  # sizes: reconstruction, the paper names families
    "google-bert/bert-base-uncased",
    "google-bert/bert-large-uncased",
    "FacebookAI/roberta-base",
    "FacebookAI/roberta-large",
    "albert/albert-base-v2",
    "albert/albert-large-v2",
)
DECODERS = (  # literal; which GPT2: reconstruction
    *(f"facebook/opt-{size}" for size in ("125m", "350m", "1.3b", "2.7b", "6.7b", "13b")),
    *(f"meta-llama/Llama-2-{size}-hf" for size in ("7b", "13b", "7b-chat")),
    "openai-community/gpt2",
    "EleutherAI/gpt-j-6b",
    "tiiuae/falcon-7b",
    "tiiuae/falcon-7b-instruct",
)
BLOOM = [f"global_step{step}" for step in (1000, 10_000, *range(100_000, 700_000, 100_000))]
PYTHIA = [
    f"step{step}"
    for step in (0, 1, 8, 64, 512, 1000, 4000, 16_000, 33_000, 66_000, 100_000, 143_000)
]
CHECKPOINTS = {  # literal; which sizes of Bloom, and which steps: reconstruction
    "bigscience/bloom-560m-intermediate": BLOOM,
    "bigscience/bloom-1b7-intermediate": BLOOM,
    "bigscience/bloom-3b-intermediate": BLOOM,
    "EleutherAI/pythia-2.8b": PYTHIA,
}
SMALL = (
    *("google-bert/bert-base-uncased", "FacebookAI/roberta-base", "albert/albert-base-v2"),
    *("facebook/opt-125m", "openai-community/gpt2"),
)
# this project's choice, for machines where the paper's own do not fit
SMALLER = {"EleutherAI/pythia-70m": PYTHIA}
LISTED = (
    {name: {"modality": "text", "kind": "encoder"} for name in ENCODERS}
    | {name: {"modality": "text", "kind": "decoder"} for name in DECODERS}
    | {
        name: {"modality": "text", "kind": "decoder", "revisions": steps}
        for name, steps in (CHECKPOINTS | SMALLER).items()
    }
)

# As the published notebook has it (literal): cleaned enwik8, chunks of 512 characters with the
# tokenizer's special tokens around them, `output_hidden_states`, of which layers 1 to N - 1 are
# shown, the dimension of 4,096 vectors. Its anisotropy is that of all 14,000; the paper says
# batches of at least 4,096, their mean and deviation, as here. Reconstruction: chunks are equally
# long in tokens, 512 characters in the mean.
PAPER: dict[str, Any] = {
    "data.clean": True,
    "characters": 512,
    "special_tokens": True,
    "hidden_states": "reported",
    "measure.points": 4096,
    "measure.batches": 3,
    "measure.folds": 1,
}


def get_config(size: str = "") -> ModelsConfig:
    measure = MeasureConfig(points=4096, batches=2, families=("spectrum", "dimension"), nulls=())
    config = ModelsConfig(
        paper="shape_of_learning",
        models=(*ENCODERS, *DECODERS, *CHECKPOINTS),
        listed=LISTED,
        measure=measure,
    )
    small = {"models": (*SMALL, *SMALLER)}
    return replace(config, collect_changes(size, {"small": small, "paper": PAPER}))
