"""What has to be known of an architecture: an entry each, by `model_type` of its settings."""

from typing import Any, NamedTuple

from workdir.errors import UserError


class Adapter(NamedTuple):
    """Queries and keys need no entry: they are caught where attention takes them, in one place for all."""

    block: str  # the class whose output is the residual stream after a block
    final_norm: str | None  # the norm after the last block, below the base model; None where there is none
    inner: str | None = None  # a setting by which the number of layers is multiplied
    part: str | None = None  # what holds the blocks, below the base model, where others have the same class
    maps: bool = False  # blocks give maps, whose size and width change from stage to stage; {} in a norm is the stage


ADAPTERS = {
    "albert": Adapter("AlbertLayer", None, inner="inner_group_num"),
    "bert": Adapter("BertLayer", None),
    "gpt2": Adapter("GPT2Block", "ln_f"),
    "gpt_neox": Adapter("GPTNeoXLayer", "final_layer_norm"),
    "llama": Adapter("LlamaDecoderLayer", "norm"),
    "mistral": Adapter("MistralDecoderLayer", "norm"),
    "opt": Adapter("OPTDecoderLayer", "decoder.final_layer_norm"),
    "qwen2": Adapter("Qwen2DecoderLayer", "norm"),
}

SENSES = {  # what reads pictures or sound, and no text
    "beit": Adapter("BeitLayer", "layernorm"),
    "convnext": Adapter("ConvNextLayer", None, maps=True),
    "cvt": Adapter("CvtLayer", None, maps=True),
    "deit": Adapter("DeiTLayer", "layernorm"),
    "efficientnet": Adapter("EfficientNetBlock", None, maps=True),
    "hubert": Adapter("HubertEncoderLayer", None),
    "hubert, norm first": Adapter("HubertEncoderLayerStableLayerNorm", "encoder.layer_norm"),
    "resnet": Adapter("ResNetBottleNeckLayer", None, maps=True),
    "resnet, basic": Adapter("ResNetBasicLayer", None, maps=True),
    "segformer": Adapter("SegformerLayer", "stages.{}.layer_norm", maps=True),
    "vit": Adapter("ViTLayer", "layernorm"),
    "wav2vec2": Adapter("Wav2Vec2EncoderLayer", None),
    "wav2vec2, norm first": Adapter("Wav2Vec2EncoderLayerStableLayerNorm", "encoder.layer_norm"),
    "whisper": Adapter("WhisperEncoderLayer", "encoder.layer_norm", part="encoder"),
}
VARIANTS = {"do_stable_layer_norm": {True: "norm first"}, "layer_type": {"basic": "basic"}}  # settings that tell kinds


def kind_of(settings: Any) -> str:
    """The name of an entry: the type of a model, and which kind of block it has where there are two."""
    words = [settings.model_type]
    if words[0] in SENSES:
        words += [kinds[value] for name, kinds in VARIANTS.items() if (value := getattr(settings, name, None)) in kinds]
    return ", ".join(words)


def adapter_of(kind: str) -> Adapter:
    there = ADAPTERS | SENSES
    if kind not in there:
        raise UserError(
            f"models of type {kind!r} have no entry in pretrained/adapters.py; "
            f"those with one are {', '.join(sorted(there))}"
        )
    return there[kind]
