"""Apply what transformers drops silently of a GGUF file, or refuse the file."""

import contextlib
import copy
import functools
import os
import pathlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import gguf
import numpy as np
import torch
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from transformers import modeling_gguf_pytorch_utils as reading
from transformers.integrations.ggml import GGUF_CONFIG_MAPPING
from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

from anisoscope.utils.errors import UserError

FREQUENCIES = "rope_freqs.weight"  # divisors of the rotary frequencies, as in Llama 3
HARMLESS = {
    *("vocab_size", "context_length", "tensor_data_layout", "pooling_type"),
    "rope.scaling.finetuned",
}
SCALING = "rope.scaling.type", "rope.scaling.factor", "rope.scaling.original_context_length"
LINEAR_SCALE = "rope.scale_linear"  # the factor, in older files
# names of tokenizers (tokenizer.ggml.pre) that split text as GPT-2 does, and of those that split
# off every digit before; from llama.cpp. transformers knows others, and splits the rest as GPT-2
GPT2_SPLITS = {
    *("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "roberta-bpe"),
    *("jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "jina-v2-code"),
    *("gigachat", "a.x-4.0", "mellum", "modern-bert"),
}
DIGIT_SPLITS = {"smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b"}
EXPERTS = ("_exps", "exp_probs")  # expert tensors, which transformers joins


class Header(NamedTuple):
    """The header of a GGUF file: its keys and the types of its tensors."""

    path: pathlib.Path
    architecture: str
    keys: dict[str, Any]  # keys of the architecture, without its name
    tensors: dict[str, str]  # the type of each
    factors: np.ndarray | None  # FREQUENCIES
    splitting: str  # how its tokenizer splits text before it merges bytes; "" if it does not say so


class Reader(gguf.GGUFReader):
    """A reader of plain views of the file: those of a memory map take five times as long."""

    parsed: dict[str, Any] | None = None  # what transformers makes of the header

    @property
    def data(self) -> np.ndarray:
        return self._data

    @data.setter
    def data(self, mapped: np.ndarray) -> None:
        self._data = mapped.view(np.ndarray)


def open_reader(path: str | os.PathLike[str]) -> Reader:
    """Parse the header of a GGUF file, once while it is unchanged."""
    path = pathlib.Path(path).resolve()
    return _open_reader(str(path), path.stat().st_mtime_ns)


@functools.lru_cache(maxsize=1)
def _open_reader(path: str, changed_ns: int) -> Reader:
    reader = Reader(path)
    count = reader.fields["split.count"].contents() if "split.count" in reader.fields else 1
    if count > 1:
        what = f"{path} is one of {count} files"
        raise UserError(f"{what}; join them with llama-gguf-split --merge, and name the result")
    return reader


@contextlib.contextmanager
def share_file() -> Iterator[None]:
    """Let transformers read the file once for settings, tokenizer and weights.

    It would parse the header for each, and list the names of tensors anew for every module.
    """
    load, names = reading.load_gguf_checkpoint, functools.cache(gguf.get_tensor_name_map)

    def load_shared(path: str, return_tensors: bool = False, **options: Any) -> dict[str, Any]:
        if return_tensors:
            return load(path, return_tensors=True, **options)
        reader = open_reader(path)
        reader.parsed = reader.parsed or load(path)
        return copy.deepcopy(reader.parsed)

    shared = {(gguf, "GGUFReader"): open_reader, (gguf, "get_tensor_name_map"): names}
    shared |= {(reading, "load_gguf_checkpoint"): load_shared}
    own = {place: getattr(*place) for place in shared}
    try:
        for place, function in shared.items():
            setattr(*place, function)
        yield
    finally:
        for place, function in own.items():
            setattr(*place, function)


def forget_reader() -> None:
    """Free the memory of a parsed header."""
    _open_reader.cache_clear()


def read_header(path: pathlib.Path) -> Header:
    """Read what is checked of the header of a GGUF file."""
    reader = open_reader(path)
    architecture = reader.fields["general.architecture"].contents()
    prefix = f"{architecture}."
    keys = {
        name.removeprefix(prefix): field.contents()
        for name, field in reader.fields.items()
        if name.startswith(prefix)
    }
    tensors = {tensor.name: tensor.tensor_type.name for tensor in reader.tensors}
    factors = next((np.array(x.data) for x in reader.tensors if x.name == FREQUENCIES), None)
    kind, splitting = (
        reader.fields[f"tokenizer.ggml.{name}"].contents()
        if f"tokenizer.ggml.{name}" in reader.fields
        else ""
        for name in ("model", "pre")
    )
    return Header(path, architecture, keys, tensors, factors, splitting * (kind == "gpt2"))


def complete_tokenizer(header: Header, tokenizer: Any) -> None:
    """Split text as the file says, where transformers would split it as GPT-2 does.

    Raises:
        UserError: nobody here knows this kind of splitting.
    """
    if header.splitting in DIGIT_SPLITS:
        parts = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(parts)
    elif header.splitting not in {"", *GPT2_SPLITS, *GGUF_PRE_TOKENIZER_SPLITS}:
        what = f"transformers would split text as GPT-2 does, not as {header.splitting} does"
        raise UserError(f"{header.path}: {what}; name the model's folder with its tokenizer.json")


def complete_settings(header: Header, settings: Any) -> None:
    """Set what transformers drops: scaled rotary frequencies, and attention to all tokens.

    Raises:
        UserError: a key would change the model, and is not applied here.
    """
    keys = dict(header.keys)
    if keys.pop("attention.causal", True) is False:
        settings.is_causal = False
    settings.rope_parameters = _scale_rope(keys, getattr(settings, "rope_parameters", None))
    mapping = GGUF_CONFIG_MAPPING.get(header.architecture, {})
    mapping = mapping | GGUF_CONFIG_MAPPING.get(settings.model_type, {})
    implied = _implied_keys(settings)
    for name, value in keys.items():
        if mapping.get(name) is None and name not in HARMLESS and implied.get(name, 0) != value:
            what = f"transformers ignores the key {header.architecture}.{name} ({value})"
            raise UserError(f"{header.path}: {what}; name another file")


def _scale_rope(keys: dict[str, Any], rope: dict[str, Any] | None) -> dict[str, Any] | None:
    """Remove the known keys of scaled frequencies from `keys` and apply them."""
    scaling = keys.get(SCALING[0], "linear")
    factor = keys.get(SCALING[1], keys.get(LINEAR_SCALE, 1.0))
    if scaling not in ("none", "linear", "yarn") or (rope or {}).get("rope_type") != "default":
        return rope
    original = keys.get(SCALING[2], keys.get("context_length"))
    for name in (*SCALING, LINEAR_SCALE):
        keys.pop(name, None)
    if scaling == "none" or factor in (0.0, 1.0):
        return rope
    scaled = rope | {"rope_type": scaling, "factor": float(factor)}
    return scaled | ({"original_max_position_embeddings": original} if scaling == "yarn" else {})


def _implied_keys(settings: Any) -> dict[str, Any]:
    """Return the values of unread keys that only repeat what the model does anyway."""
    width = getattr(settings, "head_dim", None)
    width = width or settings.hidden_size // settings.num_attention_heads
    rope = getattr(settings, "rope_parameters", None) or {}
    implied = {"attention.key_length": width, "attention.value_length": width}
    implied["rope.dimension_count"] = int(width * rope.get("partial_rotary_factor", 1.0))
    names = {"attention.sliding_window": "sliding_window"}
    names |= {name: name for name in ("logit_scale", "use_parallel_residual")}
    names |= {name: name for name in ("attn_logit_softcapping", "final_logit_softcapping")}
    return implied | {key: getattr(settings, name, 0) for key, name in names.items()}


def complete_model(header: Header, model: Any) -> None:
    """Divide rotary frequencies by the file's factors.

    Raises:
        UserError: a tensor of the file is not part of the model.
    """
    processor = reading.TENSOR_PROCESSORS.get(header.architecture, reading.TensorProcessor)
    names = reading.get_gguf_hf_weights_map(model, processor(config=model.config.to_dict()))
    left = [x for x in header.tensors if x not in names and not any(part in x for part in EXPERTS)]
    inverse = getattr(getattr(model.base_model, "rotary_emb", None), "inv_freq", None)
    if header.factors is not None and inverse is not None and inverse.shape == header.factors.shape:
        inverse /= torch.as_tensor(header.factors, dtype=inverse.dtype, device=inverse.device)
        left.remove(FREQUENCIES)
    if left:
        what = f"transformers ignores the tensors {', '.join(left[:3])}"
        raise UserError(f"{header.path}: {what}; name another file")
