"""Read a user's model in memory, and restore its state afterward."""

import contextlib
import hashlib
import warnings
from collections.abc import Iterator
from typing import Any

import torch
import transformers

from anisoscope.sources.hf import load_model
from anisoscope.sources.hf.adapters import adapter_name, find_adapter
from anisoscope.sources.hf.guards import CLOSE
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
    if not isinstance(model, transformers.PreTrainedModel):
        raise UserError(
            f"model is a {name}; pass a PreTrainedModel of transformers, or record the activations "
            "of any other module with anisoscope.record"
        )
    if not isinstance(tokenizer, transformers.PreTrainedTokenizerBase):
        raise UserError(
            f"model is a {name} in memory; pass its tokenizer of transformers, as (model, tokenizer)"
        )
    adapter = find_adapter(adapter_name(model.config))
    if adapter.model_class not in (None, name):
        raise UserError(f"model is a {name}; pass a {adapter.model_class}, which reads its text")
    dtype = next((x.dtype for x in model.parameters() if x.is_floating_point()), torch.float32)
    computed_in = _type_name(dtype)
    if computed_in not in CLOSE:
        raise UserError(f"{name} computes in {computed_in}; convert it to {' or '.join(CLOSE)}")
    load_model.check_finite(name, model)
    if any(path.endswith("inv_freq") and x.itemsize < 4 for path, x in model.named_buffers()):
        warnings.warn(
            f"{name}: rotary frequencies are rounded to {_type_name(model.dtype)}, as by .to(), which "
            "changes the angles at later positions; load the model with dtype= instead",
            stacklevel=2,
        )
    weights = model.state_dict()
    attributes = {
        "weights_sha256": digest_state(weights),
        "weights_file": MEMORY,
        "weights_type": ", ".join(sorted({_type_name(x.dtype) for x in weights.values()})),
        "computed_in": computed_in,
        "revision": MEMORY,
    }
    return PretrainedModel(model, adapter, load_model.library_versions(model) | attributes)


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
    """Set a model to read windows, without dropout, cache or gradients; restore it at the end.

    All attributes of modules and settings are restored, and hooks that the library leaves are
    removed.
    """
    model, before = loaded.model, []
    configs = {id(x.config): x.config for x in model.modules() if hasattr(x, "config")}
    for attributes in map(vars, (*model.modules(), *configs.values())):
        dicts = {name: dict(x) for name, x in attributes.items() if isinstance(x, dict)}
        before.append((attributes, dict(attributes), dicts))
    try:
        model.eval()
        for name, value in EVALUATION.items():
            setattr(model.config, name, value)
        if implementation := load_model.attention_implementation(loaded.adapter):
            model.set_attn_implementation(implementation)
        with torch.no_grad():
            yield
    finally:
        for attributes, values, dicts in before:
            attributes.clear()
            attributes.update(values)
            # keep the dict objects: the code that registered a hook removes it from them
            for name, entries in dicts.items():
                attributes[name].clear()
                attributes[name].update(entries)
