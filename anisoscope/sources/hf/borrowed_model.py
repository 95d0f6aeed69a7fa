"""A model that somebody lends: found by name or in memory, and left as it was."""

import contextlib
import hashlib
import os
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import transformers

from anisoscope.config import pretrained_config
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources.hf import load_model
from anisoscope.sources.hf.adapters import UNKNOWN, find_adapter, model_kind
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading import guards, named_modules
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace

MEMORY = "in memory"
READING = {
    "use_cache": False,
    "return_dict": True,
    "output_attentions": False,
    "output_hidden_states": False,
}


def open_model(
    model: Any, tokenizer: Any, config: PretrainedConfig, any_module: bool
) -> tuple[PretrainedModel, Any]:
    """The model and its tokenizer, fetched where a name or a path is given; UserError where it
    reads no text.
    """
    if isinstance(model, tuple):
        if len(model) != 2 or tokenizer is not None:
            raise UserError(
                "model is a tuple; (model, tokenizer) is needed, and no tokenizer beside it"
            )
        model, tokenizer = model
    by_name = isinstance(model, str | os.PathLike)
    name = os.fspath(model) if by_name else MEMORY
    pretrained_config.check_pretrained(replace(config, {"pretrained.name": name}))
    place = load_model.find_weights(name, None) if by_name else None
    loaded = (
        load_model.load_model(place, config.pretrained)
        if by_name
        else model_in_memory(model, tokenizer, any_module)
    )
    of_hub = isinstance(loaded.model, transformers.PreTrainedModel)
    called = getattr(model, "name_or_path", None) or type(model).__name__
    loaded.about["pretrained"] = name if by_name else f"{called}, {MEMORY}"
    if tokenizer is not None and not isinstance(tokenizer, transformers.PreTrainedTokenizerBase):
        if not callable(tokenizer):
            raise UserError(
                f"tokenizer is a {type(tokenizer).__name__}; one of transformers, or a function is needed"
            )
        tokenizer = named_modules.FunctionTokenizer(tokenizer)
    if of_hub and not loaded.reads_text:
        raise UserError(
            f"{type(loaded.model).__name__} reads {loaded.base.main_input_name}, no text"
        )
    return loaded, load_model.read_tokenizer(place) if tokenizer is None else tokenizer


def model_in_memory(model: Any, tokenizer: Any, any_module: bool) -> PretrainedModel:
    """UserError where it cannot be measured as it is."""
    name, of_hub = type(model).__name__, isinstance(model, transformers.PreTrainedModel)
    if not of_hub and not isinstance(model, torch.nn.Module):
        raise UserError(
            f"model is a {name}; a name, a path, a PreTrainedModel of transformers, or a module is needed"
        )
    if not of_hub and not any_module:
        raise UserError(
            f"model is a {name}; a name, a path, or a PreTrainedModel of transformers is needed, or hook_points= with "
            "names of its modules"
        )
    if tokenizer is None:
        raise UserError(f"a model in memory ({name}) comes without its tokenizer: pass tokenizer=")
    adapter = find_adapter(model_kind(model.config)) if of_hub else UNKNOWN
    if adapter.model not in (None, name) and not any_module:
        raise UserError(f"model is a {name}; of its kind {adapter.model} is measured: pass one")
    dtype = next((x.dtype for x in model.parameters() if x.is_floating_point()), torch.float32)
    computed_in = str(dtype).removeprefix("torch.")
    if computed_in not in guards.CLOSE:
        raise UserError(
            f"{name} computes in {computed_in}; one of {', '.join(guards.CLOSE)} is needed"
        )
    load_model.check_finite(name, model)
    warn_rounded_frequencies(name, model)
    weights = model.state_dict()
    about = {
        "weights_sha256": digest_weights(weights),
        "weights_file": MEMORY,
        "weights_type": ", ".join(
            sorted({str(x.dtype).removeprefix("torch.") for x in weights.values()})
        ),
        "computed_in": computed_in,
        "revision": MEMORY,
    }
    return PretrainedModel(model, adapter, load_model.library_versions(model) | about)


def warn_rounded_frequencies(name: str, model: Any) -> None:
    """Warn where rotary frequencies were rounded with the weights, as by
    model.to(torch.bfloat16).
    """
    for path, x in model.named_buffers():
        if path.endswith("inv_freq") and x.itemsize < 4:
            kind = str(x.dtype).removeprefix("torch.")
            warnings.warn(
                f"{name}: rotary frequencies are rounded to {kind} ({path}), which turns later positions by "
                f"other angles; load the model with dtype=torch.{kind} in place of .to()",
                stacklevel=2,
            )
            return


def digest_weights(weights: dict[str, Any]) -> str:
    """sha256 of names, types, shapes and numbers, of a state dict; of weights that are elsewhere
    none.
    """
    digest = hashlib.sha256()
    for name, x in sorted(weights.items()):
        if x.device.type == "meta":
            return "not known: weights are offloaded"
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        digest.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


@contextlib.contextmanager
def evaluation_mode(loaded: PretrainedModel) -> Iterator[None]:
    """The model as it reads windows: no dropout, no cache, no gradients; afterwards it is what it
    was.

    All that modules and settings hold is put back, also hooks that the library leaves behind.
    """
    things = [*loaded.model.modules(), *_settings(loaded.model)]
    before = [
        (
            vars(one),
            dict(vars(one)),
            {name: dict(x) for name, x in vars(one).items() if isinstance(x, dict)},
        )
        for one in things
    ]
    try:
        loaded.model.eval()
        if isinstance(loaded.model, transformers.PreTrainedModel):
            for name, value in READING.items():
                setattr(loaded.model.config, name, value)
        if way := load_model.attention_implementation(loaded.adapter):
            loaded.model.set_attn_implementation(way)
        with torch.no_grad():
            yield
    finally:
        for now, own, dicts in before:
            now.clear()
            now.update(own)
            # the same objects: whoever registered a hook removes it from them
            for name, entries in dicts.items():
                now[name].clear()
                now[name].update(entries)


def _settings(model: Any) -> list[Any]:
    """Of the model and of all its parts, each once."""
    configs: dict[int, Any] = {}
    todo = [module.config for module in model.modules() if hasattr(module, "config")]
    while todo:
        one = todo.pop()
        if isinstance(one, transformers.PreTrainedConfig) and id(one) not in configs:
            configs[id(one)] = one
            todo += [getattr(one, name, None) for name in one.sub_configs]
    return list(configs.values())
