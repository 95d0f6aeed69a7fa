"""What has to be known of an architecture: an entry each, by `model_type` of its settings."""

from typing import Any, NamedTuple


class Adapter(NamedTuple):
    """Queries and keys need no entry: they are caught where attention takes them, in one place for all."""

    block: str | None  # the class whose output is the residual stream after a block; None: it is not known
    final_norm: str | None = None  # the norm after the last block, below the base model; None where there is none
    after: str | None = None  # a further map after that, where a model has it
    inner: str | None = None  # a setting by which the number of layers is multiplied
    part: str | None = None  # what holds the blocks, below the base model, where others have the same class
    maps: bool = False  # blocks give maps, whose size and width change from stage to stage; {} in a norm is the stage
    own: float | None = None  # of a class that computes attention by itself, from scores <q, k> K^-own
    rate: str | None = None  # a setting that says how many tokens share a position of these blocks
    before: str | None = None  # a setting whose positions, and one more, come before that of token 0
    model: str | None = None  # the class that reads the weights, where it is not that of the settings


ADAPTERS = {
    "albert": Adapter("AlbertLayer", inner="inner_group_num"),
    "bert": Adapter("BertLayer"),
    "bloom": Adapter("BloomBlock", "ln_f", own=0.5),
    "canine": Adapter("CanineLayer", part="encoder", own=0.5, rate="downsampling_rate"),  # of its three stages the deep
    "distilbert": Adapter("TransformerBlock"),
    "electra": Adapter("ElectraLayer"),
    "eurobert": Adapter("EuroBertDecoderLayer", "norm"),
    "falcon": Adapter("FalconDecoderLayer", "ln_f", own=0.5),
    "gpt2": Adapter("GPT2Block", "ln_f"),
    "gpt_neo": Adapter("GPTNeoBlock", "ln_f", own=0.0),
    "gpt_neox": Adapter("GPTNeoXLayer", "final_layer_norm"),
    "gptj": Adapter("GPTJBlock", "ln_f", own=0.5),
    "llama": Adapter("LlamaDecoderLayer", "norm"),
    "mistral": Adapter("MistralDecoderLayer", "norm"),
    "modernbert": Adapter("ModernBertEncoderLayer", "final_norm"),
    "olmo": Adapter("OlmoDecoderLayer", "norm"),
    "olmo2": Adapter("Olmo2DecoderLayer", "norm"),
    "opt": Adapter("OPTDecoderLayer", "decoder.final_layer_norm", after="decoder.project_out"),
    "qwen2": Adapter("Qwen2DecoderLayer", "norm"),
    "roberta": Adapter("RobertaLayer", before="pad_token_id"),
    "t5": Adapter("T5Block", "encoder.final_layer_norm", part="encoder", model="T5EncoderModel"),
}
UNKNOWN = Adapter(None)  # of it `hidden_states` is taken as it comes, and no queries and keys

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
    return (ADAPTERS | SENSES).get(kind, UNKNOWN)
