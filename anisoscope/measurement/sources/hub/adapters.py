"""What has to be known of an architecture: an entry each, by `model_type` of its settings."""

from typing import Any, NamedTuple

from anisoscope.measurement.sources.hub import kernels
from anisoscope.measurement.sources.hub.kernels import Kernels


class Adds(NamedTuple):
    """What a block adds to the residual stream: outputs of modules below it."""

    attention: str
    mlp: str  # the same module twice: what it gives first, and then
    norms: tuple[str, str] | None = None  # of blocks that take a norm after each of the two is added
    times: str | None = None  # a setting by which what they give is multiplied


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
    adds: Adds | None = None  # None: it is not known, and `measure.hook_points` is refused
    kernels: Kernels | None = None  # None: not known, or one set for all blocks; `tangents` leaves matrices out
    mixed: str | None = None  # what makes its scores more than <q, k> and a bias by position: no queries and keys then


PLAIN = Adds("self_attn", "mlp")
OF_BERT = Adds("attention.output.dense", "output.dense", ("attention.output.LayerNorm", "output.LayerNorm"))
OF_ALBERT = Adds("attention.dense", "ffn_output", ("attention.LayerNorm", "full_layer_layer_norm"))
OF_OPT = Adds("self_attn", "fc2", ("self_attn_layer_norm", "final_layer_norm"))  # settings say whether norms are after
OF_SPEECH = Adds("attention", "feed_forward", ("layer_norm", "final_layer_norm"))
NORMED = Adds("post_attention_layernorm", "post_feedforward_layernorm")  # what is added is normed first
DISENTANGLED = "its scores also hold products of contents and relative positions"
CAPPED = "a cap (attn_logit_softcapping) bounds its scores"
SINK = "a learned sink takes a share of each row"
GATED_BIAS = "contents gate its bias by distance"

ADAPTERS = {
    "albert": Adapter("AlbertLayer", inner="inner_group_num", adds=OF_ALBERT),
    "bert": Adapter("BertLayer", adds=OF_BERT, kernels=kernels.BERT),
    "bloom": Adapter(
        "BloomBlock", "ln_f", own=0.5, adds=Adds("self_attention.dense", "mlp.dense_4h_to_h"), kernels=kernels.BLOOM
    ),
    "camembert": Adapter("CamembertLayer", before="pad_token_id", adds=OF_BERT, kernels=kernels.BERT),
    "canine": Adapter(
        "CanineLayer", part="encoder", own=0.5, rate="downsampling_rate", adds=OF_BERT
    ),  # of its three stages the deep
    "clip": Adapter("CLIPEncoderLayer", "final_layer_norm", model="CLIPTextModel", adds=PLAIN, kernels=kernels.CLIP),
    "clip_text_model": Adapter("CLIPEncoderLayer", "final_layer_norm", adds=PLAIN, kernels=kernels.CLIP),
    "cohere": Adapter("CohereDecoderLayer", "norm", adds=PLAIN, kernels=kernels.GATED),
    "deberta": Adapter("DebertaLayer", adds=OF_BERT, kernels=kernels.DEBERTA, mixed=DISENTANGLED),
    "deberta-v2": Adapter("DebertaV2Layer", adds=OF_BERT, kernels=kernels.DEBERTA_V2, mixed=DISENTANGLED),
    "distilbert": Adapter(
        "TransformerBlock",
        adds=Adds("attention", "ffn", ("sa_layer_norm", "output_layer_norm")),
        kernels=kernels.DISTILBERT,
    ),
    "electra": Adapter("ElectraLayer", adds=OF_BERT, kernels=kernels.BERT),
    "eurobert": Adapter("EuroBertDecoderLayer", "norm", adds=PLAIN, kernels=kernels.GATED),
    "falcon": Adapter("FalconDecoderLayer", "ln_f", own=0.5, adds=Adds("self_attention", "mlp"), kernels=kernels.BLOOM),
    "gemma": Adapter("GemmaDecoderLayer", "norm", adds=PLAIN, kernels=kernels.GATED),
    "gemma2": Adapter("Gemma2DecoderLayer", "norm", adds=NORMED, kernels=kernels.GATED, mixed=CAPPED),
    "gemma3_text": Adapter("Gemma3DecoderLayer", "norm", adds=NORMED, kernels=kernels.GATED),
    "gpt2": Adapter("GPT2Block", "ln_f", adds=Adds("attn", "mlp"), kernels=kernels.GPT2),
    "gpt_neo": Adapter("GPTNeoBlock", "ln_f", own=0.0, adds=Adds("attn", "mlp"), kernels=kernels.GPT_NEO),
    "gpt_neox": Adapter("GPTNeoXLayer", "final_layer_norm", adds=Adds("attention", "mlp"), kernels=kernels.GPT_NEOX),
    "gpt_oss": Adapter("GptOssDecoderLayer", "norm", adds=PLAIN, mixed=SINK),
    "gptj": Adapter("GPTJBlock", "ln_f", own=0.5, adds=Adds("attn", "mlp"), kernels=kernels.GPTJ),
    "granite": Adapter(
        "GraniteDecoderLayer",
        "norm",
        adds=Adds("self_attn", "mlp", times="residual_multiplier"),
        kernels=kernels.GATED,
    ),
    "llama": Adapter("LlamaDecoderLayer", "norm", adds=PLAIN, kernels=kernels.GATED),
    "mistral": Adapter("MistralDecoderLayer", "norm", adds=PLAIN, kernels=kernels.GATED),
    "mixtral": Adapter("MixtralDecoderLayer", "norm", adds=PLAIN),  # the matrices of its experts are no modules
    "modernbert": Adapter("ModernBertEncoderLayer", "final_norm", adds=Adds("attn", "mlp"), kernels=kernels.MODERNBERT),
    "mpnet": Adapter(
        "MPNetLayer",
        own=0.5,
        adds=Adds("attention.attn", "output.dense", ("attention.LayerNorm", "output.LayerNorm")),
        kernels=kernels.MPNET,
    ),
    "olmo": Adapter("OlmoDecoderLayer", "norm", adds=PLAIN, kernels=kernels.GATED),
    "olmo2": Adapter(
        "Olmo2DecoderLayer",
        "norm",
        adds=NORMED,
        kernels=kernels.GATED,
    ),
    "olmo3": Adapter("Olmo3DecoderLayer", "norm", adds=NORMED, kernels=kernels.GATED),
    "olmoe": Adapter("OlmoeDecoderLayer", "norm", adds=PLAIN),  # the matrices of its experts are no modules
    "opt": Adapter(
        "OPTDecoderLayer", "decoder.final_layer_norm", after="decoder.project_out", adds=OF_OPT, kernels=kernels.OPT
    ),
    "phi": Adapter("PhiDecoderLayer", "final_layernorm", adds=PLAIN, kernels=kernels.PHI),
    "phi3": Adapter("Phi3DecoderLayer", "norm", adds=PLAIN, kernels=kernels.PHI3),
    "qwen2": Adapter("Qwen2DecoderLayer", "norm", adds=PLAIN, kernels=kernels.GATED),
    "qwen3": Adapter("Qwen3DecoderLayer", "norm", adds=PLAIN, kernels=kernels.GATED),
    "qwen3_moe": Adapter("Qwen3MoeDecoderLayer", "norm", adds=PLAIN),
    "roberta": Adapter("RobertaLayer", before="pad_token_id", adds=OF_BERT, kernels=kernels.BERT),
    "smollm3": Adapter("SmolLM3DecoderLayer", "norm", adds=PLAIN, kernels=kernels.GATED),
    "stablelm": Adapter("StableLmDecoderLayer", "norm", adds=PLAIN, kernels=kernels.GATED),
    "starcoder2": Adapter("Starcoder2DecoderLayer", "norm", adds=PLAIN, kernels=kernels.STARCODER2),
    "t5": Adapter(
        "T5Block",
        "encoder.final_layer_norm",
        part="encoder",
        model="T5EncoderModel",
        adds=Adds("layer.0.SelfAttention", "layer.1.DenseReluDense"),
    ),
    "xlm-roberta": Adapter("XLMRobertaLayer", before="pad_token_id", adds=OF_BERT, kernels=kernels.BERT),
}
UNKNOWN = Adapter(None)  # of it `hidden_states` is taken as it comes, and no queries and keys

MODALITIES = {  # what reads pictures or sound, and no text
    "beit": Adapter("BeitLayer", "layernorm", adds=Adds("drop_path", "drop_path")),
    "clip_vision_model": Adapter("CLIPEncoderLayer", None, adds=PLAIN),
    "convnext": Adapter("ConvNextLayer", None, maps=True),
    "cvt": Adapter("CvtLayer", None, maps=True),
    "deit": Adapter("DeiTLayer", "layernorm", adds=Adds("attention", "mlp")),
    "dinov2": Adapter("Dinov2Layer", "layernorm", adds=Adds("layer_scale1", "layer_scale2")),
    "efficientnet": Adapter("EfficientNetBlock", None, maps=True),
    "hubert": Adapter("HubertEncoderLayer", None, adds=OF_SPEECH),
    "hubert, norm first": Adapter("HubertEncoderLayerStableLayerNorm", "encoder.layer_norm", adds=OF_SPEECH),
    "resnet": Adapter("ResNetBottleNeckLayer", None, maps=True),
    "resnet, basic": Adapter("ResNetBasicLayer", None, maps=True),
    "segformer": Adapter("SegformerLayer", "stages.{}.layer_norm", maps=True),
    "vit": Adapter("ViTLayer", "layernorm", adds=Adds("attention", "mlp")),
    "wav2vec2": Adapter("Wav2Vec2EncoderLayer", None, adds=OF_SPEECH),
    "wav2vec2, norm first": Adapter("Wav2Vec2EncoderLayerStableLayerNorm", "encoder.layer_norm", adds=OF_SPEECH),
    "wavlm": Adapter("WavLMEncoderLayer", None, adds=OF_SPEECH, mixed=GATED_BIAS),
    "wavlm, norm first": Adapter(
        "WavLMEncoderLayerStableLayerNorm", "encoder.layer_norm", adds=OF_SPEECH, mixed=GATED_BIAS
    ),
    "whisper": Adapter("WhisperEncoderLayer", "encoder.layer_norm", part="encoder", adds=Adds("self_attn", "fc2")),
}
VARIANTS = {"do_stable_layer_norm": {True: "norm first"}, "layer_type": {"basic": "basic"}}  # settings that tell kinds


def kind_of(settings: Any) -> str:
    """The name of an entry: the type of a model, and which kind of block it has where there are two."""
    words = [settings.model_type]
    if getattr(settings, "conv_kernel_size", 0) and words[0] == "deberta-v2":
        words += ["convolution"]  # which changes what block 1 gives: no entry
    if words[0] in MODALITIES:
        words += [kinds[value] for name, kinds in VARIANTS.items() if (value := getattr(settings, name, None)) in kinds]
    return ", ".join(words)


def watched(adapter: Adapter) -> bool:
    """Whether the queries and keys of its attention say what its scores are."""
    return adapter != UNKNOWN and adapter.mixed is None


def adapter_of(kind: str) -> Adapter:
    return (ADAPTERS | MODALITIES).get(kind, UNKNOWN)
