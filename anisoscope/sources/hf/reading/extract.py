"""Read windows with a model, and capture the residual stream of every layer, queries and keys.

`hidden_states` is not used, since its last entry has passed the final norm in some models only.
Arrays carry the letters of `models`, and W windows, Z inputs.
"""

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
import transformers
from torch.overrides import TorchFunctionMode
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask

from anisoscope.sources.hf.adapters import ENTRY, UNKNOWN
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.utils.errors import UserError

LEAVE = "leave the families attention and projection out of measure.families"
CAPTURE = "anisoscope"  # name under which the library calls the attention of a `Listener`
PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm")

transformers.AttentionInterface.register(CAPTURE, sdpa_attention_forward)
transformers.AttentionMaskInterface.register(CAPTURE, eager_mask)


class Call(NamedTuple):
    """Inputs of the attention of one block."""

    # times scaling * sqrt(K), so that scores are <q, k> / sqrt(K) whatever the model divides by
    q_BHTK: Any
    k_BHTK: Any  # repeated where several heads share them
    # added to the scores: 0 or a bias at a visible key, -inf at a hidden key; None: nothing
    added: Any
    v_BHTK: Any = None  # as attention averages them; fewer heads where several share them


class Activations(NamedTuple):
    """The residual stream of every layer, and queries and keys of every block."""

    resid_ZNWTD: np.ndarray  # N+1 layers: the input of the first block, then every block's output
    q_ZNWTHK: np.ndarray  # N blocks, as they enter the dot product
    k_ZNWTHK: np.ndarray


def attention_scores(call: Call) -> Any:
    scores_BHTT = call.q_BHTK @ call.k_BHTK.transpose(2, 3) * call.q_BHTK.shape[-1] ** -0.5
    return scores_BHTT if call.added is None else scores_BHTT + call.added


def _mask_to_infinity(added: Any, dtype: Any) -> Any:
    """Replace the least number of the type, which hides a key, by minus infinity."""
    return added.masked_fill(added < torch.finfo(dtype).min / 2, -torch.inf)


def first_output(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


class Listener:
    """A context that captures every layer and every attention call of the blocks in one pass.

    One module may serve as many blocks, as in ALBERT: the order of calls distinguishes them. A pass
    in which a layer or an attention call is missing is refused at the end: otherwise attention that
    a model computes in its own way would be lost silently.

    Args:
        loaded: the model.
        on_layer: called with (layer, x_BTD): the first block's input, then every block's output.
        on_call: called with (block, Call) for every attention call of a block; None: not captured.
        plain: compute attention without a fused kernel.

    Raises:
        UserError: the number of layers or of attention calls differs from the number of blocks.
    """

    def __init__(
        self,
        loaded: PretrainedModel,
        on_layer: Callable[[int, Any], None] | None = None,
        on_call: Callable[[int, Call], None] | None = None,
        plain: bool = False,
    ):
        self.loaded, self.on_layer, self.on_call, self.plain = loaded, on_layer, on_call, plain
        self.layers = self.calls = 0
        self.depth = 0  # number of blocks that are running
        self.undo = contextlib.ExitStack()

    def __enter__(self) -> None:
        loaded, model = self.loaded, self.loaded.model
        if loaded.adapter == UNKNOWN:
            base = loaded.base
            hooks = [base.register_forward_pre_hook(_ask_hidden_states, with_kwargs=True)]
            hooks.append(base.register_forward_hook(self._after_unknown))
        else:
            own, mixed = loaded.adapter.score_exponent, loaded.adapter.mixed
            self.undo.callback(model.set_attn_implementation, model.config._attn_implementation)
            register = transformers.AttentionInterface.register
            register(CAPTURE, self._attend)
            self.undo.callback(register, CAPTURE, sdpa_attention_forward)
            model.set_attn_implementation(CAPTURE if own is None and mixed is None else "eager")
            hooks = []
            for block in loaded.block_modules:
                hooks.append(block.register_forward_pre_hook(self._before, with_kwargs=True))
                hooks.append(block.register_forward_hook(self._after))
        for hook in hooks:
            self.undo.callback(hook.remove)
        if loaded.adapter.score_exponent is not None:
            self.undo.enter_context(OwnAttention(self._on_own_attention))

    def __exit__(self, kind: type | None, *_: object) -> None:
        self.undo.close()
        if kind is None:
            self._check_counts()

    def _check_counts(self) -> None:
        name, blocks = type(self.loaded.model).__name__, self.loaded.blocks
        if self.layers != blocks + 1:
            raise UserError(
                f"{name}: {self.layers} layers ran, {blocks + 1} were expected (the input and every "
                f"block); {ENTRY}"
            )
        if self.on_call and self.calls != blocks:
            raise UserError(f"{name}: attention ran {self.calls} times in {blocks} blocks; {LEAVE}")

    def _layer(self, x_BTD: Any) -> None:
        if self.on_layer:
            self.on_layer(self.layers, x_BTD)
        self.layers += 1

    def _before(self, block: Any, args: tuple, kwargs: dict) -> None:
        self.depth += 1
        if self.layers == 0:
            self._layer(args[0] if args else kwargs["hidden_states"])

    def _after(self, block: Any, args: tuple, output: Any) -> None:
        self.depth -= 1
        self._layer(first_output(output))

    def _after_unknown(self, base: Any, args: tuple, output: Any) -> None:
        """Take the reported hidden states of a class without an entry."""
        for x_BTD in getattr(output, "hidden_states", None) or ():
            self._layer(x_BTD)

    def _on_call(self, call: Call) -> None:
        if self.depth:  # ignore attention outside the blocks
            if self.on_call:
                self.on_call(self.calls, call)
            self.calls += 1

    def _attend(
        self,
        module: Any,
        query: Any,
        key: Any,
        value: Any,
        attention_mask: Any = None,
        scaling: float | None = None,
        **more: Any,
    ) -> tuple[Any, None]:
        """Compute attention as sdpa does, and capture the call."""
        width, shared = query.shape[-1], query.shape[1] // key.shape[1]
        factor = width**-0.5 if scaling is None else scaling
        parts = [x for x in (attention_mask, more.get("position_bias")) if x is not None]
        added = _mask_to_infinity(sum(parts), query.dtype) if parts else None
        q_BHTK, k_BHTK = query * (factor * width**0.5), key.repeat_interleave(shared, dim=1)
        call = Call(q_BHTK, k_BHTK, added, value)
        self._on_call(call)
        if self.plain:
            weights_BHTT = attention_scores(call).softmax(-1)
            mixed_BHTK = weights_BHTT @ value.repeat_interleave(shared, dim=1)
            return mixed_BHTK.transpose(1, 2).contiguous(), None
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )

    def _on_own_attention(self, q_BHTK: Any, k_BHTK: Any, scores_BHTT: Any, v_BHTK: Any) -> None:
        """Find what the scores of a class with its own attention contain besides <q, k>."""
        q_BHTK = q_BHTK * q_BHTK.shape[-1] ** (0.5 - self.loaded.adapter.score_exponent)
        product_BHTT = attention_scores(Call(q_BHTK.float(), k_BHTK.float(), None))
        added = _mask_to_infinity(scores_BHTT.float(), self.loaded.model.dtype) - product_BHTT
        self._on_call(Call(q_BHTK, k_BHTK, added, v_BHTK))


def _ask_hidden_states(base: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    return args, kwargs | {"output_hidden_states": True}


class OwnAttention(TorchFunctionMode):
    """Capture attention that a model computes without the attention interface of the library.

    For every softmax over (B, H, T, T), `on_attention` is called with the queries and keys of the
    last product before it, its input, and the values of the first product after it.
    """

    def __init__(self, on_attention: Callable[[Any, Any, Any, Any], None]):
        super().__init__()
        self.on_attention = on_attention
        self.factors: list[Any] = []
        self.softmax: tuple[
            Any, ...
        ] = ()  # queries, keys and input of the last softmax, until its values are known

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        tensors = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, torch.Tensor)]
        name = getattr(function, "__name__", "")
        if name in PRODUCTS:
            self.factors = tensors[-2:]
            if self.softmax:
                (windows, _, tokens, _), values = self.softmax[-1].shape, tensors[-1]
                v_BHTK = values.reshape(windows, -1, tokens, values.shape[-1])
                self.on_attention(*self.softmax, v_BHTK)
                self.softmax = ()
        if name == "softmax" and self.factors and tensors[0].ndim == 4:
            self.softmax = (*_split_heads(*self.factors, tensors[0]), tensors[0])
        return function(*args, **(kwargs or {}))


def _split_heads(queries: Any, keys: Any, scores_BHTT: Any) -> tuple[Any, Any]:
    """Split windows and heads that share an axis, and repeat keys that heads share."""
    windows, heads, tokens, _ = scores_BHTT.shape
    q_BHTK = queries.reshape(windows, heads, tokens, -1)
    k_BHTK = keys.transpose(-1, -2).reshape(windows, -1, tokens, q_BHTK.shape[-1])
    return q_BHTK, k_BHTK.repeat_interleave(heads // k_BHTK.shape[1], dim=1)


def forward(
    loaded: PretrainedModel,
    tokens_BT: np.ndarray,
    module: Any = None,
    differentiated: bool = False,
    **more: Any,
) -> Any:
    """Run one pass of the model's base, or of another `module`, without padding.

    For models without text, the windows are what their processor makes of pictures or sound. The
    graph for gradients is kept where the pass is `differentiated`.
    """
    name, module = loaded.base.main_input_name, loaded.base if module is None else module
    inputs = torch.as_tensor(np.ascontiguousarray(tokens_BT), device=loaded.base.device)
    if loaded.reads_text:
        inputs = inputs.long()
        more = {"attention_mask": torch.ones_like(inputs)} | more
    else:
        inputs, module = inputs.to(loaded.base.dtype), loaded.part
    try:
        with torch.set_grad_enabled(differentiated):
            return module(**{name: inputs} | more)
    except (AttributeError, TypeError, ValueError) as error:
        if loaded.adapter != UNKNOWN:
            raise
        reason = str(error).splitlines()[0].rstrip(".")
        raise UserError(
            f"{type(loaded.model).__name__} cannot read {name} alone ({reason}); {ENTRY}"
        ) from error


Batch = tuple[int, slice]  # (input, slice of its windows)


def batches(tokens_ZWT: np.ndarray, batch_size: int) -> Iterator[Batch]:
    inputs, windows = tokens_ZWT.shape[:2]
    for z, start in itertools.product(range(inputs), range(0, windows, batch_size)):
        yield z, slice(start, start + batch_size)


class LayerArrays:
    """An array (Z, layer, W, …) in float32, filled layer by layer and batch by batch."""

    def __init__(self, loaded: PretrainedModel, name: str, layers: int, tokens_ZWT: np.ndarray):
        self.loaded, self.name, self.layers = loaded, name, layers
        self.inputs, self.windows = tokens_ZWT.shape[:2]
        self.values: Any = None

    def put(self, batch: Batch, n: int, x: Any) -> None:
        """Store layer n of a batch.

        Raises:
            UserError: a number is not finite, or layers differ in shape.
        """
        x = x.detach().to("cpu", torch.float32).numpy()
        if not np.isfinite(x).all():
            raise UserError(
                f"{self.name} of layer {n} holds numbers that are not finite, computed in "
                f"{self.loaded.about['computed_in']}; try pretrained.dtype=float32"
            )
        if self.values is None:
            shape = (self.inputs, self.layers, self.windows, *x.shape[1:])
            self.values = np.empty(shape, np.float32)
        if x.shape[1:] != self.values.shape[3:]:
            raise UserError(
                f"{type(self.loaded.model).__name__}: {self.name} of layer {n} has shape "
                f"{x.shape[1:]}, other layers have {self.values.shape[3:]}; {ENTRY}"
            )
        if n < self.layers:
            self.values[batch[0], n, batch[1]] = x


def read_activations(
    loaded: PretrainedModel,
    tokens_ZWT: np.ndarray,
    batch_size: int,
    heads: bool,
    plain: bool = False,
    reported: bool = False,
) -> Activations:
    """Read Z inputs of W windows, into the arrays to measure.

    Args:
        loaded: the model.
        tokens_ZWT: windows.
        batch_size: windows in one pass.
        heads: whether queries and keys are kept.
        plain: compute attention without a fused kernel.
        reported: keep the hidden states that the model reports instead of block outputs.

    Returns:
        Activations in float32; without `heads`, queries and keys are one zero for each input.

    Raises:
        UserError: a number is not finite, or a layer or an attention call was not captured.
    """
    blocks = loaded.blocks
    stream = LayerArrays(loaded, "the residual stream", blocks + 1, tokens_ZWT)
    queries = LayerArrays(loaded, "queries", blocks, tokens_ZWT)
    keys = LayerArrays(loaded, "keys", blocks, tokens_ZWT)
    more = {"output_hidden_states": True} if reported else {}
    for batch in batches(tokens_ZWT, batch_size):
        on_layer = functools.partial(stream.put, batch)
        on_call = functools.partial(_put_heads, queries, keys, batch) if heads else None
        with Listener(loaded, on_layer, on_call, plain):
            output = forward(loaded, tokens_ZWT[batch], **more)
        for n, x_BTD in enumerate(output.hidden_states if reported else ()):
            on_layer(n, x_BTD)
    if not heads:
        none = np.zeros((len(tokens_ZWT), 1, 1, 1, 1, 1), np.float32)
        return Activations(stream.values, none, none)
    return Activations(stream.values, queries.values, keys.values)


def _put_heads(queries: LayerArrays, keys: LayerArrays, batch: Batch, n: int, call: Call) -> None:
    queries.put(batch, n, call.q_BHTK.transpose(1, 2))
    keys.put(batch, n, call.k_BHTK.transpose(1, 2))


def residual_stream(
    loaded: PretrainedModel, tokens_BT: np.ndarray, module: Any = None, **more: Any
) -> tuple[list[Any], Any]:
    """Return the residual stream of one batch, layer by layer, and the output of `forward`."""
    layers: list[Any] = []
    with Listener(loaded, lambda n, x_BTD: layers.append(x_BTD)):
        output = forward(loaded, tokens_BT, module, **more)
    return layers, output
