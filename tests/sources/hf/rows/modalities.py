"""Systems of the papers that read pictures or sound: a tiny random model of each."""

from typing import Any

import numpy as np

from tests.sources.hf.rows.row import Row

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


def media(settings: Any, windows: int = 3) -> np.ndarray:
    """Random pictures, spectrograms for Whisper, or samples of sound."""
    shape = (1600,)
    if side := getattr(settings, "image_size", 0):
        shape = (3, side, side)
    elif frames := getattr(settings, "max_source_positions", 0):
        shape = (settings.num_mel_bins, 2 * frames)
    return np.random.default_rng(0).normal(size=(windows, *shape)).astype(np.float32)


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
ROWS = {name: row._replace(reads=media) for name, row in ROWS.items()}
