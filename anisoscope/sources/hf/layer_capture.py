"""Capture every layer and every attention call of a model in one pass.

Shape letters are those of docs/reference/letters.md.
"""

import contextlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import transformers
from torch.overrides import TorchFunctionMode
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import eager_mask

from anisoscope.sources.hf.adapters import ENTRY, UNKNOWN
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.utils.errors import UserError

LEAVE_ATTENTION = "leave the family attention out"
CAPTURE = "anisoscope"  # name under which the library calls the attention of a `Listener`
PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm")

transformers.AttentionInterface.register(CAPTURE, sdpa_attention_forward)
transformers.AttentionMaskInterface.register(CAPTURE, eager_mask)


class AttentionCall(NamedTuple):
    """Inputs of the attention of one block."""

    # times scaling * sqrt(K), so that scores are <q, k> / sqrt(K) whatever the model divides by
    q_BHTK: Any
    k_BHTK: Any  # repeated where several heads share them
    added: Any = None  # to the scores: 0 or a bias at a visible key, -inf at a hidden key


def attention_scores(call: AttentionCall) -> Any:
    scores_BHTT = call.q_BHTK @ call.k_BHTK.transpose(2, 3) * call.q_BHTK.shape[-1] ** -0.5
    return scores_BHTT if call.added is None else scores_BHTT + call.added


def _mask_to_infinity(added: Any, dtype: Any) -> Any:
    """Replace the least number of the type, which hides a key, by minus infinity."""
    return added.masked_fill(added < torch.finfo(dtype).min / 2, -torch.inf)


def first_output(output: Any) -> Any:
    return output[0] if isinstance(output, tuple) else output


def cut_padding(output: Any, tokens: int | None, name: str) -> tuple[Any, ...]:
    """Return the hidden states of an output, without positions that a model pads inside.

    BigBird and Reformer pad to whole blocks: their states are longer than the `tokens` of the input
    (None: unknown), which their last hidden state has.
    """
    states = getattr(output, "hidden_states", None) or ()
    last_BTD = getattr(output, "last_hidden_state", None)
    positions = {x.shape[1] if x.ndim == 3 else 0 for x in states}
    padded = positions - {tokens}
    if last_BTD is None or last_BTD.shape[1] != tokens or len(padded) != 1 or min(padded) < tokens:
        return states
    cut = tuple(x[:, :tokens] for x in states)
    same = cut[-1].shape == last_BTD.shape
    if not same or (cut[-1] - last_BTD).abs().max() > 1e-3 * last_BTD.abs().max():
        what = f"{name} returns states of {min(padded)} positions for {tokens}"
        raise UserError(f"{what}, and which of them are padding is not known; {ENTRY}")
    return cut


class Listener(contextlib.ExitStack):
    """A context that captures every layer and every attention call of the blocks in one pass.

    One module may serve as many blocks, as in ALBERT: the order of calls distinguishes them. A pass
    in which a layer or an attention call is missing is refused at the end: otherwise attention that
    a model computes in its own way would be lost silently. `keep` copies a tensor that a model may
    later change in place; `plain` computes attention without a fused kernel. Of `layers` (None: all)
    and their blocks alone something is kept.
    """

    def __init__(
        self,
        loaded: PretrainedModel,
        keep: Callable[[Any], Any] = torch.clone,
        heads: bool = False,
        plain: bool = False,
        layers: tuple[int, ...] | None = None,
    ):
        super().__init__()
        self.loaded, self.keep, self.heads, self.plain = loaded, keep, heads, plain
        self.chosen, self.ran, self.attended = layers, 0, 0  # numbers of layers and of calls
        self.layers: list[Any] = []  # x_BTD: the first block's input, then every block's output
        self.calls: list[AttentionCall] = []  # attention calls of the blocks
        self.depth = 0  # number of blocks that are running

    def __enter__(self) -> "Listener":
        model, adapter, base = self.loaded.model, self.loaded.adapter, self.loaded.base
        if adapter == UNKNOWN:  # hidden states as the class reports them
            ask = {"output_hidden_states": True}
            before = base.register_forward_pre_hook(
                lambda _, args, kwargs: (args, kwargs | ask), with_kwargs=True
            )
            self.enter_context(before)
            after = base.register_forward_hook(self._after_unknown, with_kwargs=True)
            self.enter_context(after)
            return self
        self.callback(model.set_attn_implementation, model.config._attn_implementation)
        register = transformers.AttentionInterface.register
        register(CAPTURE, self._attend)
        self.callback(register, CAPTURE, sdpa_attention_forward)
        by_library = adapter.score_exponent is None and adapter.extra_scores is None
        model.set_attn_implementation(CAPTURE if by_library else "eager")
        for block in self.loaded.block_modules:
            self.enter_context(block.register_forward_pre_hook(self._before, with_kwargs=True))
            self.enter_context(block.register_forward_hook(self._after))
        if adapter.score_exponent is not None:
            self.enter_context(SoftmaxWatch(self._on_softmax))
        return self

    def __exit__(self, error: type | None, *more: Any) -> None:
        super().__exit__(error, *more)
        if error is not None:
            return
        name, blocks, layers = self.loaded.class_name, self.loaded.blocks, self.ran
        if layers != blocks + 1:
            raise UserError(f"{name}: {layers} layers ran, {blocks + 1} were expected; {ENTRY}")
        if self.heads and (calls := self.attended) != blocks:
            raise UserError(
                f"{name}: attention ran {calls} times in {blocks} blocks; {LEAVE_ATTENTION}"
            )

    def _layer(self, x_BTD: Any) -> None:
        if x_BTD.ndim != 3:
            what = f"{self.loaded.class_name} returns maps of shape {tuple(x_BTD.shape)}"
            raise UserError(f"{what}; name a model whose layers return (windows, positions, width)")
        if self._is_chosen(self.ran):
            self.layers.append(self.keep(x_BTD))
        self.ran += 1

    def _is_chosen(self, layer: int) -> bool:
        return self.chosen is None or layer in self.chosen

    def _before(self, block: Any, args: tuple, kwargs: dict) -> None:
        self.depth += 1
        if not self.ran:
            self._layer(args[0] if args else kwargs["hidden_states"])

    def _after(self, block: Any, args: tuple, output: Any) -> None:
        self.depth -= 1
        self._layer(first_output(output))

    def _after_unknown(self, base: Any, args: tuple, kwargs: dict, output: Any) -> None:
        """Capture the hidden states of a class; cut off what a model has put behind its input."""
        ids_BT = kwargs.get("input_ids", args[0] if args and self.loaded.reads_text else None)
        tokens = None if ids_BT is None else ids_BT.shape[1]
        for x_BTD in cut_padding(output, tokens, self.loaded.class_name):
            self._layer(x_BTD)

    def _on_call(self, call: AttentionCall) -> None:
        if not self.depth or not self.heads:  # ignore attention outside the blocks
            return
        self.attended += 1
        if self._is_chosen(self.attended):
            self.calls.append(
                AttentionCall(self.keep(call.q_BHTK), self.keep(call.k_BHTK), call.added)
            )

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
        call = AttentionCall(
            query * (factor * width**0.5), key.repeat_interleave(shared, dim=1), added
        )
        self._on_call(call)
        if self.plain:
            weights_BHTT = attention_scores(call).softmax(-1)
            mean_BHTK = weights_BHTT @ value.repeat_interleave(shared, dim=1)
            return mean_BHTK.transpose(1, 2).contiguous(), None
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **more
        )

    def _on_softmax(self, q_BHTK: Any, k_BHTK: Any, scores_BHTT: Any) -> None:
        """Find what the scores of a class with its own attention contain besides <q, k>."""
        q_BHTK = q_BHTK * q_BHTK.shape[-1] ** (0.5 - self.loaded.adapter.score_exponent)
        product_BHTT = attention_scores(AttentionCall(q_BHTK.float(), k_BHTK.float()))
        added = _mask_to_infinity(scores_BHTT.float(), self.loaded.model.dtype) - product_BHTT
        self._on_call(AttentionCall(q_BHTK, k_BHTK, added))


class SoftmaxWatch(TorchFunctionMode):
    """Capture attention that a model computes without the attention interface of the library.

    For every softmax over (B, H, T, T), `on_softmax` is called with the queries and keys of the last
    product before it, and with its input.
    """

    def __init__(self, on_softmax: Callable[[Any, Any, Any], None]):
        super().__init__()
        self.on_softmax, self.factors = on_softmax, []

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        tensors = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, torch.Tensor)]
        name = getattr(function, "__name__", "")
        if name in PRODUCTS:
            self.factors = tensors[-2:]
        if name == "softmax" and self.factors and tensors[0].ndim == 4:
            # split windows and heads that share an axis, and repeat keys that heads share
            windows, heads, tokens, _ = tensors[0].shape
            q_BHTK = self.factors[0].reshape(windows, heads, tokens, -1)
            k_BHTK = self.factors[1].transpose(-1, -2)
            k_BHTK = k_BHTK.reshape(windows, -1, tokens, q_BHTK.shape[-1])
            k_BHTK = k_BHTK.repeat_interleave(heads // k_BHTK.shape[1], dim=1)
            self.on_softmax(q_BHTK, k_BHTK, tensors[0])
        return function(*args, **(kwargs or {}))
