"""Systems of the papers that read pictures or sound: a tiny random model of each."""

import numpy as np
import torch
import transformers

from anisoscope.sources.hf.adapters import adapter_name, find_adapter
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading.extract import (
    Call,
    Listener,
    attention_scores,
    forward,
    read_activations,
)
from tests.sources.hf.rows.row import Row, Shown, streams

SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
}
PATCHES = SMALL | {"image_size": 32, "patch_size": 8, "initializer_range": 0.2}
SPEECH = SMALL | {
    "conv_dim": [16] * 3, "conv_kernel": [10, 3, 3], "conv_stride": [5, 2, 2], "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4, "initializer_range": 0.2,
}  # fmt: skip
FIRST = {"do_stable_layer_norm": True, "feat_extract_norm": "layer"}
WHISPER = {
    "d_model": 32, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 48, "decoder_layers": 1,
    "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "num_mel_bins": 16, "max_source_positions": 50,
    "vocab_size": 20, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
    "init_std": 0.2,
}  # fmt: skip
SCALED = PATCHES | {"mlp_ratio": 2, "layerscale_value": 0.5}
GATE = "a gate on its bias by distance: not in the family attention"
ROWS = {
    "wav2vec 2.0": Row("Wav2Vec2Model", SPEECH),
    "wav2vec 2.0, large": Row("Wav2Vec2Model", SPEECH | FIRST, "norms before attention"),
    "HuBERT": Row("HubertModel", SPEECH),
    "HuBERT, large": Row("HubertModel", SPEECH | FIRST, "norms before attention"),
    "Whisper": Row(
        "WhisperForConditionalGeneration", WHISPER, "the encoder; the decoder reads text too"
    ),
    "ViT": Row("ViTModel", PATCHES),
    "BEiT": Row("BeitModel", PATCHES | {"use_relative_position_bias": True}, "a bias by distance"),
    "DINOv2": Row("Dinov2Model", SCALED),
    "DINOv2, registers": Row("Dinov2WithRegistersModel", SCALED),
    "DINOv3": Row(
        "DINOv3ViTModel", PATCHES | {"num_register_tokens": 4}, "rotary positions of patches"
    ),
    "SigLIP, of pictures": Row("SiglipVisionModel", PATCHES, "no class token"),
    "CLIP, of pictures": Row("CLIPVisionModel", PATCHES | {"initializer_factor": 3.0}),
    "WavLM": Row("WavLMModel", SPEECH, GATE),
    "WavLM, large": Row("WavLMModel", SPEECH | FIRST, f"norms before attention; {GATE}"),
    "DeiT": Row("DeiTModel", PATCHES, "a class token and a distillation token"),
}


def made(row: Row) -> PretrainedModel:
    """With every weight random: some classes begin with biases and class tokens of 0."""
    torch.manual_seed(0)
    kind = getattr(transformers, row.model)
    settings = kind.config_class(**row.settings)
    model = kind(settings).eval().requires_grad_(False)
    for weight in model.parameters():
        if not weight.any():
            weight.normal_(std=0.2)
    about = {"computed_in": "float32", "model_class": row.model}
    return PretrainedModel(model, find_adapter(adapter_name(settings)), about)


def inputs(loaded: PretrainedModel, windows: int = 3) -> np.ndarray:
    config = loaded.model.config
    side, frames = getattr(config, "image_size", 0), getattr(config, "max_source_positions", 0)
    shape = {
        "pixel_values": (3, side, side),
        "input_values": (1600,),
        "input_features": (getattr(config, "num_mel_bins", 0), 2 * frames),
    }[loaded.base.main_input_name]
    return np.random.default_rng(0).normal(size=(windows, *shape)).astype(np.float32)


def show(row: Row) -> Shown:
    loaded = made(row)
    read = inputs(loaded)
    resid_NWTD = read_activations(loaded, read[None], 2, heads=False).resid_ZNWTD[0]
    return Shown(loaded.blocks, streams(loaded, resid_NWTD, read), attention(loaded, read))


def attention(loaded: PretrainedModel, read: np.ndarray) -> float | None:
    """softmax of <q, k>, as each class scales it and with what it adds, against its own weights."""
    if loaded.adapter.extra_scores:
        return None
    calls: list[Call] = []
    with Listener(loaded, on_call=lambda n, call: calls.append(call)):
        forward(loaded, read)
    loaded.model.set_attn_implementation("eager")
    expected = forward(loaded, read, output_attentions=True).attentions
    return max(
        float((attention_scores(call).softmax(-1) - weights).abs().max())
        for call, weights in zip(calls, expected, strict=True)
    )
