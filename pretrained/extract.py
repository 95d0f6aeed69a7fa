"""What a model computes: the residual stream of every layer, queries and keys, caught while it reads windows.

Nothing is taken from `hidden_states`, whose last entry has gone through the final norm in one model and not in another.
Arrays carry the letters of `models`, and W windows.
"""

import contextlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask

from pretrained.load import Loaded
from workdir.errors import UserError

CAPTURE = "anisoscope"  # the attention that hands on what it is called with, and computes as sdpa does


class Call(NamedTuple):
    """What attention was called with in one block."""

    q_BHTK: Any  # times scaling * sqrt(K), so that scores are <q, k> / sqrt(K) whatever the model divides by
    k_BHTK: Any  # repeated where several heads share them
    mask: Any  # 0 where a key is seen; None where all are
    more: tuple[str, ...]  # names of what else enters the scores


class Activations(NamedTuple):
    resid_NWTD: np.ndarray  # N+1 layers: the input of the first block, then the output of every block
    q_NWTHK: np.ndarray  # N blocks, as they enter the dot product
    k_NWTHK: np.ndarray


_listener: list[Any] = []  # who is told of calls: an attention function has no other way to know


def _capture(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, scaling: float | None = None, **more: Any
) -> tuple[Any, None]:
    if _listener:
        width, heads = query.shape[-1], query.shape[1] // key.shape[1]
        by = width**-0.5 if scaling is None else scaling
        scores = tuple(name for name in ("position_bias", "s_aux", "softcap") if more.get(name) is not None)
        q_BHTK = query * (by * width**0.5)
        _listener[-1](Call(q_BHTK, key.repeat_interleave(heads, dim=1), attention_mask, scores))
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)


transformers.AttentionInterface.register(CAPTURE, _capture)
transformers.AttentionMaskInterface.register(CAPTURE, eager_mask)


@contextlib.contextmanager
def listening(loaded: Loaded, on_layer: Any, on_call: Any) -> Iterator[dict[str, int]]:
    """Tells on_layer(n, x_BTD) of the residual stream at every layer and on_call(n, Call) of every attention.

    Yields the counts of layers and calls. One module may be many blocks, as in ALBERT: the order tells them apart.
    """
    counts = {"layers": 0, "calls": 0}

    def before(_: Any, args: tuple, given: dict) -> None:
        if counts["layers"] == 0:
            on_layer(0, args[0] if args else given["hidden_states"])
            counts["layers"] = 1

    def after(_: Any, args: tuple, found: Any) -> None:
        on_layer(counts["layers"], found[0] if isinstance(found, tuple) else found)
        counts["layers"] += 1

    def called(call: Call) -> None:
        on_call(counts["calls"], call)
        counts["calls"] += 1

    blocks = [module for module in loaded.base.modules() if type(module).__name__ == loaded.adapter.block]
    handles = [block.register_forward_pre_hook(before, with_kwargs=True) for block in blocks]
    handles += [block.register_forward_hook(after) for block in blocks]
    before_that = loaded.model.config._attn_implementation
    loaded.model.set_attn_implementation(CAPTURE)
    _listener.append(called)
    try:
        yield counts
    finally:
        _listener.pop()
        for handle in handles:
            handle.remove()
        loaded.model.set_attn_implementation(before_that)


def read(loaded: Loaded, tokens_BT: np.ndarray, of: Any = None, **more: Any) -> Any:
    """One pass of the model, or of its base; without padding, so that all positions count from 0."""
    module = loaded.base if of is None else of
    ids_BT = torch.as_tensor(np.ascontiguousarray(tokens_BT), dtype=torch.long, device=loaded.base.device)
    with torch.no_grad():
        return module(input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT), **more)


def activations(loaded: Loaded, tokens_WT: np.ndarray, batch_size: int, heads: bool) -> Activations:
    """Of all windows in float32, block by block into arrays; UserError where one is not finite or was not caught."""
    windows, layers = len(tokens_WT), loaded.blocks + 1
    made: dict[str, np.ndarray] = {}

    def put(name: str, n: int, count: int, rows: slice, values: Any) -> None:
        values = values.detach().to("cpu", torch.float32).numpy()
        if not np.isfinite(values).all():
            raise UserError(f"{name} of layer {n} holds numbers that are not finite, computed in {_dtype(loaded)}")
        if name not in made:
            made[name] = np.empty((count, windows, *values.shape[1:]), np.float32)
        if n < count:
            made[name][n, rows] = values

    for start in range(0, windows, batch_size):
        rows = slice(start, start + batch_size)

        def on_layer(n: int, x_BTD: Any, rows: slice = rows) -> None:
            put("the residual stream", n, layers, rows, x_BTD)

        def on_call(n: int, call: Call, rows: slice = rows) -> None:
            if heads:
                put("queries", n, layers - 1, rows, call.q_BHTK.transpose(1, 2))
                put("keys", n, layers - 1, rows, call.k_BHTK.transpose(1, 2))

        with listening(loaded, on_layer, on_call) as counts:
            read(loaded, tokens_WT[rows])
        check_counts(loaded, counts, heads)
    none = np.zeros((1, 1, 1, 1, 1), np.float32)  # where no family asks for heads
    return Activations(made["the residual stream"], made.get("queries", none), made.get("keys", none))


def check_counts(loaded: Loaded, counts: dict[str, int], heads: bool) -> None:
    """Attention that some model computes in a way of its own is never seen, and nobody would say so."""
    if counts["layers"] != loaded.blocks + 1:
        raise UserError(
            f"{type(loaded.model).__name__}: {counts['layers']} layers were seen, of {loaded.blocks} blocks and their "
            "input; its entry in pretrained/adapters.py does not fit"
        )
    if heads and counts["calls"] != loaded.blocks:
        raise UserError(
            f"{type(loaded.model).__name__}: attention was seen {counts['calls']} times in {loaded.blocks} blocks; "
            "leave the families attention and projection out of measure.families"
        )


def _dtype(loaded: Loaded) -> str:
    return str(loaded.about["computed_in"])
