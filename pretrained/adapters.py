"""What has to be known of an architecture: an entry each, by `model_type` of its settings."""

from typing import NamedTuple

from workdir.errors import UserError


class Adapter(NamedTuple):
    """Queries and keys need no entry: they are caught where attention takes them, in one place for all."""

    block: str  # the class whose output is the residual stream after a block
    final_norm: str | None  # the norm after the last block, below the base model; None where there is none
    inner: str | None = None  # a setting by which the number of layers is multiplied


ADAPTERS = {
    "albert": Adapter("AlbertLayer", None, inner="inner_group_num"),
    "bert": Adapter("BertLayer", None),
    "gpt2": Adapter("GPT2Block", "ln_f"),
    "gpt_neox": Adapter("GPTNeoXLayer", "final_layer_norm"),
    "llama": Adapter("LlamaDecoderLayer", "norm"),
    "mistral": Adapter("MistralDecoderLayer", "norm"),
    "opt": Adapter("OPTDecoderLayer", "decoder.final_layer_norm"),
    "qwen2": Adapter("Qwen2DecoderLayer", "norm"),
}


def adapter_of(model_type: str) -> Adapter:
    if model_type not in ADAPTERS:
        raise UserError(
            f"models of type {model_type!r} have no entry in pretrained/adapters.py; "
            f"those with one are {', '.join(sorted(ADAPTERS))}"
        )
    return ADAPTERS[model_type]
