"""Systems of the papers that read text: a tiny random model of each."""

from tests.sources.hf.rows.row import Row

# fmt: off
VOCABULARY = 40
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "initializer_range": 0.2,
    "pad_token_id": 0,
}
GROUPED = SIZES | {"num_key_value_heads": 2}
OF_GPT2 = {
    "vocab_size": VOCABULARY,
    "n_embd": 32,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 64,
    "initializer_range": 0.2,
}
BLOOM = {"vocab_size": VOCABULARY, "hidden_size": 32, "n_layer": 3, "n_head": 4, "initializer_range": 0.2}
FALCON = SIZES | {"new_decoder_architecture": False, "multi_query": False}
T5 = {
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "num_layers": 3,
    "num_heads": 4,
    "d_kv": 8,
    "d_ff": 48,
    "initializer_factor": 2.0,
}

ROWS = {
    "BERT": Row("BertForMaskedLM", SIZES),
    "RoBERTa": Row("RobertaForMaskedLM", SIZES),
    "ALBERT": Row("AlbertForMaskedLM", SIZES | {"embedding_size": 16}, "one set of weights for all layers"),
    "EuroBERT": Row("EuroBertForMaskedLM", GROUPED),
    "ModernBERT, moderncamembert": Row(
        "ModernBertForMaskedLM", SIZES | {"local_attention": 8}, "two layers of three see 4 tokens to either side"
    ),
    "DistilBERT": Row(
        "DistilBertForMaskedLM",
        {
            "vocab_size": VOCABULARY,
            "dim": 32,
            "n_layers": 3,
            "n_heads": 4,
            "hidden_dim": 48,
            "initializer_range": 0.2,
        },
    ),
    "ELECTRA": Row("ElectraForPreTraining", SIZES | {"embedding_size": 16}),
    "OPT": Row("OPTForCausalLM", SIZES | {"ffn_dim": 48, "word_embed_proj_dim": 32, "init_std": 0.2}),
    "OPT-350m": Row(
        "OPTForCausalLM",
        SIZES | {"ffn_dim": 48, "word_embed_proj_dim": 16, "do_layer_norm_before": False, "init_std": 0.2},
        "norms after a sublayer; embeddings of another width",
    ),
    "Llama": Row("LlamaForCausalLM", SIZES),
    "Llama, grouped keys": Row("LlamaForCausalLM", GROUPED, "keys shared by two heads"),
    "SmolLM2": Row("LlamaForCausalLM", GROUPED | {"tie_word_embeddings": True}),
    "Gaperon, up to 8B": Row(
        "LlamaForCausalLM", GROUPED | {"rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}
    ),
    "GPT-2": Row("GPT2LMHeadModel", OF_GPT2),
    "GPT-J": Row("GPTJForCausalLM", OF_GPT2 | {"rotary_dim": 4}),
    "GPT-Neo": Row(
        "GPTNeoForCausalLM",
        {name: size for name, size in SIZES.items() if not name.startswith("num_")}
        | {"num_layers": 4, "num_heads": 4, "window_size": 5, "attention_types": [[["global", "local"], 2]]},
        "every other layer sees 5 tokens; scores are not divided",
    ),
    "Falcon-40B": Row("FalconForCausalLM", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "Falcon-7B": Row("FalconForCausalLM", FALCON | {"multi_query": True}, "one key for all heads"),
    "Falcon-RW": Row("FalconForCausalLM", FALCON | {"alibi": True, "bias": True}, "ALiBi"),
    "Bloom": Row("BloomForCausalLM", BLOOM, "ALiBi"),
    "Pythia": Row("GPTNeoXForCausalLM", SIZES),
    "OLMo": Row("OlmoForCausalLM", SIZES),
    "OLMo 2, Gaperon of 24B": Row("Olmo2ForCausalLM", GROUPED),
    "Mistral": Row("MistralForCausalLM", GROUPED | {"sliding_window": 5}),
    "Qwen2": Row("Qwen2ForCausalLM", GROUPED),
    "CharacterBERT": Row(
        None, said="its own code: words from a convolution over characters, then the blocks of BERT"
    ),
    "CANINE": Row(
        "CanineModel",
        SIZES | {"num_hash_buckets": 64},
        "the blocks of the deep encoder, one position for 4 characters",
    ),
    "ByT5": Row("T5EncoderModel", T5, "the encoder; a bias by distance, scores are not divided"),
    "MANTa-LM": Row(None, said="its own code: bytes joined by a network, then T5"),
    "Gemma": Row("GemmaForCausalLM", GROUPED | {"head_dim": 8}, "embeddings times the root of the width"),
    "Gemma 2": Row(
        "Gemma2ForCausalLM",
        GROUPED | {"head_dim": 8, "sliding_window": 5, "attn_logit_softcapping": 2.0},
        "a cap on the scores: not in the family attention",
    ),
    "Gemma 3, of text": Row(
        "Gemma3ForCausalLM",
        GROUPED | {"head_dim": 8, "sliding_window": 5, "layer_types": ["sliding_attention"] * 2 + ["full_attention"]},
        "two layers of three see 5 tokens",
    ),
    "Qwen3": Row(
        "Qwen3ForCausalLM", GROUPED | {"head_dim": 16}, "norms of queries and keys; heads wider than the stream"
    ),
    "Phi-1, 2": Row("PhiForCausalLM", SIZES),
    "Phi-3, 4": Row("Phi3ForCausalLM", GROUPED),
    "DeBERTa": Row(
        "DebertaModel",
        SIZES | {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 64},
        "contents times relative positions: not in the family attention",
    ),
    "DeBERTa-v3": Row(
        "DebertaV2Model",
        SIZES
        | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_buckets": 8, "share_att_key": True}
        | {"norm_rel_ebd": "layer_norm", "position_biased_input": False},
        "contents times relative positions: not in the family attention",
    ),
    "CLIP, of text": Row("CLIPTextModel", SIZES | {"initializer_factor": 5.0}),
    "OLMoE": Row("OlmoeForCausalLM", GROUPED | {"num_experts": 4, "num_experts_per_tok": 2}, "experts"),
    "CamemBERT": Row("CamembertForMaskedLM", SIZES),
    "XLM-RoBERTa": Row("XLMRobertaForMaskedLM", SIZES),
    "MPNet": Row("MPNetForMaskedLM", SIZES, "a bias by distance"),
    "Mixtral": Row("MixtralForCausalLM", GROUPED | {"num_local_experts": 4}, "experts"),
    "Qwen3, experts": Row(
        "Qwen3MoeForCausalLM",
        GROUPED | {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
        "experts",
    ),
    "gpt-oss": Row(
        "GptOssForCausalLM",
        GROUPED | {"head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": 5},
        "experts; a learned sink: not in the family attention",
    ),
    "Granite": Row(
        "GraniteForCausalLM",
        GROUPED
        | {"attention_multiplier": 0.5, "residual_multiplier": 0.5, "embedding_multiplier": 3.0}
        | {"logits_scaling": 4.0},
        "scores, logits and what is added have factors of their own",
    ),
    "SmolLM3": Row("SmolLM3ForCausalLM", GROUPED | {"num_hidden_layers": 4}, "every fourth layer without rotation"),
    "OLMo 3": Row(
        "Olmo3ForCausalLM",
        GROUPED | {"num_hidden_layers": 4, "sliding_window": 5},
        "three layers of four see 5 tokens",
    ),
    "StarCoder2": Row("Starcoder2ForCausalLM", GROUPED | {"sliding_window": 5}),
    "StableLM": Row("StableLmForCausalLM", GROUPED),
    "Command R": Row("CohereForCausalLM", GROUPED, "attention and MLP side by side; logits have a factor"),
}
# fmt: on
