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

from anisoscope.measurement.sources.hub.adapters import UNKNOWN
from anisoscope.measurement.sources.hub.load import Loaded
from anisoscope.measurement.sources.hub.reading.own_attention import Watching
from anisoscope.utils.errors import UserError

LEAVE = "leave the families attention and projection out of measure.families"
ENTRY = "an entry in measurement/sources/hub/adapters.py must say which layers are meant"
CAPTURE = "anisoscope"  # the attention that hands on what it is called with, and computes as sdpa does


class Call(NamedTuple):
    """What attention was called with in one block."""

    q_BHTK: Any  # times scaling * sqrt(K), so that scores are <q, k> / sqrt(K) whatever the model divides by
    k_BHTK: Any  # repeated where several heads share them
    added: Any  # to the scores: 0 or a bias where a key is seen, -inf where it is not; None: nothing
    v_BHTK: Any = None  # as they are mixed; fewer heads where several share them


class Activations(NamedTuple):
    resid_ZNWTD: np.ndarray  # N+1 layers: the input of the first block, then the output of every block
    q_ZNWTHK: np.ndarray  # N blocks, as they enter the dot product
    k_ZNWTHK: np.ndarray


# Who is told of calls, and whether to compute without a fused kernel: an attention function cannot be told otherwise.
_listener: list[tuple[Any, bool]] = []


def _capture(
    module: Any, query: Any, key: Any, value: Any, attention_mask: Any = None, scaling: float | None = None, **more: Any
) -> tuple[Any, None]:
    if _listener:
        listener, plain = _listener[-1]
        width, shared = query.shape[-1], query.shape[1] // key.shape[1]
        by = width**-0.5 if scaling is None else scaling
        parts = [x for x in (attention_mask, more.get("position_bias")) if x is not None]
        added = _added(sum(parts), query.dtype) if parts else None
        call = Call(query * (by * width**0.5), key.repeat_interleave(shared, dim=1), added, value)
        listener(call)
        if plain:
            mixed_BHTK = scores_of(call).softmax(-1) @ value.repeat_interleave(shared, dim=1)
            return mixed_BHTK.transpose(1, 2).contiguous(), None
    return sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **more)


def _added(added: Any, dtype: Any) -> Any:
    """A mask has the least number of its type where a key is not seen, and more than that where a score is added."""
    return added.masked_fill(added < torch.finfo(dtype).min / 2, -torch.inf)


def scores_of(call: Call) -> Any:
    scores_BHTT = call.q_BHTK @ call.k_BHTK.transpose(2, 3) * call.q_BHTK.shape[-1] ** -0.5
    return scores_BHTT if call.added is None else scores_BHTT + call.added


transformers.AttentionInterface.register(CAPTURE, _capture)
transformers.AttentionMaskInterface.register(CAPTURE, eager_mask)


@contextlib.contextmanager
def listening(
    loaded: Loaded, on_layer: Any = None, on_call: Any = None, plain: bool = False
) -> Iterator[dict[str, int]]:
    """Tells on_layer(n, x_BTD) of the residual stream at every layer and on_call(n, Call) of every attention, if asked.

    Yields the counts of layers and calls; `plain` computes attention without a fused kernel. One module may be many
    blocks, as in ALBERT: the order tells them apart. What attends outside of the blocks is not told.
    """
    counts, inside, adapter = {"layers": 0, "calls": 0}, [], loaded.adapter

    def layer(x_BTD: Any) -> None:
        if on_layer:
            on_layer(counts["layers"], x_BTD)
        counts["layers"] += 1

    def before(_: Any, args: tuple, given: dict) -> None:
        inside.append(True)
        if counts["layers"] == 0:
            layer(args[0] if args else given["hidden_states"])

    def after(_: Any, args: tuple, output: Any) -> None:
        inside.pop()
        layer(output[0] if isinstance(output, tuple) else output)

    def called(call: Call) -> None:
        if inside:
            if on_call:
                on_call(counts["calls"], call)
            counts["calls"] += 1

    def own(q_BHTK: Any, k_BHTK: Any, scores_BHTT: Any, v_BHTK: Any) -> None:
        if not inside:
            return
        q_BHTK = q_BHTK * q_BHTK.shape[-1] ** (0.5 - adapter.own)
        scores_BHTT, alone_BHTT = scores_BHTT.float(), scores_of(Call(q_BHTK.float(), k_BHTK.float(), None))
        called(Call(q_BHTK, k_BHTK, _added(scores_BHTT, loaded.model.dtype) - alone_BHTT, v_BHTK))

    before_that = loaded.model.config._attn_implementation
    if adapter == UNKNOWN:
        hooks = _of_unknown(loaded.base, layer)
    else:
        hooks = [block.register_forward_pre_hook(before, with_kwargs=True) for block in loaded.block_modules]
        hooks += [block.register_forward_hook(after) for block in loaded.block_modules]
        capturable = adapter.own is None and adapter.mixed is None
        loaded.model.set_attn_implementation(CAPTURE if capturable else "eager")
    _listener.append((called, plain))
    try:
        with contextlib.nullcontext() if adapter.own is None else Watching(own):
            yield counts
    finally:
        _listener.pop()
        for hook in hooks:
            hook.remove()
        if adapter != UNKNOWN:
            loaded.model.set_attn_implementation(before_that)


def _of_unknown(base: Any, layer: Any) -> list[Any]:
    """Of a class without an entry: its hidden states as they come."""

    def asked(_: Any, args: tuple, given: dict) -> tuple[tuple, dict]:
        return args, given | {"output_hidden_states": True}

    def after(_: Any, args: tuple, output: Any) -> None:
        for x_BTD in getattr(output, "hidden_states", None) or ():
            layer(x_BTD)

    return [base.register_forward_pre_hook(asked, with_kwargs=True), base.register_forward_hook(after)]


def forward(loaded: Loaded, tokens_BT: np.ndarray, of: Any = None, differentiated: bool = False, **more: Any) -> Any:
    """One pass of the model, or of its base; without padding, so that all positions count from 0.

    Of models that read no text the windows are what their processor makes of pictures or sound. What gradients need is
    kept where a pass is to be `differentiated`.
    """
    module, name = loaded.base if of is None else of, loaded.base.main_input_name
    if loaded.reads_text:
        ids_BT = torch.as_tensor(np.ascontiguousarray(tokens_BT), dtype=torch.long, device=loaded.base.device)
        given = {"input_ids": ids_BT, "attention_mask": torch.ones_like(ids_BT)}
    else:
        inputs = torch.as_tensor(np.ascontiguousarray(tokens_BT)).to(loaded.base.device, loaded.base.dtype)
        module, given = loaded.part, {name: inputs}
    try:
        with torch.set_grad_enabled(differentiated):
            return module(**given | more)
    except (AttributeError, TypeError, ValueError) as error:
        if loaded.adapter != UNKNOWN:
            raise
        first = str(error).splitlines()[0].rstrip(".")
        raise UserError(f"{type(loaded.model).__name__} cannot read {name} alone ({first}): {ENTRY}") from error


class Caught:
    """Arrays (Z, N, W, …) in float32, filled layer by layer."""

    def __init__(self, loaded: Loaded, inputs: int, windows: int):
        self.loaded, self.inputs, self.windows = loaded, inputs, windows
        self.made: dict[str, np.ndarray] = {}

    def put(self, name: str, n: int, count: int, place: tuple[int, slice], values: Any) -> None:
        """UserError where a number is not finite, or layers differ in shape."""
        values = values.detach().to("cpu", torch.float32).numpy()
        if not np.isfinite(values).all():
            dtype = self.loaded.about["computed_in"]
            raise UserError(f"{name} of layer {n} holds numbers that are not finite, computed in {dtype}")
        if name not in self.made:
            self.made[name] = np.empty((self.inputs, count, self.windows, *values.shape[1:]), np.float32)
        if values.shape[1:] != self.made[name].shape[3:]:
            shapes = f"{values.shape[1:]} where others have {self.made[name].shape[3:]}"
            raise UserError(f"{type(self.loaded.model).__name__}: {name} of layer {n} has the shape {shapes}: {ENTRY}")
        if n < count:
            self.made[name][place[0], n, place[1]] = values


def activations(
    loaded: Loaded, tokens_ZWT: np.ndarray, batch_size: int, heads: bool, plain: bool = False, reported: bool = False
) -> Activations:
    """Of Z inputs of W windows, in float32, block by block into the arrays that are measured; or what is `reported`.

    UserError where one is not finite, or was not caught.
    """
    (inputs, windows), layers = tokens_ZWT.shape[:2], loaded.blocks + 1
    caught = Caught(loaded, inputs, windows)

    for z, start in itertools.product(range(inputs), range(0, windows, batch_size)):
        place = z, slice(start, start + batch_size)

        def on_layer(n: int, x_BTD: Any, place: tuple[int, slice] = place) -> None:
            caught.put("the residual stream", n, layers, place, x_BTD)

        def on_call(n: int, call: Call, place: tuple[int, slice] = place) -> None:
            if heads:
                caught.put("queries", n, layers - 1, place, call.q_BHTK.transpose(1, 2))
                caught.put("keys", n, layers - 1, place, call.k_BHTK.transpose(1, 2))

        with listening(loaded, on_layer, on_call, plain) as counts:
            output = forward(loaded, tokens_ZWT[place], **({"output_hidden_states": True} if reported else {}))
        check_counts(loaded, counts, heads)
        for n, x_BTD in enumerate(output.hidden_states if reported else ()):
            on_layer(n, x_BTD)
    none, made = np.zeros((inputs, 1, 1, 1, 1, 1), np.float32), caught.made  # none: where no family asks for heads
    return Activations(made["the residual stream"], made.get("queries", none), made.get("keys", none))


def stream_of(loaded: Loaded, tokens_BT: np.ndarray, of: Any = None, **more: Any) -> tuple[list[Any], Any]:
    """The residual stream of one batch, layer by layer, and what `forward` gives."""
    layers: list[Any] = []
    with listening(loaded, lambda n, x_BTD: layers.append(x_BTD)) as counts:
        output = forward(loaded, tokens_BT, of, **more)
    check_counts(loaded, counts, heads=False)
    return layers, output


def check_counts(loaded: Loaded, counts: dict[str, int], heads: bool) -> None:
    """Attention that some model computes in a way of its own is never seen, and nobody would say so."""
    if counts["layers"] != loaded.blocks + 1:
        entry = "its entry in measurement/sources/hub/adapters.py does not fit"
        if loaded.adapter == UNKNOWN:
            entry = f"hidden_states does not hold them: {ENTRY}"
        raise UserError(
            f"{type(loaded.model).__name__}: {counts['layers']} layers were seen, of {loaded.blocks} blocks and their "
            f"input; {entry}"
        )
    if heads and counts["calls"] != loaded.blocks:
        raise UserError(
            f"{type(loaded.model).__name__}: attention was seen {counts['calls']} times in {loaded.blocks} blocks; "
            f"{LEAVE}"
        )
