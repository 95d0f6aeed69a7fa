"""Load pretrained weights from a hub, a folder or a GGUF file, and record what was read."""

import contextlib
import functools
import inspect
import logging
import os
import pathlib
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import transformers

from anisoscope.config.pretrained_config import WeightsConfig
from anisoscope.sources.hf import gguf_file
from anisoscope.sources.hf.adapters import ENTRY, UNKNOWN, Adapter, find_adapter, model_kind
from anisoscope.sources.hf.pretrained_weights import (
    Place,
    describe_files,
    hub_answers,
    number_types,
    safe_revision,
    weight_files,
)
from anisoscope.utils.errors import UserError

PROCESSORS = ("preprocessor_config.json", "processor_config.json")  # written by current versions
TOKENS = "input_ids"
LOGGERS = ("httpx", "huggingface_hub")
SAFE = {"trust_remote_code": False}

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


class PretrainedModel(NamedTuple):
    """A loaded model with its adapter and the facts that tables record."""

    model: Any  # with its head, if the file has one
    adapter: Adapter
    about: dict[str, Any]  # what tables record of the weights

    @property
    def base(self) -> Any:
        """The module that reads inputs, without a head.

        Some classes name an inner stage as their base; for these it is the model itself.
        """
        base = self.model.base_model
        reads = base.main_input_name in inspect.signature(base.forward).parameters
        return base if reads else self.model

    @property
    def part(self) -> Any:
        """The module that holds the blocks: the base, or one of its stages."""
        return find_module(self.base, self.adapter.part) or self.base

    @property
    def block_modules(self) -> list[Any]:
        return [x for x in self.part.modules() if type(x).__name__ == self.adapter.block]

    @property
    def reads_text(self) -> bool:
        return self.base.main_input_name == TOKENS

    @property
    def blocks(self) -> int:
        config = self.model.config
        if self.adapter.maps:
            return len(self.block_modules)
        if not hasattr(config, "num_hidden_layers"):
            raise UserError(
                f"{type(self.model).__name__} does not say how many layers it has; {ENTRY}"
            )
        inner = self.adapter.inner
        return config.num_hidden_layers * (getattr(config, inner) if inner else 1)

    def apply_final_norm(self, last_BTD: Any) -> Any:
        """Apply the final norm to the last block's output; return the model's last hidden state."""
        for path in (self.adapter.final_norm, self.adapter.final_projection):
            module = find_module(self.base, path)
            last_BTD = last_BTD if module is None else module(last_BTD)
        return last_BTD


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
    library = transformers.utils.logging
    tf32, verbosity = torch.backends.cudnn.allow_tf32, library.get_verbosity()
    progress, levels = (
        library.is_progress_bar_enabled(),
        [logging.getLogger(x).level for x in LOGGERS],
    )
    quiet_libraries()
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = tf32
        library.set_verbosity(verbosity)
        if progress:
            library.enable_progress_bar()
        for name, level in zip(LOGGERS, levels, strict=True):
            logging.getLogger(name).setLevel(level)


def find_module(module: Any, path: str | None) -> Any:
    return functools.reduce(getattr, path.split("."), module) if path else None


def find_weights(name: str, revision: str | None) -> Place:
    """Find the weights of a model.

    Raises:
        UserError: a local name leads to no readable weights.
    """
    quiet_libraries()
    path = pathlib.Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise UserError(f"{name} does not exist; check the path")
        if revision is not None:
            raise UserError(
                f"pretrained.revisions: a GGUF file ({name}) has no revisions; name a folder"
            )
        return Place(str(path.parent), {"gguf_file": path.name}, True)
    if path.is_dir():
        folder = path if revision is None else path / revision
        if not (folder / "config.json").is_file():
            raise UserError(
                f"{folder} holds no model (no config.json); name another folder, or a .gguf file"
            )
        if not any(folder.glob("*.safetensors")):
            raise UserError(
                f"{folder} holds no *.safetensors; pickled weights are never read: convert them"
            )
        return Place(str(folder), {}, True)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise UserError(
            f"{name}: no such folder exists, and a hub has no such name; check the path"
        )
    revision = revision or safe_revision(name)
    options: dict[str, Any] = {} if revision is None else {"revision": revision}
    return Place(name, options | ({} if hub_answers() else {"local_files_only": True}), False)


def read_settings(place: Place) -> Any:
    """Read the model's settings, without its weights.

    Raises:
        UserError: the settings cannot be read, the weights are quantized, or the folder holds only a
            LoRA adapter.
    """
    with _explain_errors(place):
        settings = transformers.AutoConfig.from_pretrained(place.name, **place.options, **SAFE)
    if place.is_gguf:
        return settings
    if quantized := getattr(settings, "quantization_config", None):
        is_dict = isinstance(quantized, dict)
        method = quantized.get("quant_method") if is_dict else quantized.quant_method
        raise UserError(
            f"{place.name}: its weights are quantized ({method}); name unquantized weights, or a "
            ".gguf file"
        )
    with _explain_errors(place):
        lora = transformers.utils.find_adapter_config_file(place.name, **place.options)
    if lora:
        raise UserError(
            f"{place.name} holds a LoRA adapter (adapter_config.json); save the model that its "
            "merge_and_unload() returns"
        )
    return settings


def read_tokenizer(place: Place) -> Any:
    with _explain_errors(place):
        return transformers.AutoTokenizer.from_pretrained(place.name, **place.options, **SAFE)


def read_processor(place: Place, kind: str) -> Any:
    """Read the preprocessor: an AutoImageProcessor or AutoFeatureExtractor."""
    if place.local and not any((pathlib.Path(place.name) / name).is_file() for name in PROCESSORS):
        raise UserError(
            f"{place.name} holds no {PROCESSORS[0]}, which describes the preprocessing; "
            "save the model's processor to it with save_pretrained"
        )
    with _explain_errors(place):
        return getattr(transformers, kind).from_pretrained(place.name, **place.options, **SAFE)


def main_input(settings: Any) -> str:
    """Return what a model reads: input_ids, pixel_values, input_values or input_features."""
    named = getattr(transformers, (settings.architectures or [""])[0], None)
    kind = named or transformers.AutoModel._model_mapping.get(type(settings), None)
    return getattr(kind, "main_input_name", TOKENS)


def load_model(place: Place, weights: WeightsConfig) -> PretrainedModel:
    """Load the weights in the requested type.

    Raises:
        UserError: a weight is missing, has another shape or is not finite.
    """
    settings = read_settings(place)
    adapter = find_adapter(model_kind(settings))
    header = None
    options: dict[str, Any] = {
        "dtype": getattr(torch, weights.dtype),
        "attn_implementation": attention_implementation(adapter),
        "output_loading_info": True,
        "ignore_mismatched_sizes": True,  # refused below with the names of the weights
    }
    if place.is_gguf:
        with _explain_errors(place):
            header = gguf_file.read_header(weight_files(place)[0][0])
        gguf_file.complete_settings(header, settings)
        options["config"] = settings  # parsing them again takes seconds
    else:
        options["use_safetensors"] = True
    if weights.device_map:
        options["device_map"] = weights.device_map
    kind = find_class(settings, adapter, place.is_gguf)
    with _explain_errors(place):
        model, info = kind.from_pretrained(place.name, **place.options, **SAFE, **options)
    if header:
        gguf_file.complete_model(header, model)
    model.eval().requires_grad_(False)
    model.config.use_cache = False
    missing = sorted(name for name in info["missing_keys"] if "pooler" not in name)
    if missing or info["mismatched_keys"]:
        names = ", ".join([*missing, *(str(key[0]) for key in info["mismatched_keys"])][:3])
        raise UserError(
            f"{place.name}: weights of {type(model).__name__} are missing or have another shape: "
            f"{names} …; name another file"
        )
    check_finite(place.name, model)
    digest, kinds, revision = describe_files(place)
    types = set(header.tensors.values()) if header else number_types(weight_files(place)[0])
    return PretrainedModel(
        model,
        adapter,
        library_versions(model)
        | {
            "weights_sha256": digest,
            "weights_file": kinds,
            "weights_type": ", ".join(sorted(types)),
            "computed_in": weights.dtype,
            "not_read": len(info["unexpected_keys"]),
            "revision": revision,
        },
    )


def library_versions(model: Any) -> dict[str, str]:
    """Return the model class and the versions of the libraries, for tables."""
    versions = {"torch": str(torch.__version__), "transformers": transformers.__version__}
    return {"model_class": type(model).__name__} | versions


def attention_implementation(adapter: Adapter) -> str | None:
    """Return how attention is computed outside a `Listener`; None: the default of the library."""
    if adapter == UNKNOWN or adapter.maps:
        return None
    return "sdpa" if adapter.score_exponent is None and adapter.mixed is None else "eager"


def weight_bytes(model: Any) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def find_class(settings: Any, adapter: Adapter, gguf: bool) -> Any:
    names = (adapter.model,) if adapter.model else settings.architectures or ()
    if names and (named := getattr(transformers, names[0], None)) is not None:
        return named
    return transformers.AutoModelForCausalLM if gguf else transformers.AutoModel


@contextlib.contextmanager
def _explain_errors(place: Place) -> Iterator[None]:
    """Reduce errors of the libraries to one line: no network, an unknown name, a gated model."""
    quiet_libraries()
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    except UserError:
        raise
    except Exception as error:
        revision = f" ({place.options['revision']})" if "revision" in place.options else ""
        if "trust_remote_code" in str(error):
            raise UserError(
                f"{place.name}{revision} needs its own code (auto_map), which is never run; name "
                "another model"
            ) from error
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = (lines or [type(error).__name__])[0].rstrip(".")
        if "local_files_only" in place.options:
            reason = "the hub does not answer, and the cache has no copy"
        advice = "" if place.local else "; check the name, or name a local folder or .gguf file"
        raise UserError(f"{place.name}{revision} cannot be loaded: {reason}{advice}") from error


def check_finite(name: str, model: Any) -> None:
    """Raise UserError where a weight is not finite."""
    for weight, x in model.named_parameters():
        if x.device.type != "meta" and not bool(torch.isfinite(x).all()):
            raise UserError(
                f"{name}: weight {weight} holds numbers that are not finite; download it again"
            )
