"""Describe a model in memory, and put it into evaluation mode for a while."""

import contextlib
import hashlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

from anisoscope.sources.hf import guards, load_model
from anisoscope.sources.hf.adapters import Adapter, adapter_name, find_adapter
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.utils.errors import UserError

MEMORY = "in memory"
EVALUATION = {
    "use_cache": False,
    "return_dict": True,
    "output_attentions": False,
    "output_hidden_states": False,
}


def model_in_memory(model: Any, tokenizer: Any) -> PretrainedModel:
    """Describe a model in memory; UserError where it cannot be measured as it is."""
    name = type(model).__name__
    if not _is_pretrained(model):
        advice = "pass a PreTrainedModel of transformers"
        if path := _find_inside(model, _is_pretrained):
            advice = f"pass (model{path}, tokenizer), the model of transformers inside"
        record = "or record the activations of any other module with anisoscope.record"
        raise UserError(f"model is a {name}; {advice}, {record}")
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerBase):
        what = f"model is a {name} in memory"
        raise UserError(f"{what}; pass its tokenizer of transformers, as (model, tokenizer)")
    adapter = _choose_adapter(model)
    dtype = next((x.dtype for x in model.parameters() if x.is_floating_point()), torch.float32)
    if (computed_in := _type_name(dtype)) not in guards.CLOSE:
        choices = " or ".join(guards.CLOSE)
        raise UserError(f"{name} computes in {computed_in}; convert it to {choices}")
    load_model.check_finite_weight(name, model)
    if any(path.endswith("inv_freq") and x.itemsize < 4 for path, x in model.named_buffers()):
        what = f"{name}: rotary frequencies are rounded to {computed_in}, as by .to()"
        warnings.warn(f"{what}: load the model with dtype= instead", stacklevel=2)
    weights = model.state_dict()
    attributes = {
        "weights_sha256": digest_state(weights),
        "weights_file": MEMORY,
        "weights_type": ", ".join(sorted({_type_name(x.dtype) for x in weights.values()})),
        "computed_in": computed_in,
        "revision": MEMORY,
    }
    return PretrainedModel(model, adapter, load_model.library_versions(model) | attributes)


def _find_inside(model: Any, condition: Callable[[Any], bool]) -> str:
    """Return the path of the first module of a kind, as in "[0].auto_model"; empty: there is none."""
    modules = model.named_modules() if isinstance(model, torch.nn.Module) else ()
    path = next((path for path, module in modules if path and condition(module)), "")
    return "".join(f"[{x}]" if x.isdigit() else f".{x}" for x in filter(None, path.split(".")))


def _is_pretrained(module: Any) -> bool:
    return isinstance(module, transformers.PreTrainedModel)


def _choose_adapter(model: Any) -> Adapter:
    """Return the entry of a model; UserError where a part of the model is to be passed."""
    name, adapter, config = (
        type(model).__name__,
        find_adapter(adapter_name(model.config)),
        model.config,
    )
    stack, decoder = adapter.stack_path, getattr(config, "is_decoder", False)
    if stack and not hasattr(model.base_model, stack) and not decoder:  # what get_encoder() returns
        norm = adapter.final_norm and adapter.final_norm.removeprefix(f"{stack}.")
        return adapter._replace(stack_path=None, final_norm=norm)
    text = getattr(config, "text_config", None)
    part = _find_inside(model, lambda x: _is_pretrained(x) and x.config is text)
    load_model.check_whole(config, name, f"model{part or '.language_model'}")
    if adapter.model_class not in (None, name):
        advice = f"pass a {adapter.model_class}, which reads its text"
        if hasattr(model, "get_encoder") and config.is_encoder_decoder:
            advice = "pass (model.get_encoder(), tokenizer)"
        raise UserError(f"model is a {name}; {advice}")
    return adapter


def _type_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def digest_state(weights: dict[str, Any]) -> str:
    """Return the sha256 of names, types, shapes and numbers of a state dict."""
    digest = hashlib.sha256()
    for name, x in sorted(weights.items()):
        if x.device.type == "meta":
            return "not known: weights are offloaded"
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        digest.update(x.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return digest.hexdigest()


@contextlib.contextmanager
def evaluation_mode(loaded: PretrainedModel) -> Iterator[None]:
    """Set a model to read windows, without dropout, cache or gradients; restore it at the end."""
    model, config = loaded.model, loaded.model.config
    modes = [(module, module.training) for module in model.modules()]
    settings = {name: getattr(config, name) for name in EVALUATION if hasattr(config, name)}
    attention = config._attn_implementation
    try:
        model.eval()
        for name in settings:
            setattr(config, name, EVALUATION[name])
        if implementation := load_model.attention_implementation(loaded.adapter):
            model.set_attn_implementation(implementation)
        with torch.no_grad():
            yield
    finally:
        for module, training in modes:
            module.training = training
        if config._attn_implementation != attention:
            model.set_attn_implementation(attention)
        for name, value in settings.items():
            setattr(config, name, value)
