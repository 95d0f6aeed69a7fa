"""What the modules and settings of a pretrained model do not tell, by its `model_type`.

Blocks, final norm and matrices are found in the model itself (load_model.py, torch_gradients.py), and
checked with numbers before anything is measured (guards.py). Most architectures need no entry.
"""

from typing import Any, NamedTuple


class Adapter(NamedTuple):
    """Facts of one architecture; the defaults are those of most."""

    stack_path: str | None = (
        None  # stage with the blocks to measure, below the base; None: the base
    )
    final_norm: bool | str = (
        True  # False: a norm beside the blocks is no final norm; or the setting
    )
    score_exponent: float | None = None  # the class computes attention itself: <q, k> K^-exponent
    tokens_per_position: str | None = None  # setting that holds the number; None: 1
    model_class: str | None = None  # class that loads the weights, if not that of the settings
    extra_scores: str | None = None  # why scores are not <q, k> plus a bias by position


DISENTANGLED = Adapter(
    extra_scores="its scores also hold products of contents and relative positions"
)
OWN_ATTENTION = Adapter(score_exponent=0.5)
SPEECH = Adapter(final_norm="do_stable_layer_norm")

ADAPTERS = {
    "bloom": OWN_ATTENTION,
    # the deep stage of its three stages
    "canine": Adapter("encoder", score_exponent=0.5, tokens_per_position="downsampling_rate"),
    "clip": Adapter(model_class="CLIPTextModel"),
    "clip_vision_model": Adapter(final_norm=False),
    "deberta": DISENTANGLED,
    "deberta-v2": DISENTANGLED,
    "falcon": OWN_ATTENTION,
    "gemma2": Adapter(extra_scores="a cap (attn_logit_softcapping) bounds its scores"),
    "gpt_neo": Adapter(score_exponent=0.0),
    "gpt_oss": Adapter(extra_scores="a learned sink takes a share of each row"),
    "gptj": OWN_ATTENTION,
    "hubert": SPEECH,
    "mpnet": OWN_ATTENTION,
    "t5": Adapter("encoder", model_class="T5EncoderModel"),
    "wav2vec2": SPEECH,
    "wavlm": SPEECH._replace(extra_scores="contents gate its bias by distance"),
    "whisper": Adapter("encoder"),
}
ENTRY = "add or correct its entry in sources/hf/adapters.py"
PLAIN = Adapter()


def find_adapter(settings: Any) -> Adapter:
    """Return the facts of a model with these settings."""
    return ADAPTERS.get(settings.model_type, PLAIN)
