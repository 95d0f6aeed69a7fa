"""Attach a recorder to named PyTorch modules by forward hooks.

This file needs PyTorch only. Letters: M rows of a pass.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import re
import sys
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence, pad_packed_sequence

from anisoscope.sources.hf.module_calls import (
    SEQUENTIAL,
    TORCH_LAYERS,
    ModuleCall,
    batch_first,
    find_sequences,
)
from anisoscope.sources.recording.recorded_passes import Pass
from anisoscope.utils.errors import UserError

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
CHANNEL_NORMS = (nn.BatchNorm1d, nn.InstanceNorm1d, nn.GroupNorm)  # of (batch, channels, time) too
CHANNELS_FIRST = (nn.Conv1d, nn.ConvTranspose1d, nn.MaxPool1d, nn.AvgPool1d, *CHANNEL_NORMS)


def find_modules(model: nn.Module, hook_points: Any) -> dict[str, nn.Module]:
    """Return {name: module} for names of modules, or for such a dict.

    A * stands for any part of a name between two dots: `blocks.*` is all blocks, and no more.
    """
    if isinstance(model, torch.jit.ScriptModule):
        raise UserError("torch.jit runs no hooks; record the module that was compiled")
    if not hook_points:
        raise UserError("hook_points is empty; pass names that model.named_modules() lists")
    if isinstance(hook_points, Mapping):
        return dict(hook_points)
    names = [hook_points] if isinstance(hook_points, str) else [*hook_points]
    modules = {name: module for name, module in model.named_modules() if name}
    found = {name: [x for x in modules if _is_called(x, name)] for name in names}
    if unknown := [name for name in names if not found[name]]:
        some = ", ".join(itertools.islice(modules, 8))
        what = f"{type(model).__name__} has no module {unknown[0]!r}"
        raise UserError(f"hook_points: {what}; it has {some} …")
    return {name: modules[name] for name in itertools.chain(*found.values())}


def _is_called(name: str, pattern: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", "[^.]*"), name) is not None


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
            return not batch_first(part)
    for inner, part in model.named_modules():
        if isinstance(part, SEQUENTIAL) and not batch_first(part):
            what = f"{inner or 'the model'} has batch_first=False, so tokens may come first"
            raise UserError(f"hook point {name}: {what}; pass the arrays to Recorder.add")
    return False


def output_tensor(name: str, output: Any) -> tuple[torch.Tensor, np.ndarray | None]:
    """Return the output of a module, or the first of several, and the mask that it has if packed.

    UserError where it has no vectors.
    """
    output = next(iter(output.values())) if isinstance(output, Mapping) and output else output
    several = isinstance(output, tuple | list) and not isinstance(output, PackedSequence)
    output = output[0] if several and output else output
    if isinstance(output, PackedSequence):
        x, lengths = pad_packed_sequence(output, batch_first=True)
        return x.detach(), np.arange(x.shape[1]) < lengths.numpy()[:, None]
    if isinstance(output, torch.Tensor) and output.is_floating_point() and output.ndim in (2, 3):
        if not output.is_nested:
            return output.detach(), None
        lengths = np.array([len(part) for part in output.unbind()])
        x = torch.nested.to_padded_tensor(output.detach(), 0.0)
        return x, np.arange(x.shape[1]) < lengths[:, None]
    what = f"{getattr(output, 'dtype', type(output).__name__)} {[*getattr(output, 'shape', ())]}"
    advice = "name a module that returns vectors (batch, tokens, width) or (batch, width)"
    raise UserError(f"hook point {name} returns {what}; {advice}")


class Hook:
    """A hook that copies and pickles of a model do not carry, and that torch.compile leaves alone."""

    def __init__(self, function: Callable[..., None]):
        compiling = "torch._dynamo" in sys.modules
        self.function = torch.compiler.disable(function) if compiling else function

    def __call__(self, *args: Any) -> None:
        self.function(*args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple]:
        return _make_idle, ()


def _make_idle() -> Callable[..., None]:
    return _idle


def _idle(*_: Any) -> None:
    """Do nothing, as the hook of a copy."""


class PassHooks:
    """Hooks of a recorder's model: a pass is one call of the model.

    Calls outside the model are not recorded. A pass that cannot be recorded causes a warning; the
    model's own pass always continues. In a user's own loop over layers, a layer that reads another's
    output continues its chain: layers of a chain read the same sequences.
    """

    def __init__(
        self,
        model: nn.Module,
        hook_points: Mapping[str, nn.Module],
        begin_pass: Callable[[], Pass],
        leave_out: Callable[[Exception], None],
    ):
        self.model, self.hook_points = model, hook_points
        self.begin_pass, self.leave_out = begin_pass, leave_out
        self.tokens_first = {
            name: tokens_first(model, name, part) for name, part in hook_points.items()
        }
        self.local = threading.local()  # data-parallel replicas run in threads

    @property
    def current(self) -> Pass | None:
        return getattr(self.local, "current", None)

    def start_pass(self, *_: Any) -> None:
        self.local.current = self.begin_pass()
        self.local.calls = []
        self.local.channels_first = set()  # shapes of outputs (batch, channels, time)
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
            self.leave_out(error)

    def enter(self, parameters: list[str], module: nn.Module, args: tuple, kwargs: dict) -> None:
        """Note the call of a module with these positional parameters."""
        if self.current is not None:
            with self.drop_pass_on_error():
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

    def look_up(self, module: nn.Embedding, args: tuple, kwargs: dict) -> None:
        """Note the ids that an embedding with a padding_idx looks up, for all open calls."""
        ids = args[0] if args else kwargs.get("input")
        for call in self.local.calls if self.current is not None else ():
            call.embedded.append((ids, module.padding_idx))

    def leave_channels(self, module: nn.Module, args: tuple, output: Any) -> None:
        """Note the shape of an output (batch, channels, time), or without a batch."""
        norm = (
            isinstance(module, CHANNEL_NORMS) and getattr(output, "ndim", 0) == 2
        )  # (batch, channels)
        if self.current is not None and isinstance(output, torch.Tensor) and not norm:
            self.local.channels_first.add(tuple(output.shape))

    def leave(self, module: nn.Module, *_: Any) -> None:
        if self.current is not None:
            while self.local.calls and self.local.calls.pop().module is not module:
                pass  # calls that raised and whose caller continued

    def take(self, name: str, module: nn.Module, args: tuple, output: Any) -> None:
        """Take rows of the output of a hook point."""
        if self.current is None:
            return
        with self.drop_pass_on_error():
            x, mask = output_tensor(name, output)
            if self.tokens_first[name] and x.ndim == 3 and mask is None:
                x = x.transpose(0, 1)
            elif (shape := tuple(x.shape)) in self.local.channels_first:
                if x.ndim == 2 or shape[1] == shape[2]:
                    what = f"hook point {name} returns {shape}, and channels may come first"
                    raise UserError(f"{what}; pass the arrays to Recorder.add")
                x = x.transpose(1, 2)
            lead, known = tuple(x.shape[:-1]), self.tokens_first[name]
            sequences = find_sequences(name, lead, self.local.calls, mask, known)
            rows = self.current.draw(name, sequences)
            index = torch.as_tensor(rows.rows_M, device=x.device)
            self.current.rows[name] = x.reshape(-1, x.shape[-1]).index_select(0, index)

    @contextlib.contextmanager
    def attach(self) -> Iterator[None]:
        """Register the hooks while the context lasts."""
        model, points = self.model, self.hook_points
        around = [part for module in points.values() for part in enclosing_modules(model, module)]
        with contextlib.ExitStack() as hooks:

            def before(module: nn.Module, hook: Callable[..., None], **options: bool) -> None:
                hooks.enter_context(module.register_forward_pre_hook(Hook(hook), **options))

            def after(module: nn.Module, hook: Callable[..., None]) -> None:
                hooks.enter_context(module.register_forward_hook(Hook(hook)))

            before(model, self.start_pass, prepend=True)
            for part in model.modules():
                if isinstance(part, TORCH_LAYERS):
                    before(part, self.enter_layer, with_kwargs=True)
                    after(part, self.leave_layer)
                if isinstance(part, nn.Embedding) and part.padding_idx is not None:
                    before(part, self.look_up, with_kwargs=True)
                if isinstance(part, CHANNELS_FIRST):
                    after(part, self.leave_channels)
            for module in dict.fromkeys((model, *around, *points.values())):
                enter = functools.partial(self.enter, _positional(module))
                before(module, enter, with_kwargs=True)
            for name, module in points.items():
                after(module, functools.partial(self.take, name))
            for module in dict.fromkeys((*points.values(), *around, model)):
                after(module, self.leave)
            after(model, self.end)
            yield


def _positional(module: nn.Module) -> list[str]:
    """Return the names of the positional arguments of a module."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [parameter.name for parameter in parameters if parameter.kind in POSITIONAL]
