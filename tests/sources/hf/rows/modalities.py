"""Systems of the papers that read pictures or sound: a tiny random model of each, against its own
account.

Their blocks give hidden states, or maps whose size and width change from stage to stage.
"""

from typing import Any

import numpy as np
import torch
import transformers

from anisoscope.sources.hf.adapters import find_adapter, model_kind
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.media import feature_maps
from anisoscope.sources.hf.reading.extract import Call, Listener, forward, read_activations
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
RESNET = {"embedding_size": 8, "hidden_sizes": [8, 16, 24], "depths": [1, 2, 1]}
MIT = RESNET | {
    "num_encoder_blocks": 3, "sr_ratios": [4, 2, 1], "num_attention_heads": [1, 2, 3], "mlp_ratios": [2, 2, 2],
    "patch_sizes": [7, 3, 3], "strides": [4, 2, 2], "initializer_range": 0.2,
}  # fmt: skip
EFFICIENTNET = {
    "width_coefficient": 1.0, "depth_coefficient": 1.0, "in_channels": [32, 16, 24], "out_channels": [16, 24, 40],
    "kernel_sizes": [3, 3, 5], "strides": [1, 2, 2], "num_block_repeats": [1, 2, 2], "expand_ratios": [1, 6, 6],
    "hidden_dim": 1280, "initializer_range": 0.2,
}  # fmt: skip


ROWS = {
    "wav2vec 2.0": Row("Wav2Vec2Model", SPEECH),
    "wav2vec 2.0, large": Row("Wav2Vec2Model", SPEECH | FIRST, "norms before attention"),
    "wav2vec 2.0, group norm": Row(
        "Wav2Vec2Model", SPEECH | FIRST | {"feat_extract_norm": "group"}
    ),
    "HuBERT": Row("HubertModel", SPEECH),
    "HuBERT, large": Row("HubertModel", SPEECH | FIRST, "norms before attention"),
    "Whisper": Row(
        "WhisperForConditionalGeneration", WHISPER, "the encoder; the decoder reads text too"
    ),
    "ViT": Row("ViTModel", PATCHES),
    "BEiT": Row("BeitModel", PATCHES | {"use_relative_position_bias": True}, "a bias by distance"),
    "DINOv2": Row("Dinov2Model", PATCHES | {"mlp_ratio": 2, "layerscale_value": 0.5}),
    "DINOv2, registers": Row(
        "Dinov2WithRegistersModel", PATCHES | {"mlp_ratio": 2, "layerscale_value": 0.5}
    ),
    "DINOv3": Row(
        "DINOv3ViTModel", PATCHES | {"num_register_tokens": 4}, "rotary positions of patches"
    ),
    "SigLIP, of pictures": Row("SiglipVisionModel", PATCHES, "no class token"),
    "CLIP, of pictures": Row("CLIPVisionModel", PATCHES | {"initializer_factor": 3.0}),
    "WavLM": Row(
        "WavLMModel", SPEECH, "a gate on its bias by distance: not in the family attention"
    ),
    "WavLM, large": Row(
        "WavLMModel",
        SPEECH | FIRST,
        "norms before attention; a gate on its bias: not in the family attention",
    ),
    "DeiT": Row("DeiTModel", PATCHES, "a class token and a distillation token"),
    "MiT (SegFormer)": Row(
        "SegformerModel", MIT, "keys of a reduced map: not in the family attention"
    ),
    "ResNet-18, 34": Row("ResNetModel", RESNET | {"layer_type": "basic"}),
    "ResNet-50 and larger": Row("ResNetModel", RESNET | {"hidden_sizes": [16, 32, 48]}),
    "EfficientNet": Row("EfficientNetModel", EFFICIENTNET),
    "CvT": Row(
        "CvtModel",
        {
            "embed_dim": [8, 16, 24],
            "num_heads": [1, 2, 3],
            "depth": [1, 2, 3],
            "initializer_range": 0.2,
        },
        "keys of a reduced map: not in the family attention",
    ),
    "ConvNeXt": Row(
        "ConvNextModel", {"hidden_sizes": [8, 16, 24], "depths": [1, 2, 1], "num_stages": 3}
    ),
    "VAN": Row(None, said="transformers 4.57 was the last to have it"),
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
    return PretrainedModel(
        model,
        find_adapter(model_kind(settings)),
        {"computed_in": "float32", "model_class": row.model},
    )


def inputs(loaded: PretrainedModel, windows: int = 3) -> np.ndarray:
    config, rng = loaded.model.config, np.random.default_rng(0)
    side = getattr(config, "image_size", 64) if not loaded.adapter.maps else 64
    shape = {
        "pixel_values": (3, side, side),
        "input_values": (1600,),
        "input_features": (
            getattr(config, "num_mel_bins", 0),
            2 * getattr(config, "max_source_positions", 0),
        ),
    }[loaded.base.main_input_name]
    return rng.normal(size=(windows, *shape)).astype(np.float32)


def show(row: Row) -> Shown:
    loaded = made(row)
    given = inputs(loaded)
    if loaded.adapter.maps:
        differ = feature_maps.compare_maps(loaded, given)[1]
    else:
        differ = streams(
            loaded, read_activations(loaded, given[None], 2, heads=False).resid_ZNWTD[0], given
        )
    return Shown(loaded.blocks, differ, attention(loaded, given))


def attention(loaded: PretrainedModel, given: np.ndarray) -> float | None:
    """softmax of <q, k>, as each class scales it and with what it adds, against its own weights."""
    if loaded.model.config.model_type == "cvt":
        rebuilt, own = _of_cvt(loaded, given)
    elif (
        loaded.adapter.mixed
        or not hasattr(loaded.base, "set_attn_implementation")
        or not loaded.base._supports_sdpa
    ):
        return None
    else:
        calls: list[Call] = []
        with Listener(loaded, lambda n, x: None, lambda n, call: calls.append(call)):
            forward(loaded, given)
        loaded.model.set_attn_implementation("eager")
        own = forward(loaded, given, output_attentions=True).attentions
        rebuilt = [
            (q @ k.transpose(2, 3) * q.shape[-1] ** -0.5 + (0 if added is None else added)).softmax(
                -1
            )
            for q, k, added, *_ in calls
        ]
    return max(float((one - other).abs().max()) for one, other in zip(rebuilt, own, strict=True))


def _of_cvt(loaded: PretrainedModel, given: np.ndarray) -> tuple[list[Any], list[Any]]:
    """It hands its weights to nobody: they are caught where they would be dropped out, and scaled
    by the width.
    """
    caught: dict[str, list[Any]] = {"projection_query": [], "projection_key": [], "dropout": []}
    hooks = []
    for module in loaded.base.modules():
        if type(module).__name__ == "CvtSelfAttention":
            for name, told in caught.items():

                def after(
                    _: Any,
                    args: tuple,
                    found: Any,
                    told: list = told,
                    heads: int = module.num_heads,
                ) -> None:
                    told.append(
                        found
                        if found.ndim == 4
                        else found.unflatten(-1, (heads, -1)).transpose(1, 2)
                    )

                hooks.append(getattr(module, name).register_forward_hook(after))
    forward(loaded, given)
    for hook in hooks:
        hook.remove()
    pairs = zip(caught["projection_query"], caught["projection_key"], strict=True)
    rebuilt = [
        (q @ k.transpose(2, 3) * (q.shape[1] * q.shape[3]) ** -0.5).softmax(-1) for q, k in pairs
    ]
    return rebuilt, caught["dropout"]
