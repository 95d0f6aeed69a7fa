"""What has to be known of an architecture: an entry each, by `model_type` of its settings."""

from typing import Any, NamedTuple


class Adds(NamedTuple):
    """What a block adds to the residual stream: outputs of modules below it."""

    attention: str
    mlp: str  # the same module twice: what it gives first, and then
    # of blocks that take a norm after each of the two is added
    norms: tuple[str, str] | None = None
    times: str | None = None  # a setting by which what they give is multiplied


class Kernels(NamedTuple):
    """Modules below a block that multiply by a matrix: what reads the residual stream, and what
    writes to it.
    """

    attention: tuple[str, ...]  # into queries, keys and values
    mlp: tuple[str, ...]  # into hidden units, and into gates where there are some
    attention_out: str
    mlp_out: str


class Adapter(NamedTuple):
    """Queries and keys need no entry: they are caught where attention takes them, in one place for
    all.
    """

    # the class whose output is the residual stream after a block; None: it is not known
    block: str | None
    # the norm after the last block, below the base model; None where there is none
    final_norm: str | None = None
    after: str | None = None  # a further map after that, where a model has it
    inner: str | None = None  # a setting by which the number of layers is multiplied
    # what holds the blocks, below the base model, where others have the same class
    part: str | None = None
    # blocks give maps, whose size and width change from stage to stage; {} in a norm is the stage
    maps: bool = False
    # of a class that computes attention by itself, from scores <q, k> K^-own
    own: float | None = None
    rate: str | None = None  # a setting that says how many tokens share a position of these blocks
    # a setting whose positions, and one more, come before that of token 0
    before: str | None = None
    # the class that reads the weights, where it is not that of the settings
    model: str | None = None
    adds: Adds | None = None  # None: it is not known, and `measure.hook_points` is refused
    # None: not known, or one set for all blocks; `tangents` leaves matrices out
    kernels: Kernels | None = None
    # what makes its scores more than <q, k> and a bias by position: no queries and keys then
    mixed: str | None = None


def _apart(path: str, names: tuple[str, ...] = ("q", "k", "v")) -> tuple[str, ...]:
    """A matrix each for queries, keys and values."""
    return tuple(map(path.format, names))


def _fused(attention: str) -> Kernels:
    """One matrix for all three, and the names of Megatron."""
    inner, outer = "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"
    return Kernels((f"{attention}.query_key_value",), (inner,), f"{attention}.dense", outer)


SPLIT, WHOLE = _apart("self_attn.{}_proj"), ("query", "key", "value")

DEBERTA = Kernels(
    ("attention.self.in_proj",), ("intermediate.dense",), "attention.output.dense", "output.dense"
)
DEBERTA_V2 = DEBERTA._replace(attention=_apart("attention.self.{}_proj", WHOLE))
BERT = DEBERTA._replace(attention=_apart("attention.self.{}", WHOLE))
BLOOM = _fused("self_attention")
DISTILBERT = Kernels(_apart("attention.{}_lin"), ("ffn.lin1",), "attention.out_lin", "ffn.lin2")
GATED = Kernels(SPLIT, ("mlp.gate_proj", "mlp.up_proj"), "self_attn.o_proj", "mlp.down_proj")
GPT2 = Kernels(("attn.c_attn",), ("mlp.c_fc",), "attn.c_proj", "mlp.c_proj")
GPTJ = Kernels(_apart("attn.{}_proj"), ("mlp.fc_in",), "attn.out_proj", "mlp.fc_out")
GPT_NEO = Kernels(
    _apart("attn.attention.{}_proj"), ("mlp.c_fc",), "attn.attention.out_proj", "mlp.c_proj"
)
GPT_NEOX = _fused("attention")
MODERNBERT = Kernels(("attn.Wqkv",), ("mlp.Wi",), "attn.Wo", "mlp.Wo")
MPNET = Kernels(
    _apart("attention.attn.{}"), ("intermediate.dense",), "attention.attn.o", "output.dense"
)
OPT = Kernels(SPLIT, ("fc1",), "self_attn.out_proj", "fc2")
CLIP = Kernels(SPLIT, ("mlp.fc1",), "self_attn.out_proj", "mlp.fc2")
PHI = Kernels(SPLIT, ("mlp.fc1",), "self_attn.dense", "mlp.fc2")
PHI3 = Kernels(("self_attn.qkv_proj",), ("mlp.gate_up_proj",), "self_attn.o_proj", "mlp.down_proj")
STARCODER2 = Kernels(SPLIT, ("mlp.c_fc",), "self_attn.o_proj", "mlp.c_proj")

PLAIN = Adds("self_attn", "mlp")
OF_BERT = Adds(
    "attention.output.dense", "output.dense", ("attention.output.LayerNorm", "output.LayerNorm")
)
OF_ALBERT = Adds("attention.dense", "ffn_output", ("attention.LayerNorm", "full_layer_layer_norm"))
# settings say whether norms are after
OF_OPT = Adds("self_attn", "fc2", ("self_attn_layer_norm", "final_layer_norm"))
OF_SPEECH = Adds("attention", "feed_forward", ("layer_norm", "final_layer_norm"))
SCALED = Adds("layer_scale1", "layer_scale2")
# what is added is normed first
NORMED = Adds("post_attention_layernorm", "post_feedforward_layernorm")
DISENTANGLED = "its scores also hold products of contents and relative positions"
CAPPED = "a cap (attn_logit_softcapping) bounds its scores"
SINK = "a learned sink takes a share of each row"
GATED_BIAS = "contents gate its bias by distance"

ADAPTERS = {
    "albert": Adapter("AlbertLayer", inner="inner_group_num", adds=OF_ALBERT),
    "bert": Adapter("BertLayer", adds=OF_BERT, kernels=BERT),
    "bloom": Adapter(
        "BloomBlock",
        "ln_f",
        own=0.5,
        adds=Adds("self_attention.dense", "mlp.dense_4h_to_h"),
        kernels=BLOOM,
    ),
    "camembert": Adapter("CamembertLayer", before="pad_token_id", adds=OF_BERT, kernels=BERT),
    "canine": Adapter(
        "CanineLayer", part="encoder", own=0.5, rate="downsampling_rate", adds=OF_BERT
    ),  # of its three stages the deep
    "clip": Adapter(
        "CLIPEncoderLayer", "final_layer_norm", model="CLIPTextModel", adds=PLAIN, kernels=CLIP
    ),
    "clip_text_model": Adapter("CLIPEncoderLayer", "final_layer_norm", adds=PLAIN, kernels=CLIP),
    "cohere": Adapter("CohereDecoderLayer", "norm", adds=PLAIN, kernels=GATED),
    "deberta": Adapter("DebertaLayer", adds=OF_BERT, kernels=DEBERTA, mixed=DISENTANGLED),
    "deberta-v2": Adapter("DebertaV2Layer", adds=OF_BERT, kernels=DEBERTA_V2, mixed=DISENTANGLED),
    "distilbert": Adapter(
        "TransformerBlock",
        adds=Adds("attention", "ffn", ("sa_layer_norm", "output_layer_norm")),
        kernels=DISTILBERT,
    ),
    "electra": Adapter("ElectraLayer", adds=OF_BERT, kernels=BERT),
    "eurobert": Adapter("EuroBertDecoderLayer", "norm", adds=PLAIN, kernels=GATED),
    "falcon": Adapter(
        "FalconDecoderLayer", "ln_f", own=0.5, adds=Adds("self_attention", "mlp"), kernels=BLOOM
    ),
    "gemma": Adapter("GemmaDecoderLayer", "norm", adds=PLAIN, kernels=GATED),
    "gemma2": Adapter("Gemma2DecoderLayer", "norm", adds=NORMED, kernels=GATED, mixed=CAPPED),
    "gemma3_text": Adapter("Gemma3DecoderLayer", "norm", adds=NORMED, kernels=GATED),
    "gpt2": Adapter("GPT2Block", "ln_f", adds=Adds("attn", "mlp"), kernels=GPT2),
    "gpt_neo": Adapter("GPTNeoBlock", "ln_f", own=0.0, adds=Adds("attn", "mlp"), kernels=GPT_NEO),
    "gpt_neox": Adapter(
        "GPTNeoXLayer", "final_layer_norm", adds=Adds("attention", "mlp"), kernels=GPT_NEOX
    ),
    "gpt_oss": Adapter("GptOssDecoderLayer", "norm", adds=PLAIN, mixed=SINK),
    "gptj": Adapter("GPTJBlock", "ln_f", own=0.5, adds=Adds("attn", "mlp"), kernels=GPTJ),
    "granite": Adapter(
        "GraniteDecoderLayer",
        "norm",
        adds=Adds("self_attn", "mlp", times="residual_multiplier"),
        kernels=GATED,
    ),
    "llama": Adapter("LlamaDecoderLayer", "norm", adds=PLAIN, kernels=GATED),
    "mistral": Adapter("MistralDecoderLayer", "norm", adds=PLAIN, kernels=GATED),
    # the matrices of its experts are no modules
    "mixtral": Adapter("MixtralDecoderLayer", "norm", adds=PLAIN),
    "modernbert": Adapter(
        "ModernBertEncoderLayer", "final_norm", adds=Adds("attn", "mlp"), kernels=MODERNBERT
    ),
    "mpnet": Adapter(
        "MPNetLayer",
        own=0.5,
        adds=Adds("attention.attn", "output.dense", ("attention.LayerNorm", "output.LayerNorm")),
        kernels=MPNET,
    ),
    "olmo": Adapter("OlmoDecoderLayer", "norm", adds=PLAIN, kernels=GATED),
    "olmo2": Adapter("Olmo2DecoderLayer", "norm", adds=NORMED, kernels=GATED),
    "olmo3": Adapter("Olmo3DecoderLayer", "norm", adds=NORMED, kernels=GATED),
    # the matrices of its experts are no modules
    "olmoe": Adapter("OlmoeDecoderLayer", "norm", adds=PLAIN),
    "opt": Adapter(
        "OPTDecoderLayer",
        "decoder.final_layer_norm",
        after="decoder.project_out",
        adds=OF_OPT,
        kernels=OPT,
    ),
    "phi": Adapter("PhiDecoderLayer", "final_layernorm", adds=PLAIN, kernels=PHI),
    "phi3": Adapter("Phi3DecoderLayer", "norm", adds=PLAIN, kernels=PHI3),
    "qwen2": Adapter("Qwen2DecoderLayer", "norm", adds=PLAIN, kernels=GATED),
    "qwen3": Adapter("Qwen3DecoderLayer", "norm", adds=PLAIN, kernels=GATED),
    "qwen3_moe": Adapter("Qwen3MoeDecoderLayer", "norm", adds=PLAIN),
    "roberta": Adapter("RobertaLayer", before="pad_token_id", adds=OF_BERT, kernels=BERT),
    "smollm3": Adapter("SmolLM3DecoderLayer", "norm", adds=PLAIN, kernels=GATED),
    "stablelm": Adapter("StableLmDecoderLayer", "norm", adds=PLAIN, kernels=GATED),
    "starcoder2": Adapter("Starcoder2DecoderLayer", "norm", adds=PLAIN, kernels=STARCODER2),
    "t5": Adapter(
        "T5Block",
        "encoder.final_layer_norm",
        part="encoder",
        model="T5EncoderModel",
        adds=Adds("layer.0.SelfAttention", "layer.1.DenseReluDense"),
    ),
    "xlm-roberta": Adapter("XLMRobertaLayer", before="pad_token_id", adds=OF_BERT, kernels=BERT),
}
UNKNOWN = Adapter(None)  # of it `hidden_states` is taken as it comes, and no queries and keys

MODALITIES = {  # what reads pictures or sound, and no text
    "beit": Adapter("BeitLayer", "layernorm", adds=Adds("drop_path", "drop_path")),
    "clip_vision_model": Adapter("CLIPEncoderLayer", None, adds=PLAIN),
    "convnext": Adapter("ConvNextLayer", None, maps=True),
    "cvt": Adapter("CvtLayer", None, maps=True),
    "deit": Adapter("DeiTLayer", "layernorm", adds=Adds("attention", "mlp")),
    "dinov2": Adapter("Dinov2Layer", "layernorm", adds=SCALED),
    "dinov2_with_registers": Adapter("Dinov2WithRegistersLayer", "layernorm", adds=SCALED),
    "dinov3_vit": Adapter("DINOv3ViTLayer", "norm", adds=SCALED),
    "efficientnet": Adapter("EfficientNetBlock", None, maps=True),
    "hubert": Adapter("HubertEncoderLayer", None, adds=OF_SPEECH),
    "hubert, norm first": Adapter(
        "HubertEncoderLayerStableLayerNorm", "encoder.layer_norm", adds=OF_SPEECH
    ),
    "resnet": Adapter("ResNetBottleNeckLayer", None, maps=True),
    "resnet, basic": Adapter("ResNetBasicLayer", None, maps=True),
    "segformer": Adapter("SegformerLayer", "stages.{}.layer_norm", maps=True),
    "siglip_vision_model": Adapter("SiglipEncoderLayer", "post_layernorm", adds=PLAIN),
    "vit": Adapter("ViTLayer", "layernorm", adds=Adds("attention", "mlp")),
    "wav2vec2": Adapter("Wav2Vec2EncoderLayer", None, adds=OF_SPEECH),
    "wav2vec2, norm first": Adapter(
        "Wav2Vec2EncoderLayerStableLayerNorm", "encoder.layer_norm", adds=OF_SPEECH
    ),
    "wavlm": Adapter("WavLMEncoderLayer", None, adds=OF_SPEECH, mixed=GATED_BIAS),
    "wavlm, norm first": Adapter(
        "WavLMEncoderLayerStableLayerNorm", "encoder.layer_norm", adds=OF_SPEECH, mixed=GATED_BIAS
    ),
    "whisper": Adapter(
        "WhisperEncoderLayer", "encoder.layer_norm", part="encoder", adds=Adds("self_attn", "fc2")
    ),
}
# settings that tell kinds
VARIANTS = {"do_stable_layer_norm": {True: "norm first"}, "layer_type": {"basic": "basic"}}


def model_kind(settings: Any) -> str:
    """The name of an entry: the type of a model, and which kind of block it has where there are
    two.
    """
    words = [settings.model_type]
    if getattr(settings, "conv_kernel_size", 0) and words[0] == "deberta-v2":
        words += ["convolution"]  # which changes what block 1 gives: no entry
    if words[0] in MODALITIES:
        words += [
            kinds[value]
            for name, kinds in VARIANTS.items()
            if (value := getattr(settings, name, None)) in kinds
        ]
    return ", ".join(words)


def has_scores(adapter: Adapter) -> bool:
    """Whether the queries and keys of its attention say what its scores are."""
    return adapter != UNKNOWN and adapter.mixed is None


def find_adapter(kind: str) -> Adapter:
    return (ADAPTERS | MODALITIES).get(kind, UNKNOWN)
