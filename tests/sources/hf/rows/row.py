"""A system of the papers as a tiny random model, and what is shown of it."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers

from anisoscope.sources.hf import guards
from anisoscope.sources.hf.adapters import adapter_name, find_adapter
from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.load_model import PretrainedModel, attention_implementation


def tokens(settings: Any, windows: int = 3, length: int = 24) -> np.ndarray:
    return (
        np.random.default_rng(0)
        .integers(4, settings.vocab_size, (windows, length))
        .astype(np.int32)
    )


class Row(NamedTuple):
    model: str | None  # the class of transformers; None: it has none
    settings: dict[str, Any] = {}  # what is not default, so that it is tiny  # noqa: RUF012
    said: str = ""  # beside it in the table
    # of the settings: what the tiny model reads, windows first
    reads: Callable[[Any], np.ndarray] = tokens


class Shown(NamedTuple):
    layers: int
    # the largest difference of a block's output from the model's own, relative to its largest
    # number
    streams: float
    # the largest difference of a weight from the model's own; None: no attention
    attention: float | None


def made(row: Row) -> PretrainedModel:
    torch.manual_seed(0)
    kind = getattr(transformers, row.model)
    settings = kind.config_class(**row.settings)
    adapter = find_adapter(adapter_name(settings))
    model = kind._from_config(
        settings, attn_implementation=attention_implementation(adapter)
    ).eval()
    model.requires_grad_(row.reads is tokens)
    for weight in model.parameters():  # some classes begin with biases and class tokens of 0
        if row.reads is not tokens and not weight.any():
            weight.normal_(std=0.2)
    return PretrainedModel(model, adapter, {"computed_in": "float32", "model_class": row.model})


def show(row: Row) -> Shown:
    """Read by our code in two passes, and by the model's own account in one."""
    loaded = made(row)
    read = row.reads(loaded.model.config)
    found = read_activations(loaded, read[None], 2, heads=loaded.adapter.extra_scores is None)
    return Shown(
        loaded.blocks, streams(loaded, found.resid_ZLBTD[0], read), attention(loaded, found, read)
    )


def streams(loaded: PretrainedModel, resid_NWTD: np.ndarray, read: np.ndarray) -> float:
    """All layers but the last are the model's hidden states; the last one, through the final norm,
    its last state.
    """
    lasts: list[Any] = []
    hook = loaded.stack.register_forward_hook(
        lambda module, args, found: lasts.append(found.last_hidden_state)
    )
    own = [state.detach().numpy() for state in guards.model_outputs(loaded, read, "hidden_states")]
    hook.remove()
    # of which hidden_states has the one before the norm in some classes
    own[-1] = lasts[0].detach().numpy()
    with torch.no_grad():
        last = loaded.apply_final_norm(torch.from_numpy(resid_NWTD[-1])).numpy()
    return max(
        np.abs(one - other).max() / np.abs(other).max()
        for one, other in zip([*resid_NWTD[:-1], last], own, strict=True)
    )


def attention(loaded: PretrainedModel, found: Any, read: np.ndarray) -> float | None:
    """softmax of <q, k>/sqrt(K), with the bias and mask that were found in two windows, against all
    windows' own.
    """
    if loaded.adapter.extra_scores:
        return None
    seen, _ = guards.check_attention(loaded, read[:2])
    q_NWTHK, k_NWTHK = found.q_ZNBTHK[0], found.k_ZNBTHK[0]
    scores_NWHTT = np.einsum("nwqhk,nwshk->nwhqs", q_NWTHK, k_NWTHK) / np.sqrt(q_NWTHK.shape[-1])
    scores_NWHTT += 0 if seen.bias_NHTT is None else seen.bias_NHTT[:, None]
    scores_NWHTT = np.where(seen.visible_NTT[:, None, None], scores_NWHTT, -np.inf)
    weights_NWHTT = np.exp(scores_NWHTT - scores_NWHTT.max(-1, keepdims=True))
    weights_NWHTT /= weights_NWHTT.sum(-1, keepdims=True)
    own = guards.model_outputs(loaded, read, "attentions")
    return max(
        float(np.abs(one - other.detach().numpy()).max())
        for one, other in zip(weights_NWHTT, own, strict=True)
    )
