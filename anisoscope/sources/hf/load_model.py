"""Weights from a hub, a folder or a GGUF file: what is there, what was read, and one line where it
cannot be.
"""

import contextlib
import functools
import inspect
import logging
import os
import pathlib
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import transformers

from anisoscope.config.pretrained_config import WeightsConfig
from anisoscope.sources.hf import gguf_file
from anisoscope.sources.hf.adapters import UNKNOWN, Adapter, find_adapter, model_kind
from anisoscope.sources.hf.pretrained_weights import (
    Place,
    describe_files,
    number_types,
    safe_revision,
    weight_files,
)
from anisoscope.utils.errors import UserError

SECONDS = 10  # after which a hub that does not answer is given up
# of today, and beside a tokenizer
PROCESSORS = ("preprocessor_config.json", "processor_config.json")
TOKENS = "input_ids"
LOGGERS = ("httpx", "huggingface_hub")
SAFE = {"trust_remote_code": False}

os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


class PretrainedModel(NamedTuple):
    model: Any  # with its head, if the file has one
    adapter: Adapter
    about: dict[str, Any]  # what is recorded of the weights

    @property
    def base(self) -> Any:
        """What reads inputs, without a head; of some classes base_model is a stage inside of it."""
        base = self.model.base_model
        reads = base.main_input_name in inspect.signature(base.forward).parameters
        return base if reads else self.model

    @property
    def part(self) -> Any:
        """What holds the blocks: the base, or one of its stages."""
        return find_module(self.base, self.adapter.part) or self.base

    @property
    def block_modules(self) -> list[Any]:
        return [
            module for module in self.part.modules() if type(module).__name__ == self.adapter.block
        ]

    def finished(self, last_BTD: Any) -> Any:
        """What the model gives away in place of the output of the last block."""
        for path in (self.adapter.final_norm, self.adapter.after):
            module = find_module(self.base, path)
            last_BTD = last_BTD if module is None else module(last_BTD)
        return last_BTD

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
                f"{type(self.model).__name__}: its settings do not say how many layers it has, as those of models with "
                "several parts; an entry in sources/hf/adapters.py must say which are meant"
            )
        return config.num_hidden_layers * (
            getattr(config, self.adapter.inner) if self.adapter.inner else 1
        )


def quiet_libraries() -> None:
    """The libraries say nothing from now on, and what is computed in float32 is: also
    convolutions.
    """
    torch.backends.cudnn.allow_tf32 = False
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """The same, until it is left."""
    said = transformers.utils.logging
    before = torch.backends.cudnn.allow_tf32, said.get_verbosity(), said.is_progress_bar_enabled()
    levels = [logging.getLogger(name).level for name in LOGGERS]
    quiet_libraries()
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before[0]
        said.set_verbosity(before[1])
        if before[2]:
            said.enable_progress_bar()
        for name, level in zip(LOGGERS, levels, strict=True):
            logging.getLogger(name).setLevel(level)


def find_module(module: Any, path: str | None) -> Any:
    return functools.reduce(getattr, path.split("."), module) if path else None


def find_weights(name: str, revision: str | None) -> Place:
    """UserError where a local name leads to nothing that may be read."""
    quiet_libraries()
    path = pathlib.Path(name).expanduser()
    if path.suffix == ".gguf":
        if not path.is_file():
            raise UserError(f"{name}: there is no such file")
        if revision is not None:
            raise UserError(
                f"pretrained.revisions: a GGUF file ({name}) has none; name a folder or a model of a hub"
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
                f"{folder} holds no *.safetensors; pickled weights (.bin, .pt) can run code and are never read: "
                "convert them with torch.load(…, weights_only=True) and save_pretrained"
            )
        return Place(str(folder), {}, True)
    if name.startswith(("/", ".", "~")) or name.count("/") > 1:
        raise UserError(f"{name}: there is no such folder, and no model of a hub has such a name")
    revision = revision or safe_revision(name, _answers())
    given = {} if revision is None else {"revision": revision}
    return Place(name, given | ({} if _answers() else {"local_files_only": True}), False)


@functools.cache
def _answers() -> bool:
    """Whether there is a hub; asked once, since the libraries ask six times and wait in between."""
    address = os.environ.get("HF_ENDPOINT", "https://huggingface.co")
    if os.environ.get("HF_HUB_OFFLINE", "0") not in ("0", ""):
        return False
    try:
        urllib.request.urlopen(
            urllib.request.Request(address, method="HEAD"), timeout=SECONDS
        ).close()
    except urllib.error.HTTPError:  # an answer too
        return True
    except OSError:
        return False
    return True


def read_settings(place: Place) -> Any:
    """The model's own settings, without its weights; UserError where these are not all, or
    quantised.
    """
    settings = _attempt(
        place, lambda: transformers.AutoConfig.from_pretrained(place.name, **place.given, **SAFE)
    )
    if "gguf_file" in place.given:
        return settings
    if quantised := getattr(settings, "quantization_config", None):
        method = (
            quantised.get("quant_method") if isinstance(quantised, dict) else quantised.quant_method
        )
        raise UserError(
            f"{place.name}: its weights are quantised ({method}); of quantised weights only a .gguf file is read: "
            "name one, or the weights from before they were quantised"
        )
    if _attempt(
        place, lambda: transformers.utils.find_adapter_config_file(place.name, **place.given)
    ):
        raise UserError(
            f"{place.name} holds an adapter (adapter_config.json) beside the weights, which would be left out: "
            "merge it with merge_and_unload() of peft, and name what save_pretrained writes"
        )
    return settings


def read_tokenizer(place: Place) -> Any:
    return _attempt(
        place, lambda: transformers.AutoTokenizer.from_pretrained(place.name, **place.given, **SAFE)
    )


def main_input(settings: Any) -> str:
    """What a model is given, in the words of its class: input_ids, pixel_values, input_values or
    input_features.
    """
    named = getattr(transformers, (settings.architectures or [""])[0], None)
    kind = named or transformers.AutoModel._model_mapping.get(type(settings), None)
    return getattr(kind, "main_input_name", TOKENS)


def read_processor(place: Place, kind: str) -> Any:
    """What makes inputs of pictures (AutoImageProcessor) or of sound (AutoFeatureExtractor)."""
    if place.local and not any((pathlib.Path(place.name) / name).is_file() for name in PROCESSORS):
        raise UserError(
            f"{place.name} holds no {PROCESSORS[0]}, which says how its inputs are made; "
            "save it there with the save_pretrained of the model's own processor"
        )
    return _attempt(
        place,
        lambda: getattr(transformers, kind).from_pretrained(place.name, **place.given, **SAFE),
    )


def load_model(place: Place, weights: WeightsConfig) -> PretrainedModel:
    """In the type asked for, not in that of the file; UserError where a weight is missing or not
    finite.
    """
    settings = read_settings(place)
    adapter = find_adapter(model_kind(settings))
    gguf, header = "gguf_file" in place.given, None
    if gguf:
        header = _attempt(place, lambda: gguf_file.read_header(weight_files(place)[0][0]))
        gguf_file.complete_settings(header, settings)
    options = {"dtype": getattr(torch, weights.dtype), "output_loading_info": True}
    options["ignore_mismatched_sizes"] = True  # refused below, by name
    options["attn_implementation"] = attention_implementation(adapter)
    # not parsed again, which takes seconds
    options |= {"config": settings} if gguf else {"use_safetensors": True}
    options |= {"device_map": weights.device_map} if weights.device_map else {}
    kind = find_class(settings, adapter, gguf)
    model, info = _attempt(
        place, lambda: kind.from_pretrained(place.name, **place.given, **SAFE, **options)
    )
    if header:
        gguf_file.complete_model(header, model)
    model.eval().requires_grad_(False)
    model.config.use_cache = False
    missing = sorted(name for name in info["missing_keys"] if "pooler" not in name)
    if missing or info["mismatched_keys"]:
        names = ", ".join([*missing, *(str(key[0]) for key in info["mismatched_keys"])][:3])
        raise UserError(
            f"{place.name}: the file lacks weights of {type(model).__name__}, or has others: {names} …"
        )
    check_finite(place.name, model)
    digest, kinds, revision = describe_files(place)
    types = set(header.tensors.values()) if header else number_types(weight_files(place)[0])
    about = library_versions(model) | {
        "weights_sha256": digest,
        "weights_file": kinds,
        "weights_type": ", ".join(sorted(types)),
        "computed_in": weights.dtype,
        "not_read": len(info["unexpected_keys"]),
        "revision": revision,
    }
    return PretrainedModel(model, adapter, about)


def library_versions(model: Any) -> dict[str, Any]:
    """What is recorded of any model."""
    versions = {"torch": str(torch.__version__), "transformers": transformers.__version__}
    return {"model_class": type(model).__name__} | versions


def attention_implementation(adapter: Adapter) -> str | None:
    """How attention is computed while nobody listens; None: as the library thinks best."""
    if adapter == UNKNOWN or adapter.maps:
        return None
    return "sdpa" if adapter.own is None and adapter.mixed is None else "eager"


def weight_bytes(model: Any) -> int:
    return sum(parameter.numel() * parameter.element_size() for parameter in model.parameters())


def find_class(settings: Any, adapter: Adapter, gguf: bool) -> Any:
    names = (adapter.model,) if adapter.model else settings.architectures or ()
    named = [getattr(transformers, name, None) for name in names]
    if named and named[0] is not None:
        return named[0]
    return transformers.AutoModelForCausalLM if gguf else transformers.AutoModel


def _attempt(place: Place, work: Any) -> Any:
    """What the libraries raise, as one line: no network, an unknown or a gated name, a broken
    file.
    """
    quiet_libraries()
    revision = f" ({place.given['revision']})" if "revision" in place.given else ""
    try:
        with warnings.catch_warnings(action="ignore"):
            return work()
    except UserError:
        raise
    except Exception as error:  # of four libraries, each with errors of its own
        if "trust_remote_code" in str(error):
            raise UserError(
                f"{place.name}{revision} needs code of its own (auto_map), which is never run: name a model "
                "whose class transformers has"
            ) from error
        first = next(
            (line for line in str(error).splitlines() if line.strip()), type(error).__name__
        ).strip()
        advice = "" if place.local else "; a local folder or .gguf file can be named instead"
        if "local_files_only" in place.given:
            first = "the hub does not answer, and there is no copy of it in the cache"
        raise UserError(
            f"{place.name}{revision} cannot be had: {first.rstrip('.')}{advice}"
        ) from error


def check_finite(name: str, model: Any) -> None:
    for weight, parameter in model.named_parameters():
        if parameter.device.type != "meta" and not bool(torch.isfinite(parameter).all()):
            raise UserError(
                f"{name}: weight {weight} holds numbers that are not finite; it is damaged"
            )
