"""Architecture facts of pretrained models, by the `model_type` of their settings."""

from typing import Any, NamedTuple


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

    block_class: str | None  # whose output is the residual stream after a block; None: unknown
    final_norm: str | None = None  # path below the base
    final_projection: str | None = None  # path of a projection after that norm
    blocks_per_layer: str | None = None  # setting that holds the number
    stack_path: str | None = None  # module with the blocks, if others use the same class too
    score_exponent: float | None = None  # the class computes attention itself: <q, k> K^-exponent
    tokens_per_position: str | None = None  # setting that holds the number; None: 1
    model_class: str | None = None  # class that loads the weights, if not that of the settings
    kernels: Kernels | None = None  # None: unknown or shared; `tangents` leaves matrices out
    extra_scores: str | None = None  # why scores are not <q, k> plus a bias by position


ENTRY = "record it with anisoscope.record, or correct its entry (docs/howto/adding.md)"


def _each(path: str, names: tuple[str, ...] = ("q", "k", "v")) -> tuple[str, ...]:
    """Name one matrix each for queries, keys and values."""
    return tuple(map(path.format, names))


def _fused(attention: str) -> Kernels:
    """Name one matrix for all three, with Megatron's names."""
    inner, outer = "mlp.dense_h_to_4h", "mlp.dense_4h_to_h"
    return Kernels((f"{attention}.query_key_value",), (inner,), f"{attention}.dense", outer)


SEPARATE_KERNELS, KERNEL_NAMES = _each("self_attn.{}_proj"), ("query", "key", "value")

DEBERTA = Kernels(
    ("attention.self.in_proj",), ("intermediate.dense",), "attention.output.dense", "output.dense"
)
DEBERTA_V2 = DEBERTA._replace(attention=_each("attention.self.{}_proj", KERNEL_NAMES))
BERT = DEBERTA._replace(attention=_each("attention.self.{}", KERNEL_NAMES))
BLOOM = _fused("self_attention")
DISTILBERT = Kernels(_each("attention.{}_lin"), ("ffn.lin1",), "attention.out_lin", "ffn.lin2")
GATED = Kernels(
    SEPARATE_KERNELS, ("mlp.gate_proj", "mlp.up_proj"), "self_attn.o_proj", "mlp.down_proj"
)
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
OPT = Kernels(SEPARATE_KERNELS, ("fc1",), "self_attn.out_proj", "fc2")
CLIP = Kernels(SEPARATE_KERNELS, ("mlp.fc1",), "self_attn.out_proj", "mlp.fc2")
PHI = Kernels(SEPARATE_KERNELS, ("mlp.fc1",), "self_attn.dense", "mlp.fc2")
PHI3 = Kernels(("self_attn.qkv_proj",), ("mlp.gate_up_proj",), "self_attn.o_proj", "mlp.down_proj")
STARCODER2 = Kernels(SEPARATE_KERNELS, ("mlp.c_fc",), "self_attn.o_proj", "mlp.c_proj")

DISENTANGLED = "its scores also hold products of contents and relative positions"
SCORE_CAP = "a cap (attn_logit_softcapping) bounds its scores"
LEARNED_SINK = "a learned sink takes a share of each row"
GATED_BIAS = "contents gate its bias by distance"


def _llama_like(name: str, **changes: Any) -> Adapter:
    defaults = {"final_norm": "norm", "kernels": GATED}
    return Adapter(f"{name}DecoderLayer", **defaults | changes)


def _bert_like(name: str, **changes: Any) -> Adapter:
    return Adapter(f"{name}Layer", **{"kernels": BERT} | changes)


ADAPTERS = {
    "albert": Adapter("AlbertLayer", blocks_per_layer="inner_group_num"),
    "bert": _bert_like("Bert"),
    "bloom": Adapter("BloomBlock", "ln_f", score_exponent=0.5, kernels=BLOOM),
    "camembert": _bert_like("Camembert"),
    "canine": Adapter(
        "CanineLayer",
        stack_path="encoder",
        score_exponent=0.5,
        tokens_per_position="downsampling_rate",
    ),  # the deep stage of its three stages
    "clip": Adapter(
        "CLIPEncoderLayer", "final_layer_norm", model_class="CLIPTextModel", kernels=CLIP
    ),
    "clip_text_model": Adapter("CLIPEncoderLayer", "final_layer_norm", kernels=CLIP),
    "cohere": _llama_like("Cohere"),
    "deberta": _bert_like("Deberta", kernels=DEBERTA, extra_scores=DISENTANGLED),
    "deberta-v2": _bert_like("DebertaV2", kernels=DEBERTA_V2, extra_scores=DISENTANGLED),
    "distilbert": Adapter("TransformerBlock", kernels=DISTILBERT),
    "electra": _bert_like("Electra"),
    "eurobert": _llama_like("EuroBert"),
    "falcon": Adapter("FalconDecoderLayer", "ln_f", score_exponent=0.5, kernels=BLOOM),
    "gemma": _llama_like("Gemma"),
    "gemma2": _llama_like("Gemma2", extra_scores=SCORE_CAP),
    "gemma3_text": _llama_like("Gemma3"),
    "gpt2": Adapter("GPT2Block", "ln_f", kernels=GPT2),
    "gpt_neo": Adapter("GPTNeoBlock", "ln_f", score_exponent=0.0, kernels=GPT_NEO),
    "gpt_neox": Adapter("GPTNeoXLayer", "final_layer_norm", kernels=GPT_NEOX),
    "gpt_oss": _llama_like("GptOss", kernels=None, extra_scores=LEARNED_SINK),
    "gptj": Adapter("GPTJBlock", "ln_f", score_exponent=0.5, kernels=GPTJ),
    "granite": _llama_like("Granite"),
    "llama": _llama_like("Llama"),
    "mistral": _llama_like("Mistral"),
    # the matrices of the experts are not modules
    "mixtral": _llama_like("Mixtral", kernels=None),
    "modernbert": Adapter("ModernBertEncoderLayer", "final_norm", kernels=MODERNBERT),
    "mpnet": Adapter("MPNetLayer", score_exponent=0.5, kernels=MPNET),
    "olmo": _llama_like("Olmo"),
    "olmo2": _llama_like("Olmo2"),
    "olmo3": _llama_like("Olmo3"),
    # the matrices of the experts are not modules
    "olmoe": _llama_like("Olmoe", kernels=None),
    "opt": Adapter(
        "OPTDecoderLayer",
        "decoder.final_layer_norm",
        final_projection="decoder.project_out",
        kernels=OPT,
    ),
    "phi": Adapter("PhiDecoderLayer", "final_layernorm", kernels=PHI),
    "phi3": _llama_like("Phi3", kernels=PHI3),
    "qwen2": _llama_like("Qwen2"),
    "qwen3": _llama_like("Qwen3"),
    "qwen3_moe": _llama_like("Qwen3Moe", kernels=None),
    "roberta": _bert_like("Roberta"),
    "smollm3": _llama_like("SmolLM3"),
    "stablelm": _llama_like("StableLm"),
    "starcoder2": _llama_like("Starcoder2", kernels=STARCODER2),
    "t5": Adapter(
        "T5Block", "encoder.final_layer_norm", stack_path="encoder", model_class="T5EncoderModel"
    ),
    "xlm-roberta": _bert_like("XLMRoberta"),
}
UNKNOWN = Adapter(None)  # hidden_states are taken as reported, without queries and keys

MEDIA_ADAPTERS = {  # models of pictures or sound
    "beit": Adapter("BeitLayer", "layernorm"),
    "clip_vision_model": Adapter("CLIPEncoderLayer", None),
    "deit": Adapter("DeiTLayer", "layernorm"),
    "dinov2": Adapter("Dinov2Layer", "layernorm"),
    "dinov2_with_registers": Adapter("Dinov2WithRegistersLayer", "layernorm"),
    "dinov3_vit": Adapter("DINOv3ViTLayer", "norm"),
    "hubert": Adapter("HubertEncoderLayer", None),
    "hubert, norm first": Adapter("HubertEncoderLayerStableLayerNorm", "encoder.layer_norm"),
    "siglip_vision_model": Adapter("SiglipEncoderLayer", "post_layernorm"),
    "vit": Adapter("ViTLayer", "layernorm"),
    "wav2vec2": Adapter("Wav2Vec2EncoderLayer", None),
    "wav2vec2, norm first": Adapter("Wav2Vec2EncoderLayerStableLayerNorm", "encoder.layer_norm"),
    "wavlm": Adapter("WavLMEncoderLayer", None, extra_scores=GATED_BIAS),
    "wavlm, norm first": Adapter(
        "WavLMEncoderLayerStableLayerNorm", "encoder.layer_norm", extra_scores=GATED_BIAS
    ),
    "whisper": Adapter("WhisperEncoderLayer", "encoder.layer_norm", stack_path="encoder"),
}


def adapter_name(settings: Any) -> str:
    """Return the name of an entry: the model type, and the place of norms where there are two."""
    name = settings.model_type
    if name == "deberta-v2" and getattr(settings, "conv_kernel_size", 0):
        return f"{name}, convolution"  # changes the output of block 1: no entry
    if name in MEDIA_ADAPTERS and getattr(settings, "do_stable_layer_norm", False):
        return f"{name}, norm first"
    return name


def find_adapter(name: str) -> Adapter:
    return (ADAPTERS | MEDIA_ADAPTERS).get(name, UNKNOWN)
