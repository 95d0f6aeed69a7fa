"""What a model computes: the residual stream of every layer, queries and keys, caught while it reads windows.

Nothing is taken from `hidden_states`, whose last entry has gone through the final norm in one model and not in another.
Arrays carry the letters of `models`, and W windows, Z inputs.
"""

import contextlib
import itertools
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
    resid_ZNWTD: np.ndarray  # N+1 layers: the input of the first block, then the output of every block
    q_ZNWTHK: np.ndarray  # N blocks, as they enter the dot product
    k_ZNWTHK: np.ndarray


# Who is told of calls, and whether to compute without a fused kernel: an attention function cannot be told otherwise.
_listener: list[tuple[Any, bool]] = []


def _capture(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, scaling: float | None = None, **more: Any
) -> tuple[Any, None]:
    if not _listener:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)
    told, plain = _listener[-1]
    width, shared = query.shape[-1], query.shape[1] // key.shape[1]
    by = width**-0.5 if scaling is None else scaling
    scores = tuple(name for name in ("position_bias", "s_aux", "softcap") if more.get(name) is not None)
    call = Call(query * (by * width**0.5), key.repeat_interleave(shared, dim=1), attention_mask, scores)
    told(call)
    if not plain:
        return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)
    scores_BHTT = call.q_BHTK @ call.k_BHTK.transpose(2, 3) * width**-0.5
    scores_BHTT = scores_BHTT if attention_mask is None else scores_BHTT + attention_mask
    mixed_BHTK = scores_BHTT.softmax(-1) @ value.repeat_interleave(shared, dim=1)
    return mixed_BHTK.transpose(1, 2).contiguous(), None


transformers.AttentionInterface.register(CAPTURE, _capture)
transformers.AttentionMaskInterface.register(CAPTURE, eager_mask)


@contextlib.contextmanager
def listening(loaded: Loaded, on_layer: Any, on_call: Any, plain: bool = False) -> Iterator[dict[str, int]]:
    """Tells on_layer(n, x_BTD) of the residual stream at every layer and on_call(n, Call) of every attention.

    Yields the counts of layers and calls; `plain` computes attention without a fused kernel. One module may be many
    blocks, as in ALBERT: the order tells them apart.
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
    _listener.append((called, plain))
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


def activations(
    loaded: Loaded, tokens_ZWT: np.ndarray, batch_size: int, heads: bool, plain: bool = False, reported: bool = False
) -> Activations:
    """Of Z inputs of W windows, in float32, block by block into the arrays that are measured; or what is `reported`.

    UserError where one is not finite, or was not caught.
    """
    (inputs, windows), layers = tokens_ZWT.shape[:2], loaded.blocks + 1
    made: dict[str, np.ndarray] = {}

    def put(name: str, n: int, count: int, place: tuple[int, slice], values: Any) -> None:
        values = values.detach().to("cpu", torch.float32).numpy()
        if not np.isfinite(values).all():
            raise UserError(f"{name} of layer {n} holds numbers that are not finite, computed in {_dtype(loaded)}")
        if name not in made:
            made[name] = np.empty((inputs, count, windows, *values.shape[1:]), np.float32)
        if n < count:
            made[name][place[0], n, place[1]] = values

    for z, start in itertools.product(range(inputs), range(0, windows, batch_size)):
        place = z, slice(start, start + batch_size)

        def on_layer(n: int, x_BTD: Any, place: tuple[int, slice] = place) -> None:
            put("the residual stream", n, layers, place, x_BTD)

        def on_call(n: int, call: Call, place: tuple[int, slice] = place) -> None:
            if heads:
                put("queries", n, layers - 1, place, call.q_BHTK.transpose(1, 2))
                put("keys", n, layers - 1, place, call.k_BHTK.transpose(1, 2))

        with listening(loaded, on_layer, on_call, plain) as counts:
            found = read(loaded, tokens_ZWT[place], **({"output_hidden_states": True} if reported else {}))
        check_counts(loaded, counts, heads)
        for n, x_BTD in enumerate(found.hidden_states if reported else ()):
            on_layer(n, x_BTD)
    none = np.zeros((inputs, 1, 1, 1, 1, 1), np.float32)  # where no family asks for heads
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
