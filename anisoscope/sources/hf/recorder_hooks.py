"""Attach a recorder to named PyTorch modules by forward hooks.

The innermost call around a hook point that takes a model's inputs shows its sequences and padding.
In an encoder–decoder that is the call of the encoder or the decoder, and in a model of pictures and
text the call of a tower. This file needs PyTorch only. Letters: M rows of a pass.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from anisoscope.sources.recording.recorded_passes import Pass, as_booleans, check_mask
from anisoscope.utils.errors import UserError

if TYPE_CHECKING:
    from anisoscope.sources.recording.recorder import Recorder

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
TOKENS = ("input_ids", "inputs_embeds")  # arguments (batch, tokens, …)
# arguments (batch, …), with an unknown number of tokens
OTHERS = ("pixel_values", "input_values", "input_features")
CACHES = ("past_key_values", "cache_params", "mems", "state")
PACKED = ("cu_seq_lens_q", "seq_idx")  # arguments of rows that pack several documents
LAYERS = (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer, nn.MultiheadAttention)
SEQUENTIAL = (nn.Transformer, nn.TransformerEncoder, nn.TransformerDecoder, nn.RNNBase, *LAYERS)
# padding masks of PyTorch's own classes
SOURCES = {"src": "src_key_padding_mask", "tgt": "tgt_key_padding_mask"}


def find_modules(model: nn.Module, hook_points: Any) -> dict[str, nn.Module]:
    """Return {name: module} for names of modules, or for such a dict."""
    if not hook_points:
        raise UserError("hook_points is empty; pass names that model.named_modules() lists")
    if isinstance(hook_points, Mapping):
        return dict(hook_points)
    names = [hook_points] if isinstance(hook_points, str) else [*hook_points]
    modules = {name: module for name, module in model.named_modules() if name}
    if unknown := [name for name in names if name not in modules]:
        some = ", ".join(itertools.islice(modules, 8))
        what = f"{type(model).__name__} has no module {unknown[0]!r}"
        raise UserError(f"hook_points: {what}; it has {some} …")
    return {name: modules[name] for name in names}


def enclosing_modules(model: nn.Module, module: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules that hold this module, innermost first; for a shared module, all."""
    parts = dict(model.named_modules(remove_duplicate=False))
    for name in [name for name, part in parts.items() if part is module and name]:
        while name:
            name = name.rpartition(".")[0]
            yield parts[name]


def tokens_first(model: nn.Module, name: str, module: nn.Module) -> bool:
    """Return whether a hook point returns (tokens, batch, width), the default of PyTorch's classes.

    UserError where the model has such a class, and the hook point is outside it.
    """
    for part in (module, *enclosing_modules(model, module)):
        if isinstance(part, SEQUENTIAL):
            return not _batch_first(part)
    for inner, part in model.named_modules():
        if isinstance(part, SEQUENTIAL) and not _batch_first(part):
            what = f"{inner or 'the model'} has batch_first=False, so tokens may come first"
            raise UserError(f"hook point {name}: {what}; pass the arrays to Recorder.add")
    return False


def _batch_first(module: nn.Module) -> bool:
    return all(getattr(part, "batch_first", True) for part in module.modules())


def output_tensor(name: str, output: Any) -> torch.Tensor:
    """Return the output of a module, or the first of several; UserError where it has no vectors."""
    output = next(iter(output.values())) if isinstance(output, Mapping) and output else output
    output = output[0] if isinstance(output, tuple | list) and output else output
    if isinstance(output, torch.Tensor) and output.is_floating_point() and output.ndim in (2, 3):
        return output.detach()
    what = f"{getattr(output, 'dtype', type(output).__name__)} {[*getattr(output, 'shape', ())]}"
    advice = "name a module that returns vectors (batch, tokens, width) or (batch, width)"
    raise UserError(f"hook point {name} returns {what}; {advice}")


class ModuleCall:
    """A call of a module, with its arguments by name."""

    def __init__(
        self, module: nn.Module, source: nn.Module, parameters: list[str], args: tuple, kwargs: dict
    ):
        self.module, self.parameters = module, parameters
        self.source = source  # shared by hook points that read the same sequences
        self.arguments = dict(zip(parameters, args, strict=False)) | kwargs
        self.continues = any(_is_filled(self.arguments.get(name)) for name in CACHES)
        sequence_inputs = SOURCES if isinstance(module, SEQUENTIAL) else ()
        self.inputs = {
            name: self.arguments[name]
            for name in (*TOKENS, *OTHERS, *sequence_inputs)
            if isinstance(self.arguments.get(name), torch.Tensor)
        }

    def has_token_mask(self, lead: tuple[int, ...]) -> bool:
        """Whether it has an attention_mask of (batch, tokens), whatever its inputs are called."""
        mask = self.arguments.get("attention_mask")
        if not isinstance(mask, torch.Tensor) or tuple(mask.shape) != lead or mask.ndim != 2:
            return False
        if len({*lead}) == 1 and not mask.all() and torch.equal(mask, mask.tril()):
            what = "attention_mask is square and triangular, so it may be causal"
            raise ValueError(f"{what}; pass another number of sequences than of tokens")
        return True

    def sequences(
        self, name: str, lead: tuple[int, ...], mask: np.ndarray | None
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Return mask and positions of the vectors (batch, tokens) or (batch,) of a hook point."""
        if self.continues:
            what = "the pass continues a cache, as generate does"
            raise ValueError(f"{what}; call the model on whole sequences")
        if "decoder_input_ids" in self.parameters:
            what = f"hook point {name} lies outside encoder and decoder"
            raise ValueError(f"{what}; name a module inside them")
        position_ids = self.arguments.get("position_ids")
        if position_ids is None and any(self.arguments.get(key) is not None for key in PACKED):
            advice = "pass position_ids, which restart in each"
            raise ValueError(f"its rows hold several documents; {advice}")
        shape = self._shape()
        if shape and (lead[0] != shape[0] or (len(lead) == len(shape) == 2 and lead != shape)):
            what = f"hook point {name} returns {lead} vectors for inputs {shape}"
            advice = "name a module that keeps the shape"
            raise ValueError(f"{what}, so padding is unknown; {advice}")
        if len(lead) == 1:
            return None, None
        passed = self._mask(lead[0])
        if passed is not None:
            check_mask(name, lead, passed)
            mask = as_booleans(passed) if mask is None else mask
        if not isinstance(position_ids, torch.Tensor) or position_ids.ndim != 2:
            return mask, None
        return mask, np.broadcast_to(position_ids.detach().cpu().numpy(), lead)

    def _shape(self) -> tuple[int, ...] | None:
        """Return (batch, tokens) of the inputs, or (batch,); None for a nested tensor."""
        for name, x in self.inputs.items():
            if x.is_nested:
                return None
            if name in SOURCES and x.ndim < 3:
                return 1, len(x)
            if name in SOURCES:
                return tuple(x.shape[:2]) if _batch_first(self.module) else (x.shape[1], x.shape[0])
            if name in OTHERS or any(other in self.inputs for other in OTHERS):
                return tuple(x.shape[:1])
            return tuple(x.shape[:2])
        return None

    def _mask(self, batch: int) -> Any:
        """Return the attention mask that was passed, 1 at tokens and 0 at padding, or None."""
        for name in SOURCES.keys() & self.inputs.keys():
            padding = self.arguments.get(SOURCES[name])
            if padding is None:
                return None
            if padding.dtype.is_floating_point:  # added to the scores
                padding = torch.where(torch.isneginf(padding), torch.ones_like(padding), padding)
            return (1 - padding.detach().float()).reshape(batch, -1)
        mask = self.arguments.get("attention_mask")
        if mask is not None and not isinstance(mask, torch.Tensor):
            what = f"attention_mask is a {type(mask).__name__}"
            raise ValueError(f"{what}; pass a tensor (batch, tokens)")
        return mask


def _is_filled(cache: Any) -> bool:
    """Return whether a cache holds tokens of earlier passes; True for an unknown kind."""
    if cache is None:
        return False
    try:
        return int(cache.get_seq_length()) > 0
    except Exception:
        return not (isinstance(cache, tuple | list) and not cache)


class PassHooks:
    """Hooks of a recorder's model: a pass is one call of the model.

    Calls outside the model are not recorded. A pass that cannot be recorded causes a warning; the
    model's own pass always continues. In a user's own loop over layers, a layer that reads another's
    output continues its chain: layers of a chain read the same sequences.
    """

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.local = threading.local()  # data-parallel replicas run in threads

    @property
    def current(self) -> Pass | None:
        return getattr(self.local, "current", None)

    def begin(self, *_: Any) -> None:
        self.local.current = Pass(self.recorder) if self.recorder.active else None
        self.local.calls = []
        self.local.first = {}  # the first layer of a layer's chain
        self.local.last = None  # a weak reference to the last layer's output, and its first layer

    def end(self, *_: Any) -> None:
        if self.current is not None:
            with self.drop_pass_on_error():
                self.current.end()
        self.local.current = None

    @contextlib.contextmanager
    def drop_pass_on_error(self) -> Iterator[None]:
        """Drop the current forward pass if recording it raises, and keep the error for a warning."""
        try:
            yield
        except Exception as error:
            self.local.current = None
            self.recorder.leave_out(error)

    def enter(self, parameters: list[str], module: nn.Module, args: tuple, kwargs: dict) -> None:
        """Note the call of a module with these positional parameters."""
        if self.current is not None:
            source = self.local.first.get(module, module)
            self.local.calls.append(ModuleCall(module, source, parameters, args, kwargs))

    def enter_layer(self, module: nn.Module, args: tuple, kwargs: dict) -> None:
        if self.current is not None:
            x, last = args[0] if args else next(iter(kwargs.values()), None), self.local.last
            continues = last is not None and x is not None and last[0]() is x
            self.local.first[module] = last[1] if continues else module

    def leave_layer(self, module: nn.Module, args: tuple, output: Any) -> None:
        if self.current is not None and isinstance(output, torch.Tensor):
            self.local.last = weakref.ref(output), self.local.first.get(module, module)

    def leave(self, module: nn.Module, *_: Any) -> None:
        if self.current is not None:
            while self.local.calls and self.local.calls.pop().module is not module:
                pass  # calls that raised and whose caller continued

    def take(self, name: str, module: nn.Module, args: tuple, output: Any) -> None:
        """Take rows of the output of a hook point."""
        if self.current is None:
            return
        with self.drop_pass_on_error():
            x, mask = output_tensor(name, output), None
            if x.is_nested:
                lengths = np.array([len(part) for part in x.unbind()])
                x = torch.nested.to_padded_tensor(x, 0.0)
                mask = np.arange(x.shape[1]) < lengths[:, None]
            elif self.recorder.tokens_first[name] and x.ndim == 3:
                x = x.transpose(0, 1)
            lead, position_ids = tuple(x.shape[:-1]), None
            calls = self.local.calls
            known = [call for call in reversed(calls) if call.inputs]
            call = next(iter(known or [call for call in calls if call.has_token_mask(lead)]), None)
            if call is not None:
                mask, position_ids = call.sequences(name, lead, mask)
            rows = self.current.draw(name, lead, mask, position_ids, call and call.source)
            index = torch.as_tensor(rows.rows_M, device=x.device)
            self.current.rows[name] = x.reshape(-1, x.shape[-1]).index_select(0, index)


@contextlib.contextmanager
def attach(recorder: Recorder) -> Iterator[None]:
    """Register the hooks of a recorder's model while the context lasts."""
    model, points, own = recorder.model, recorder.hook_points, PassHooks(recorder)
    around = [part for module in points.values() for part in enclosing_modules(model, module)]
    with contextlib.ExitStack() as hooks:

        def before(module: nn.Module, hook: Callable[..., None], **options: bool) -> None:
            hooks.enter_context(module.register_forward_pre_hook(_uncompiled(hook), **options))

        def after(module: nn.Module, hook: Callable[..., None]) -> None:
            hooks.enter_context(module.register_forward_hook(_uncompiled(hook)))

        before(model, own.begin, prepend=True)
        for layer in (part for part in model.modules() if isinstance(part, LAYERS)):
            before(layer, own.enter_layer, with_kwargs=True)
            after(layer, own.leave_layer)
        for module in dict.fromkeys((model, *around, *points.values())):
            before(module, functools.partial(own.enter, _positional(module)), with_kwargs=True)
        for name, module in points.items():
            after(module, functools.partial(own.take, name))
        for module in dict.fromkeys((*points.values(), *around, model)):
            after(module, own.leave)
        after(model, own.end)
        yield


def _positional(module: nn.Module) -> list[str]:
    """Return the names of the positional arguments of a module."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [parameter.name for parameter in parameters if parameter.kind in POSITIONAL]


def _uncompiled(hook: Callable[..., None]) -> Callable[..., None]:
    """Return a hook that torch.compile leaves to Python."""
    return torch.compiler.disable(hook) if "torch._dynamo" in sys.modules else hook
