"""Mean cosine against drift by modality, as in Anisotropy Is Inherent to Self-Attention.

`:paper` prepares texts and layers as the paper does.
"""

from typing import Any

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import ModelsConfig, collect_changes
from anisoscope.utils.settings import replace

# Families: second-hand, without networks of feature maps. The size of each, and the token models
# drawn with them: reconstruction.
MODELS = {
    "text": (
        *("google-bert/bert-base-uncased", "FacebookAI/roberta-base", "albert/albert-base-v2"),
        *("openai-community/gpt2", "facebook/opt-125m", "EleutherAI/pythia-160m"),
    ),
    "characters": (
        "helboukkouri/character-bert",
        "google/canine-s",
        "almanach/manta-lm-base",
        "google/byt5-small",
    ),
    "speech": ("facebook/wav2vec2-base", "facebook/hubert-base-ls960", "openai/whisper-base"),
    "vision": (
        *("google/vit-base-patch16-224", "microsoft/beit-base-patch16-224"),
        "facebook/deit-base-patch16-224",
    ),
}
DECODERS = ("openai-community/gpt2", "facebook/opt-125m", "EleutherAI/pythia-160m")
LISTED = {
    name: {"modality": modality, "kind": "decoder" if name in DECODERS else "encoder"}
    for modality, names in MODELS.items()
    for name in names
}

# Mean cosine of pairs, not centered, in each of `output_hidden_states`, and the norm of their mean:
# second-hand. All pairs instead of a sample, special tokens, and averages over batches only:
# reconstruction. The paper's texts, sounds and pictures are not known here.
PAPER: dict[str, Any] = {"special_tokens": True, "hidden_states": "reported", "measure.folds": 1}


def get_config(size: str = "") -> ModelsConfig:
    measure = MeasureConfig(points=4096, batches=4, families=("similarity",), nulls=())
    config = ModelsConfig(paper="inherent", models=tuple(LISTED), listed=LISTED, measure=measure)
    return replace(config, collect_changes(size, {"paper": PAPER}))
