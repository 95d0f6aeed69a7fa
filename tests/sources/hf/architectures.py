"""Tiny random models of every architecture of the papers, and how far our reading is from theirs.

    .venv-pretrained/bin/python -m tests.sources.hf.architectures [NAME …]

prints a line for each: block outputs and attention weights against the model's own. What is
peculiar to each is in docs/reference/architectures.md.
"""

import sys
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from anisoscope.sources.hf import guards
from anisoscope.sources.hf.adapters import adapter_name, find_adapter
from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.load_model import PretrainedModel, attention_implementation


class Row(NamedTuple):
    """The class of transformers, and the settings that make a model of it tiny."""

    model: str
    settings: dict[str, Any]


# fmt: off
SMALL = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
SMALL |= {"initializer_range": 0.2}
SIZES = SMALL | {"vocab_size": 40, "max_position_embeddings": 64, "pad_token_id": 0}
GROUPED = SIZES | {"num_key_value_heads": 2}
GEMMA = GROUPED | {"head_dim": 8}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2}
GPT2 = {"vocab_size": 40, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "initializer_range": 0.2}
BLOOM = {"vocab_size": 40, "hidden_size": 32, "n_layer": 3, "n_head": 4, "initializer_range": 0.2}
DISTILBERT = {"vocab_size": 40, "dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48, "initializer_range": 0.2}
GPT_NEO = {"vocab_size": 40, "hidden_size": 32, "intermediate_size": 48, "max_position_embeddings": 64}
GPT_NEO |= {"initializer_range": 0.2, "pad_token_id": 0, "num_layers": 4, "num_heads": 4, "window_size": 5}
GPT_NEO |= {"attention_types": [[["global", "local"], 2]]}
OPT = SIZES | {"ffn_dim": 48, "init_std": 0.2}
T5 = {"vocab_size": 40, "d_model": 32, "num_layers": 3, "num_heads": 4, "d_kv": 8, "d_ff": 48}
FALCON = SIZES | {"new_decoder_architecture": False, "multi_query": False}
DEBERTA = SIZES | {"relative_attention": True}
DEBERTA_V3 = DEBERTA | {"pos_att_type": ["p2c", "c2p"], "position_buckets": 8, "share_att_key": True}
DEBERTA_V3 |= {"norm_rel_ebd": "layer_norm", "position_biased_input": False}
GRANITE = GROUPED | {"attention_multiplier": 0.5, "residual_multiplier": 0.5, "embedding_multiplier": 3.0}
GPT_OSS = GEMMA | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5}
LOCAL = ["sliding_attention"] * 2 + ["full_attention"]
ROPE = {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}

TEXT = {
    "BERT": Row("BertForMaskedLM", SIZES),
    "RoBERTa": Row("RobertaForMaskedLM", SIZES),
    "ALBERT": Row("AlbertForMaskedLM", SIZES | {"embedding_size": 16}),
    "EuroBERT": Row("EuroBertForMaskedLM", GROUPED),
    "ModernBERT, moderncamembert": Row("ModernBertForMaskedLM", SIZES | {"local_attention": 8}),
    "DistilBERT": Row("DistilBertForMaskedLM", DISTILBERT),
    "ELECTRA": Row("ElectraForPreTraining", SIZES | {"embedding_size": 16}),
    "OPT": Row("OPTForCausalLM", OPT | {"word_embed_proj_dim": 32}),
    "OPT-350m": Row("OPTForCausalLM", OPT | {"word_embed_proj_dim": 16, "do_layer_norm_before": False}),
    "Llama": Row("LlamaForCausalLM", SIZES),
    "Llama, grouped keys": Row("LlamaForCausalLM", GROUPED),
    "SmolLM2": Row("LlamaForCausalLM", GROUPED | {"tie_word_embeddings": True}),
    "Gaperon, up to 8B": Row("LlamaForCausalLM", GROUPED | ROPE),
    "GPT-2": Row("GPT2LMHeadModel", GPT2),
    "GPT-J": Row("GPTJForCausalLM", GPT2 | {"rotary_dim": 4}),
    "GPT-Neo": Row("GPTNeoForCausalLM", GPT_NEO),
    "Falcon-40B": Row("FalconForCausalLM", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "Falcon-7B": Row("FalconForCausalLM", FALCON | {"multi_query": True}),
    "Falcon-RW": Row("FalconForCausalLM", FALCON | {"alibi": True, "bias": True}),
    "Bloom": Row("BloomForCausalLM", BLOOM),
    "Pythia": Row("GPTNeoXForCausalLM", SIZES),
    "OLMo": Row("OlmoForCausalLM", SIZES),
    "OLMo 2, Gaperon of 24B": Row("Olmo2ForCausalLM", GROUPED),
    "Mistral": Row("MistralForCausalLM", GROUPED | {"sliding_window": 5}),
    "Qwen2": Row("Qwen2ForCausalLM", GROUPED),
    "CANINE": Row("CanineModel", SIZES | {"num_hash_buckets": 64}),
    "ByT5": Row("T5EncoderModel", T5 | {"initializer_factor": 2.0}),
    "Gemma": Row("GemmaForCausalLM", GEMMA),
    "Gemma 2": Row("Gemma2ForCausalLM", GEMMA | {"sliding_window": 5, "attn_logit_softcapping": 2.0}),
    "Gemma 3, of text": Row("Gemma3ForCausalLM", GEMMA | {"sliding_window": 5, "layer_types": LOCAL}),
    "Qwen3": Row("Qwen3ForCausalLM", GROUPED | {"head_dim": 16}),
    "Phi-1, 2": Row("PhiForCausalLM", SIZES),
    "Phi-3, 4": Row("Phi3ForCausalLM", GROUPED),
    "DeBERTa": Row("DebertaModel", DEBERTA | {"pos_att_type": ["c2p", "p2c"], "max_relative_positions": 64}),
    "DeBERTa-v3": Row("DebertaV2Model", DEBERTA_V3),
    "CLIP, of text": Row("CLIPTextModel", SIZES | {"initializer_factor": 5.0}),
    "OLMoE": Row("OlmoeForCausalLM", GROUPED | EXPERTS),
    "CamemBERT": Row("CamembertForMaskedLM", SIZES),
    "XLM-RoBERTa": Row("XLMRobertaForMaskedLM", SIZES),
    "MPNet": Row("MPNetForMaskedLM", SIZES),
    "Mixtral": Row("MixtralForCausalLM", GROUPED | {"num_local_experts": 4}),
    "Qwen3, experts": Row(
        "Qwen3MoeForCausalLM", GROUPED | EXPERTS | {"head_dim": 16, "moe_intermediate_size": 24}
    ),
    "gpt-oss": Row("GptOssForCausalLM", GPT_OSS),
    "Granite": Row("GraniteForCausalLM", GRANITE | {"logits_scaling": 4.0}),
    "SmolLM3": Row("SmolLM3ForCausalLM", GROUPED | {"num_hidden_layers": 4}),
    "OLMo 3": Row("Olmo3ForCausalLM", GROUPED | {"num_hidden_layers": 4, "sliding_window": 5}),
    "StarCoder2": Row("Starcoder2ForCausalLM", GROUPED | {"sliding_window": 5}),
    "StableLM": Row("StableLmForCausalLM", GROUPED),
    "Command R": Row("CohereForCausalLM", GROUPED),
}

PATCHES = SMALL | {"image_size": 32, "patch_size": 8}
SCALED = PATCHES | {"mlp_ratio": 2, "layerscale_value": 0.5}
SPEECH = SMALL | {"conv_dim": [16] * 3, "conv_kernel": [10, 3, 3], "conv_stride": [5, 2, 2]}
SPEECH |= {"num_feat_extract_layers": 3, "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4}
NORM_FIRST = SPEECH | {"do_stable_layer_norm": True, "feat_extract_norm": "layer"}
WHISPER = {"d_model": 32, "encoder_layers": 3, "encoder_attention_heads": 4, "encoder_ffn_dim": 48}
WHISPER |= {"decoder_layers": 1, "decoder_attention_heads": 4, "decoder_ffn_dim": 48, "num_mel_bins": 16}
WHISPER |= {"max_source_positions": 50, "vocab_size": 20, "pad_token_id": 0, "bos_token_id": 1}
WHISPER |= {"eos_token_id": 2, "decoder_start_token_id": 1, "init_std": 0.2}

MEDIA = {  # of pictures or sound
    "wav2vec 2.0": Row("Wav2Vec2Model", SPEECH),
    "wav2vec 2.0, large": Row("Wav2Vec2Model", NORM_FIRST),
    "HuBERT": Row("HubertModel", SPEECH),
    "HuBERT, large": Row("HubertModel", NORM_FIRST),
    "Whisper": Row("WhisperForConditionalGeneration", WHISPER),
    "ViT": Row("ViTModel", PATCHES),
    "BEiT": Row("BeitModel", PATCHES | {"use_relative_position_bias": True}),
    "DINOv2": Row("Dinov2Model", SCALED),
    "DINOv2, registers": Row("Dinov2WithRegistersModel", SCALED),
    "DINOv3": Row("DINOv3ViTModel", PATCHES | {"num_register_tokens": 4}),
    "SigLIP, of pictures": Row("SiglipVisionModel", PATCHES),
    "CLIP, of pictures": Row("CLIPVisionModel", PATCHES | {"initializer_factor": 3.0}),
    "WavLM": Row("WavLMModel", SPEECH),
    "WavLM, large": Row("WavLMModel", NORM_FIRST),
    "DeiT": Row("DeiTModel", PATCHES),
}
# fmt: on
ROWS = TEXT | MEDIA


def build(row: Row | str) -> PretrainedModel:
    """Build the tiny model of a row, or of its name."""
    row = ROWS[row] if isinstance(row, str) else row
    torch.manual_seed(0)
    kind = getattr(transformers, row.model)
    settings = kind.config_class(**row.settings)
    adapter = find_adapter(adapter_name(settings))
    implementation = attention_implementation(adapter)
    model = kind._from_config(settings, attn_implementation=implementation).eval()
    facts = {"computed_in": "float32", "model_class": row.model}
    loaded = PretrainedModel(model, adapter, facts)
    if not loaded.reads_text:
        model.requires_grad_(False)
        for weight in model.parameters():  # some classes begin with biases and class tokens of 0
            if not weight.any():
                weight.normal_(std=0.2)
    return loaded


def random_inputs(loaded: PretrainedModel, windows: int = 3) -> np.ndarray:
    """Draw tokens, pictures, spectrograms for Whisper, or samples of sound."""
    settings, rng = loaded.model.config, np.random.default_rng(0)
    if loaded.reads_text:
        return rng.integers(4, settings.vocab_size, (windows, 24)).astype(np.int32)
    shape = (1600,)
    if side := getattr(settings, "image_size", 0):
        shape = (3, side, side)
    elif frames := getattr(settings, "max_source_positions", 0):
        shape = (settings.num_mel_bins, 2 * frames)
    return rng.normal(size=(windows, *shape)).astype(np.float32)


def compare_streams(loaded: PretrainedModel) -> float:
    """Return the largest difference of a layer from the model's own, in shares of its largest number.

    All layers but the last are the model's hidden states; the last one, through the final norm, is
    its last state, which only some classes list among the hidden states.
    """
    inputs, lasts = random_inputs(loaded), []
    with loaded.stack.register_forward_hook(
        lambda module, args, output: lasts.append(output.last_hidden_state)
    ):
        own = [x.detach() for x in guards.model_outputs(loaded, inputs, "hidden_states")]
    resid_NWTD = torch.from_numpy(read_activations(loaded, inputs[None], 2).resid_ZLBTD[0])
    with torch.no_grad():
        layers = [*resid_NWTD[:-1], loaded.apply_final_norm(resid_NWTD[-1])]
    pairs = zip(layers, [*own[:-1], lasts[0].detach()], strict=True)
    return max(guards.distance(x_WTD, own_WTD) for x_WTD, own_WTD in pairs)


def compare_attention(loaded: PretrainedModel) -> float | None:
    """Return the largest difference of an attention weight from the model's own, if q and k give it.

    It is softmax of <q, k>/sqrt(K), with the bias and mask found in two windows, in all windows.
    """
    if loaded.adapter.extra_scores:
        return None
    inputs = random_inputs(loaded)
    pattern, _ = guards.check_attention(loaded, inputs[:2])
    read = read_activations(loaded, inputs[None], 2, heads=True)
    q_NWTHK, k_NWTHK = read.q_ZNBTHK[0], read.k_ZNBTHK[0]
    scores_NWHTT = np.einsum("nwqhk,nwshk->nwhqs", q_NWTHK, k_NWTHK) / np.sqrt(q_NWTHK.shape[-1])
    scores_NWHTT += 0 if pattern.bias_NHTT is None else pattern.bias_NHTT[:, None]
    scores_NWHTT = np.where(pattern.visible_NTT[:, None, None], scores_NWHTT, -np.inf)
    weights_NWHTT = torch.from_numpy(scores_NWHTT).softmax(-1)
    pairs = zip(weights_NWHTT, guards.model_outputs(loaded, inputs, "attentions"), strict=True)
    return max(float((weights - own).detach().abs().max()) for weights, own in pairs)


def main(names: list[str]) -> None:
    print("| system | class of transformers | layers | block outputs | attention |")
    print("| --- | --- | --- | --- | --- |")
    for name in names or ROWS:
        loaded = build(name)
        streams, weights = compare_streams(loaded), compare_attention(loaded)
        attention = "none" if weights is None else f"{weights:.0e}"
        cells = name, ROWS[name].model, str(loaded.blocks), f"{streams:.0e}", attention
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    transformers.utils.logging.set_verbosity_error()
    main(sys.argv[1:])
