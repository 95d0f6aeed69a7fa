"""Load a pretrained model from a hub, a folder or a GGUF file, and record what was read."""

import contextlib
import functools
import inspect
import logging
import os
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import transformers

from anisoscope.config.pretrained_config import WeightsConfig
from anisoscope.sources.hf import gguf_file
from anisoscope.sources.hf.adapters import ENTRY, UNKNOWN, Adapter, adapter_name, find_adapter
from anisoscope.sources.hf.pretrained_weights import (
    FORMATS,
    WeightLocation,
    digest_model,
    digest_weights,
    number_types,
    weight_files,
)
from anisoscope.utils.errors import UserError

TOKENS = "input_ids"
LOGGERS = ("httpx", "huggingface_hub")
SAFE = {"trust_remote_code": False}

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


class PretrainedModel(NamedTuple):
    """A loaded model with its adapter and the facts that tables record."""

    model: Any  # with its head, if the file has one
    adapter: Adapter
    attributes: dict[str, Any]  # what tables record of the weights

    @property
    def class_name(self) -> str:
        return type(self.model).__name__

    @property
    def base(self) -> Any:
        """The module that reads inputs, without a head: not an inner stage."""
        base = self.model.base_model
        reads = base.main_input_name in inspect.signature(base.forward).parameters
        return base if reads else self.model

    @property
    def stack(self) -> Any:
        """The module that holds the blocks: the base, or one of its stages."""
        return find_module(self.base, self.adapter.stack_path) or self.base

    @property
    def block_modules(self) -> list[Any]:
        return [x for x in self.stack.modules() if type(x).__name__ == self.adapter.block_class]

    @property
    def reads_text(self) -> bool:
        return self.base.main_input_name == TOKENS

    @property
    def blocks(self) -> int:
        config, setting = self.model.config, self.adapter.blocks_per_layer
        if not hasattr(config, "num_hidden_layers"):
            raise UserError(f"{self.class_name} does not say how many layers it has; {ENTRY}")
        return config.num_hidden_layers * (getattr(config, setting) if setting else 1)

    def apply_final_norm(self, last_BTD: Any) -> Any:
        """Apply the final norm to the last block's output; return the model's last hidden state."""
        for path in (self.adapter.final_norm, self.adapter.final_projection):
            module = find_module(self.base, path)
            last_BTD = last_BTD if module is None else module(last_BTD)
        return last_BTD


def tokens_per_position(settings: Any) -> int:
    """Return how many tokens share a position."""
    setting = find_adapter(adapter_name(settings)).tokens_per_position
    return getattr(settings, setting) if setting else 1


def find_module(module: Any, path: str | None) -> Any:
    return functools.reduce(getattr, path.split("."), module) if path else None


def quiet_libraries() -> None:
    """Silence the libraries, and compute float32 convolutions in full precision."""
    torch.backends.cudnn.allow_tf32 = False
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence the libraries while the context lasts."""
    library, loggers = transformers.utils.logging, [logging.getLogger(x) for x in LOGGERS]
    tf32, verbosity = torch.backends.cudnn.allow_tf32, library.get_verbosity()
    progress, levels = library.is_progress_bar_enabled(), [logger.level for logger in loggers]
    quiet_libraries()
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = tf32
        library.set_verbosity(verbosity)
        if progress:
            library.enable_progress_bar()
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def read_settings(location: WeightLocation) -> Any:
    """Read the model's settings; UserError where weights are quantized, or a LoRA adapter's."""
    name, options = location.name, location.options
    with _explain_errors(location):
        settings = transformers.AutoConfig.from_pretrained(name, **options, **SAFE)
        if location.is_gguf:
            return settings
        lora = transformers.utils.find_adapter_config_file(name, **options)
    if getattr(settings, "quantization_config", None):
        raise UserError(f"{name}: its weights are quantized; name others, or a .gguf file")
    if lora:
        advice = "save the model that its merge_and_unload() returns"
        raise UserError(f"{name} holds a LoRA adapter (adapter_config.json); {advice}")
    return settings


def read_tokenizer(location: WeightLocation, class_name: str = "AutoTokenizer") -> Any:
    """Read a tokenizer, or another preprocessor: AutoImageProcessor or AutoFeatureExtractor."""
    with _explain_errors(location):
        kind = getattr(transformers, class_name)
        read = kind.from_pretrained(location.name, **location.options, **SAFE)
        if location.is_gguf:
            gguf_file.complete_tokenizer(gguf_file.read_header(weight_files(location)[0][0]), read)
        return read


def main_input(settings: Any) -> str:
    """Return what a model reads: input_ids, pixel_values, input_values or input_features."""
    model_class = getattr(transformers, (settings.architectures or [""])[0], None)
    model_class = model_class or transformers.AutoModel._model_mapping.get(type(settings), None)
    return getattr(model_class, "main_input_name", TOKENS)


def load_model(location: WeightLocation, weights: WeightsConfig) -> PretrainedModel:
    """Load the weights; UserError where one is missing, has another shape or is not finite."""
    settings = read_settings(location)
    check_whole(settings, (settings.architectures or [settings.model_type])[0])
    adapter, header = find_adapter(adapter_name(settings)), None
    options: dict[str, Any] = {
        "dtype": getattr(torch, weights.dtype),
        "attn_implementation": attention_implementation(adapter),
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # refused below with the names of the weights
        "device_map": weights.device_map or None,
    }
    with _explain_errors(location):
        if location.is_gguf:
            header = gguf_file.read_header(weight_files(location)[0][0])
            gguf_file.complete_settings(header, settings)
            options["config"] = settings  # parsing them again takes seconds
        else:
            options["use_safetensors"] = True
        kind = find_class(settings, location.is_gguf)
        model, info = kind.from_pretrained(location.name, **location.options, **SAFE, **options)
        if header:
            gguf_file.complete_model(header, model)
            gguf_file.forget_reader()
    model.eval().requires_grad_(False)
    model.config.use_cache = False
    wrong = sorted(name for name in info["missing_keys"] if "pooler" not in name)
    body, prefix = model.base_model, model.base_model_prefix
    if wrong and body is not model and not any(name.startswith(f"{prefix}.") for name in wrong):
        model, wrong = body, []  # the file lacks the head that its settings name
    if wrong := [*wrong, *(str(key[0]) for key in info["mismatched_keys"])]:
        what = f"weights of {type(model).__name__} are missing or have another shape"
        names = ", ".join(wrong[:3])
        raise UserError(f"{location.name}: {what}: {names} …; name another file")
    check_finite_weight(location.name, model)
    paths, revision = weight_files(location)
    types = set(header.tensors.values()) if header else number_types(paths)
    digest = digest_weights(location)
    attributes = library_versions(model) | {
        "weights_sha256": digest,
        "model_sha256": digest_model(location, digest),
        "weights_file": FORMATS[paths[0].suffix],
        "weights_type": ", ".join(sorted(types)),
        "computed_in": weights.dtype,
        "not_read": len(info["unexpected_keys"]),
        "revision": revision,
    }
    return PretrainedModel(model, adapter, attributes)


def check_whole(settings: Any, name: str, text_part: str = "model.model.language_model") -> None:
    """Refuse a model of several parts of which no entry says which is read."""
    if find_adapter(adapter_name(settings)) != UNKNOWN:
        return
    encoder = name.endswith(("Encoder", "EncoderModel", "Stack"))
    if settings.is_encoder_decoder and not (encoder and not getattr(settings, "is_decoder", False)):
        what, part = "is an encoder and a decoder", "model.get_encoder()"
    elif getattr(settings, "text_config", None) is not None:
        what, part = "has its text model inside", text_part
    else:
        return
    raise UserError(f"{name} {what}; load it with transformers, and pass ({part}, tokenizer)")


def library_versions(model: Any) -> dict[str, str]:
    """Return the model class and the versions of the libraries, for tables."""
    versions = {"torch": str(torch.__version__), "transformers": transformers.__version__}
    return {"model_class": type(model).__name__, **versions}


def attention_implementation(adapter: Adapter) -> str | None:
    """Return how attention is computed outside a `Listener`; None: the default of the library."""
    if adapter == UNKNOWN:
        return None
    return "sdpa" if adapter.score_exponent is None and not adapter.extra_scores else "eager"


def find_class(settings: Any, gguf: bool = False) -> Any:
    """Return the class of transformers that loads the weights."""
    name = find_adapter(adapter_name(settings)).model_class or (settings.architectures or [""])[0]
    other = transformers.AutoModelForCausalLM if gguf else transformers.AutoModel
    return getattr(transformers, name, None) or other


def check_finite_weight(name: str, model: Any) -> None:
    """Raise UserError where a weight is not finite."""
    for weight, x in model.named_parameters():
        if x.device.type == "meta" or not x.numel():
            continue
        if not torch.isfinite(torch.stack(x.aminmax())).all():  # isfinite(x) takes copies of it
            what = f"{name}: weight {weight} holds numbers that are not finite"
            raise UserError(f"{what}; download it again")


@contextlib.contextmanager
def _explain_errors(location: WeightLocation) -> Iterator[None]:
    """Reduce errors of the libraries to one line: no network, an unknown name, a gated model."""
    quiet_libraries()
    shared = gguf_file.share_file() if location.is_gguf else contextlib.nullcontext()
    try:
        with warnings.catch_warnings(action="ignore"), shared:
            yield
    except UserError:
        raise
    except Exception as error:
        name = f"{location.name} {location.options.get('revision', '')}".rstrip()
        if "trust_remote_code" in str(error):
            what = f"{name} needs its own code (auto_map), which is never run"
            raise UserError(f"{what}; name another model") from error
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        if "local_files_only" in location.options:
            reason = "the hub does not answer, and the cache has no copy"
        advice = "" if location.local else "; check the name, or name a local folder or .gguf file"
        raise UserError(f"{name} cannot be loaded: {reason}{advice}") from error
