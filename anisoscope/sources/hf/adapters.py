"""Architecture facts of pretrained models, by the `model_type` of their settings."""

from typing import Any, NamedTuple


class Adds(NamedTuple):
    """Modules below a block whose outputs it adds to the residual stream."""

    attention: str
    mlp: str  # where both are one module: its first and its second output
    norms: tuple[str, str] | None = None  # norms after the two additions
    times: str | None = None  # setting that multiplies the outputs


class Kernels(NamedTuple):
    """Modules below a block that multiply by a matrix, by what they read or write."""

    attention: tuple[str, ...]  # into queries, keys and values
    mlp: tuple[str, ...]  # into hidden units, and into gates if any
    attention_out: str
    mlp_out: str


class Adapter(NamedTuple):
    """Facts of one architecture.

    Queries and keys need no entry: the attention call itself is intercepted for every model.
    """

    block: str | None  # class whose output is the residual stream after a block; None: unknown
    final_norm: str | None = None  # path below the base; {} stands for a stage
    final_projection: str | None = None  # path of a projection after that norm
    inner: str | None = None  # setting: blocks per layer
    part: str | None = None  # module with the blocks, if other modules use the same class
    maps: bool = False  # blocks return maps whose size and width change between stages
    score_exponent: float | None = None  # scores of own attention: <q, k> K^-score_exponent
    rate: str | None = None  # setting: tokens that share a position
    position_offset: str | None = None  # setting: positions before the first token, minus 1
    model: str | None = None  # class that loads the weights, if not that of the settings
    adds: Adds | None = None  # None: unknown, and `measure.hook_points` is refused
    kernels: Kernels | None = None  # None: unknown or shared; `tangents` leaves matrices out
    mixed: str | None = None  # why scores are not <q, k> plus a bias by position


ENTRY = "add or correct its entry in sources/hf/adapters.py"


def _each(path: str, names: tuple[str, ...] = ("q", "k", "v")) -> tuple[str, ...]:
    """Name one matrix each for queries, keys and values."""
    return tuple(map(path.format, names))


def _fused(attention: str) -> Kernels:
    """Name one matrix for all three, with Megatron's names."""
    inner, outer = "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"
    return Kernels((f"{attention}.query_key_value",), (inner,), f"{attention}.dense", outer)


SPLIT, WHOLE = _each("self_attn.{}_proj"), ("query", "key", "value")

DEBERTA = Kernels(
    ("attention.self.in_proj",), ("intermediate.dense",), "attention.output.dense", "output.dense"
)
DEBERTA_V2 = DEBERTA._replace(attention=_each("attention.self.{}_proj", WHOLE))
BERT = DEBERTA._replace(attention=_each("attention.self.{}", WHOLE))
BLOOM = _fused("self_attention")
DISTILBERT = Kernels(_each("attention.{}_lin"), ("ffn.lin1",), "attention.out_lin", "ffn.lin2")
GATED = Kernels(SPLIT, ("mlp.gate_proj", "mlp.up_proj"), "self_attn.o_proj", "mlp.down_proj")
GPT2 = Kernels(("attn.c_attn",), ("mlp.c_fc",), "attn.c_proj", "mlp.c_proj")
GPTJ = Kernels(_each("attn.{}_proj"), ("mlp.fc_in",), "attn.out_proj", "mlp.fc_out")
GPT_NEO = Kernels(
    _each("attn.attention.{}_proj"), ("mlp.c_fc",), "attn.attention.out_proj", "mlp.c_proj"
)
GPT_NEOX = _fused("attention")
MODERNBERT = Kernels(("attn.Wqkv",), ("mlp.Wi",), "attn.Wo", "mlp.Wo")
MPNET = Kernels(
    _each("attention.attn.{}"), ("intermediate.dense",), "attention.attn.o", "output.dense"
)
OPT = Kernels(SPLIT, ("fc1",), "self_attn.out_proj", "fc2")
CLIP = Kernels(SPLIT, ("mlp.fc1",), "self_attn.out_proj", "mlp.fc2")
PHI = Kernels(SPLIT, ("mlp.fc1",), "self_attn.dense", "mlp.fc2")
PHI3 = Kernels(("self_attn.qkv_proj",), ("mlp.gate_up_proj",), "self_attn.o_proj", "mlp.down_proj")
STARCODER2 = Kernels(SPLIT, ("mlp.c_fc",), "self_attn.o_proj", "mlp.c_proj")

PLAIN = Adds("self_attn", "mlp")
BERT_ADDS = Adds(
    "attention.output.dense", "output.dense", ("attention.output.LayerNorm", "output.LayerNorm")
)
ALBERT_ADDS = Adds(
    "attention.dense", "ffn_output", ("attention.LayerNorm", "full_layer_layer_norm")
)
# the settings say whether the norms follow the additions
OPT_ADDS = Adds("self_attn", "fc2", ("self_attn_layer_norm", "final_layer_norm"))
SPEECH_ADDS = Adds("attention", "feed_forward", ("layer_norm", "final_layer_norm"))
SCALED = Adds("layer_scale1", "layer_scale2")
# a norm comes before each addition
NORMED = Adds("post_attention_layernorm", "post_feedforward_layernorm")
DISENTANGLED = "its scores also hold products of contents and relative positions"
CAPPED = "a cap (attn_logit_softcapping) bounds its scores"
SINK = "a learned sink takes a share of each row"
GATED_BIAS = "contents gate its bias by distance"


def _llama_like(name: str, **changes: Any) -> Adapter:
    defaults = {"final_norm": "norm", "adds": PLAIN, "kernels": GATED}
    return Adapter(f"{name}DecoderLayer", **defaults | changes)


def _bert_like(name: str, **changes: Any) -> Adapter:
    return Adapter(f"{name}Layer", **{"adds": BERT_ADDS, "kernels": BERT} | changes)


ADAPTERS = {
    "albert": Adapter("AlbertLayer", inner="inner_group_num", adds=ALBERT_ADDS),
    "bert": _bert_like("Bert"),
    "bloom": Adapter(
        "BloomBlock",
        "ln_f",
        score_exponent=0.5,
        adds=Adds("self_attention.dense", "mlp.dense_4h_to_h"),
        kernels=BLOOM,
    ),
    "camembert": _bert_like("Camembert", position_offset="pad_token_id"),
    "canine": Adapter(
        "CanineLayer", part="encoder", score_exponent=0.5, rate="downsampling_rate", adds=BERT_ADDS
    ),  # the deep stage of its three stages
    "clip": Adapter(
        "CLIPEncoderLayer", "final_layer_norm", model="CLIPTextModel", adds=PLAIN, kernels=CLIP
    ),
    "clip_text_model": Adapter("CLIPEncoderLayer", "final_layer_norm", adds=PLAIN, kernels=CLIP),
    "cohere": _llama_like("Cohere"),
    "deberta": _bert_like("Deberta", kernels=DEBERTA, mixed=DISENTANGLED),
    "deberta-v2": _bert_like("DebertaV2", kernels=DEBERTA_V2, mixed=DISENTANGLED),
    "distilbert": Adapter(
        "TransformerBlock",
        adds=Adds("attention", "ffn", ("sa_layer_norm", "output_layer_norm")),
        kernels=DISTILBERT,
    ),
    "electra": _bert_like("Electra"),
    "eurobert": _llama_like("EuroBert"),
    "falcon": Adapter(
        "FalconDecoderLayer",
        "ln_f",
        score_exponent=0.5,
        adds=Adds("self_attention", "mlp"),
        kernels=BLOOM,
    ),
    "gemma": _llama_like("Gemma"),
    "gemma2": _llama_like("Gemma2", adds=NORMED, mixed=CAPPED),
    "gemma3_text": _llama_like("Gemma3", adds=NORMED),
    "gpt2": Adapter("GPT2Block", "ln_f", adds=Adds("attn", "mlp"), kernels=GPT2),
    "gpt_neo": Adapter(
        "GPTNeoBlock", "ln_f", score_exponent=0.0, adds=Adds("attn", "mlp"), kernels=GPT_NEO
    ),
    "gpt_neox": Adapter(
        "GPTNeoXLayer", "final_layer_norm", adds=Adds("attention", "mlp"), kernels=GPT_NEOX
    ),
    "gpt_oss": _llama_like("GptOss", kernels=None, mixed=SINK),
    "gptj": Adapter(
        "GPTJBlock", "ln_f", score_exponent=0.5, adds=Adds("attn", "mlp"), kernels=GPTJ
    ),
    "granite": _llama_like("Granite", adds=Adds("self_attn", "mlp", times="residual_multiplier")),
    "llama": _llama_like("Llama"),
    "mistral": _llama_like("Mistral"),
    # the matrices of the experts are not modules
    "mixtral": _llama_like("Mixtral", kernels=None),
    "modernbert": Adapter(
        "ModernBertEncoderLayer", "final_norm", adds=Adds("attn", "mlp"), kernels=MODERNBERT
    ),
    "mpnet": Adapter(
        "MPNetLayer",
        score_exponent=0.5,
        adds=Adds("attention.attn", "output.dense", ("attention.LayerNorm", "output.LayerNorm")),
        kernels=MPNET,
    ),
    "olmo": _llama_like("Olmo"),
    "olmo2": _llama_like("Olmo2", adds=NORMED),
    "olmo3": _llama_like("Olmo3", adds=NORMED),
    # the matrices of the experts are not modules
    "olmoe": _llama_like("Olmoe", kernels=None),
    "opt": Adapter(
        "OPTDecoderLayer",
        "decoder.final_layer_norm",
        final_projection="decoder.project_out",
        adds=OPT_ADDS,
        kernels=OPT,
    ),
    "phi": Adapter("PhiDecoderLayer", "final_layernorm", adds=PLAIN, kernels=PHI),
    "phi3": _llama_like("Phi3", kernels=PHI3),
    "qwen2": _llama_like("Qwen2"),
    "qwen3": _llama_like("Qwen3"),
    "qwen3_moe": _llama_like("Qwen3Moe", kernels=None),
    "roberta": _bert_like("Roberta", position_offset="pad_token_id"),
    "smollm3": _llama_like("SmolLM3"),
    "stablelm": _llama_like("StableLm"),
    "starcoder2": _llama_like("Starcoder2", kernels=STARCODER2),
    "t5": Adapter(
        "T5Block",
        "encoder.final_layer_norm",
        part="encoder",
        model="T5EncoderModel",
        adds=Adds("layer.0.SelfAttention", "layer.1.DenseReluDense"),
    ),
    "xlm-roberta": _bert_like("XLMRoberta", position_offset="pad_token_id"),
}
UNKNOWN = Adapter(None)  # hidden_states are taken as reported, without queries and keys

MODALITIES = {  # models of pictures or sound
    "beit": Adapter("BeitLayer", "layernorm", adds=Adds("drop_path", "drop_path")),
    "clip_vision_model": Adapter("CLIPEncoderLayer", None, adds=PLAIN),
    "convnext": Adapter("ConvNextLayer", None, maps=True),
    "cvt": Adapter("CvtLayer", None, maps=True),
    "deit": Adapter("DeiTLayer", "layernorm", adds=Adds("attention", "mlp")),
    "dinov2": Adapter("Dinov2Layer", "layernorm", adds=SCALED),
    "dinov2_with_registers": Adapter("Dinov2WithRegistersLayer", "layernorm", adds=SCALED),
    "dinov3_vit": Adapter("DINOv3ViTLayer", "norm", adds=SCALED),
    "efficientnet": Adapter("EfficientNetBlock", None, maps=True),
    "hubert": Adapter("HubertEncoderLayer", None, adds=SPEECH_ADDS),
    "hubert, norm first": Adapter(
        "HubertEncoderLayerStableLayerNorm", "encoder.layer_norm", adds=SPEECH_ADDS
    ),
    "resnet": Adapter("ResNetBottleNeckLayer", None, maps=True),
    "resnet, basic": Adapter("ResNetBasicLayer", None, maps=True),
    "segformer": Adapter("SegformerLayer", "stages.{}.layer_norm", maps=True),
    "siglip_vision_model": Adapter("SiglipEncoderLayer", "post_layernorm", adds=PLAIN),
    "vit": Adapter("ViTLayer", "layernorm", adds=Adds("attention", "mlp")),
    "wav2vec2": Adapter("Wav2Vec2EncoderLayer", None, adds=SPEECH_ADDS),
    "wav2vec2, norm first": Adapter(
        "Wav2Vec2EncoderLayerStableLayerNorm", "encoder.layer_norm", adds=SPEECH_ADDS
    ),
    "wavlm": Adapter("WavLMEncoderLayer", None, adds=SPEECH_ADDS, mixed=GATED_BIAS),
    "wavlm, norm first": Adapter(
        "WavLMEncoderLayerStableLayerNorm", "encoder.layer_norm", adds=SPEECH_ADDS, mixed=GATED_BIAS
    ),
    "whisper": Adapter(
        "WhisperEncoderLayer", "encoder.layer_norm", part="encoder", adds=Adds("self_attn", "fc2")
    ),
}
# settings that distinguish kinds of blocks
VARIANTS = {"do_stable_layer_norm": {True: "norm first"}, "layer_type": {"basic": "basic"}}


def model_kind(settings: Any) -> str:
    """Return the name of an entry: the model type, and its kind of block if there are several."""
    words = [settings.model_type]
    if getattr(settings, "conv_kernel_size", 0) and words[0] == "deberta-v2":
        words += ["convolution"]  # changes the output of block 1: no entry
    if words[0] in MODALITIES:
        for name, kinds in VARIANTS.items():
            if (value := getattr(settings, name, None)) in kinds:
                words.append(kinds[value])
    return ", ".join(words)


def find_adapter(kind: str) -> Adapter:
    return (ADAPTERS | MODALITIES).get(kind, UNKNOWN)


def has_scores(adapter: Adapter) -> bool:
    """Return whether queries and keys determine the attention scores of this architecture."""
    return adapter != UNKNOWN and adapter.mixed is None
