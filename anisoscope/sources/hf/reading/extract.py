"""What a model computes: the residual stream of every layer, queries and keys, caught while it
reads windows.

Nothing is taken from `hidden_states`, whose last entry has gone through the final norm in one model
and not in another. Arrays carry the letters of `models`, and W windows, Z inputs.
"""

import contextlib
import itertools
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask

from anisoscope.sources.hf.adapters import UNKNOWN
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading.own_attention import Watching
from anisoscope.utils.errors import UserError

LEAVE = "leave the families attention and projection out of measure.families"
ENTRY = "an entry in sources/hf/adapters.py must say which layers are meant"
# the attention that hands on what it is called with, and computes as sdpa does
CAPTURE = "anisoscope"


class Call(NamedTuple):
    """What attention was called with in one block."""

    # times scaling * sqrt(K), so that scores are <q, k> / sqrt(K) whatever the model divides by
    q_BHTK: Any
    k_BHTK: Any  # repeated where several heads share them
    # to the scores: 0 or a bias where a key is seen, -inf where it is not; None: nothing
    added: Any
    v_BHTK: Any = None  # as they are mixed; fewer heads where several share them


class Activations(NamedTuple):
    # N+1 layers: the input of the first block, then the output of every block
    resid_ZNWTD: np.ndarray
    q_ZNWTHK: np.ndarray  # N blocks, as they enter the dot product
    k_ZNWTHK: np.ndarray


_active: list["Listener"] = []  # innermost last: an attention function is called without one


def _capture(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any = None,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Any, None]:
    """Compute attention as sdpa does, and tell the active listener what it is called with."""
    if _active:
        width, shared = query.shape[-1], query.shape[1] // key.shape[1]
        by = width**-0.5 if scaling is None else scaling
        parts = [x for x in (attention_mask, more.get("position_bias")) if x is not None]
        added = _added(sum(parts), query.dtype) if parts else None
        q_BHTK, k_BHTK = query * (by * width**0.5), key.repeat_interleave(shared, dim=1)
        call = Call(q_BHTK, k_BHTK, added, value)
        _active[-1].on_attention(call)
        if _active[-1].plain:
            mixed_BHTK = scores_of(call).softmax(-1) @ value.repeat_interleave(shared, dim=1)
            return mixed_BHTK.transpose(1, 2).contiguous(), None
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, scaling=scaling, **more
    )


def _added(added: Any, dtype: Any) -> Any:
    """A mask has the least number of its type where a key is not seen, and more than that where a
    score is added.
    """
    return added.masked_fill(added < torch.finfo(dtype).min / 2, -torch.inf)


def scores_of(call: Call) -> Any:
    scores_BHTT = call.q_BHTK @ call.k_BHTK.transpose(2, 3) * call.q_BHTK.shape[-1] ** -0.5
    return scores_BHTT if call.added is None else scores_BHTT + call.added


transformers.AttentionInterface.register(CAPTURE, _capture)
transformers.AttentionMaskInterface.register(CAPTURE, eager_mask)


def hidden_states(output: Any) -> Any:
    """Return the hidden states of what a module gives."""
    return output[0] if isinstance(output, tuple) else output


class Listener:
    """Call on_layer(n, x_BTD) with the residual stream of every layer, on_call(n, Call) with every
    attention.

    A context manager that gives the counts of layers and calls. `plain` computes attention without
    a fused kernel. One module may be many blocks, as in ALBERT: the order tells them apart.
    Attention outside of the blocks is not told.
    """

    def __init__(
        self,
        loaded: PretrainedModel,
        on_layer: Any = None,
        on_call: Any = None,
        plain: bool = False,
    ):
        self.loaded, self.on_layer, self.on_call, self.plain = loaded, on_layer, on_call, plain
        self.counts, self.depth = {"layers": 0, "calls": 0}, 0  # depth: of blocks that run now
        self.undo = contextlib.ExitStack()

    def __enter__(self) -> dict[str, int]:
        loaded, model = self.loaded, self.loaded.model
        if loaded.adapter == UNKNOWN:
            hooks = [
                loaded.base.register_forward_pre_hook(_ask_hidden_states, with_kwargs=True),
                loaded.base.register_forward_hook(self._after_unknown),
            ]
        else:
            self.undo.callback(model.set_attn_implementation, model.config._attn_implementation)
            own, mixed = loaded.adapter.own, loaded.adapter.mixed
            model.set_attn_implementation(CAPTURE if own is None and mixed is None else "eager")
            hooks = []
            for block in loaded.block_modules:
                hooks.append(block.register_forward_pre_hook(self._before, with_kwargs=True))
                hooks.append(block.register_forward_hook(self._after))
        for hook in hooks:
            self.undo.callback(hook.remove)
        if loaded.adapter.own is not None:
            self.undo.enter_context(Watching(self._on_own))
        _active.append(self)
        self.undo.callback(_active.remove, self)
        return self.counts

    def __exit__(self, *error: object) -> None:
        self.undo.close()

    def _layer(self, x_BTD: Any) -> None:
        if self.on_layer:
            self.on_layer(self.counts["layers"], x_BTD)
        self.counts["layers"] += 1

    def _before(self, block: Any, args: tuple, given: dict) -> None:
        self.depth += 1
        if self.counts["layers"] == 0:
            self._layer(args[0] if args else given["hidden_states"])

    def _after(self, block: Any, args: tuple, output: Any) -> None:
        self.depth -= 1
        self._layer(hidden_states(output))

    def _after_unknown(self, base: Any, args: tuple, output: Any) -> None:
        """Of a class without an entry: its hidden states as they come."""
        for x_BTD in getattr(output, "hidden_states", None) or ():
            self._layer(x_BTD)

    def on_attention(self, call: Call) -> None:
        if self.depth:
            if self.on_call:
                self.on_call(self.counts["calls"], call)
            self.counts["calls"] += 1

    def _on_own(self, q_BHTK: Any, k_BHTK: Any, scores_BHTT: Any, v_BHTK: Any) -> None:
        """Of a class that computes attention by itself: what its scores are beside <q, k>."""
        q_BHTK = q_BHTK * q_BHTK.shape[-1] ** (0.5 - self.loaded.adapter.own)
        product_BHTT = scores_of(Call(q_BHTK.float(), k_BHTK.float(), None))
        added = _added(scores_BHTT.float(), self.loaded.model.dtype) - product_BHTT
        self.on_attention(Call(q_BHTK, k_BHTK, added, v_BHTK))


def _ask_hidden_states(base: Any, args: tuple, given: dict) -> tuple[tuple, dict]:
    return args, given | {"output_hidden_states": True}


def forward(
    loaded: PretrainedModel,
    tokens_BT: np.ndarray,
    of: Any = None,
    differentiated: bool = False,
    **more: Any,
) -> Any:
    """One pass of the model, or of its base; without padding, so that all positions count from 0.

    Of models that read no text the windows are what their processor makes of pictures or sound.
    What gradients need is kept where a pass is to be `differentiated`.
    """
    module, name = loaded.base if of is None else of, loaded.base.main_input_name
    if loaded.reads_text:
        ids_BT = torch.as_tensor(
            np.ascontiguousarray(tokens_BT), dtype=torch.long, device=loaded.base.device
        )
        given = {"input_ids": ids_BT, "attention_mask": torch.ones_like(ids_BT)}
    else:
        inputs = torch.as_tensor(np.ascontiguousarray(tokens_BT)).to(
            loaded.base.device, loaded.base.dtype
        )
        module, given = loaded.part, {name: inputs}
    try:
        with torch.set_grad_enabled(differentiated):
            return module(**given | more)
    except (AttributeError, TypeError, ValueError) as error:
        if loaded.adapter != UNKNOWN:
            raise
        first = str(error).splitlines()[0].rstrip(".")
        raise UserError(
            f"{type(loaded.model).__name__} cannot read {name} alone ({first}): {ENTRY}"
        ) from error


class LayerArrays:
    """Arrays (Z, N, W, …) in float32, filled layer by layer."""

    def __init__(self, loaded: PretrainedModel, inputs: int, windows: int):
        self.loaded, self.inputs, self.windows = loaded, inputs, windows
        self.made: dict[str, np.ndarray] = {}

    def put(self, name: str, n: int, count: int, place: tuple[int, slice], values: Any) -> None:
        """UserError where a number is not finite, or layers differ in shape."""
        values = values.detach().to("cpu", torch.float32).numpy()
        if not np.isfinite(values).all():
            dtype = self.loaded.about["computed_in"]
            raise UserError(
                f"{name} of layer {n} holds numbers that are not finite, computed in {dtype}"
            )
        if name not in self.made:
            self.made[name] = np.empty(
                (self.inputs, count, self.windows, *values.shape[1:]), np.float32
            )
        if values.shape[1:] != self.made[name].shape[3:]:
            shapes = f"{values.shape[1:]} where others have {self.made[name].shape[3:]}"
            raise UserError(
                f"{type(self.loaded.model).__name__}: {name} of layer {n} has the shape {shapes}: {ENTRY}"
            )
        if n < count:
            self.made[name][place[0], n, place[1]] = values


def read_activations(
    loaded: PretrainedModel,
    tokens_ZWT: np.ndarray,
    batch_size: int,
    heads: bool,
    plain: bool = False,
    reported: bool = False,
) -> Activations:
    """Of Z inputs of W windows, in float32, block by block into the arrays that are measured; or
    what is `reported`.

    UserError where one is not finite, or was not caught.
    """
    (inputs, windows), layers = tokens_ZWT.shape[:2], loaded.blocks + 1
    caught = LayerArrays(loaded, inputs, windows)

    for z, start in itertools.product(range(inputs), range(0, windows, batch_size)):
        place = z, slice(start, start + batch_size)

        def on_layer(n: int, x_BTD: Any, place: tuple[int, slice] = place) -> None:
            caught.put("the residual stream", n, layers, place, x_BTD)

        def on_call(n: int, call: Call, place: tuple[int, slice] = place) -> None:
            if heads:
                caught.put("queries", n, layers - 1, place, call.q_BHTK.transpose(1, 2))
                caught.put("keys", n, layers - 1, place, call.k_BHTK.transpose(1, 2))

        with Listener(loaded, on_layer, on_call, plain) as counts:
            output = forward(
                loaded, tokens_ZWT[place], **({"output_hidden_states": True} if reported else {})
            )
        check_counts(loaded, counts, heads)
        for n, x_BTD in enumerate(output.hidden_states if reported else ()):
            on_layer(n, x_BTD)
    # none: where no family asks for heads
    none, made = np.zeros((inputs, 1, 1, 1, 1, 1), np.float32), caught.made
    return Activations(
        made["the residual stream"], made.get("queries", none), made.get("keys", none)
    )


def residual_stream(
    loaded: PretrainedModel, tokens_BT: np.ndarray, of: Any = None, **more: Any
) -> tuple[list[Any], Any]:
    """The residual stream of one batch, layer by layer, and what `forward` gives."""
    layers: list[Any] = []
    with Listener(loaded, lambda n, x_BTD: layers.append(x_BTD)) as counts:
        output = forward(loaded, tokens_BT, of, **more)
    check_counts(loaded, counts, heads=False)
    return layers, output


def check_counts(loaded: PretrainedModel, counts: dict[str, int], heads: bool) -> None:
    """Attention that some model computes in a way of its own is never seen, and nobody would say
    so.
    """
    if counts["layers"] != loaded.blocks + 1:
        entry = "its entry in sources/hf/adapters.py does not fit"
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
