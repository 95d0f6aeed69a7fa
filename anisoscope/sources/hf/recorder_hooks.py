"""Attach a recorder to named PyTorch modules by forward hooks.

This file needs PyTorch only. Letters: M rows of a pass that are taken.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch

from anisoscope.sources.hf import model_calls
from anisoscope.sources.recording.recorded_passes import Pass
from anisoscope.utils.errors import UserError

if TYPE_CHECKING:
    from anisoscope.sources.recording.recorder import Recorder

POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def find_modules(model: torch.nn.Module, hook_points: Any) -> dict[str, torch.nn.Module]:
    """Return {name: module} for names of modules, or for such a dict."""
    if not hook_points:
        raise UserError("hook_points is empty; pass names that model.named_modules() lists")
    if isinstance(hook_points, Mapping):
        return dict(hook_points)
    names = [hook_points] if isinstance(hook_points, str) else [*hook_points]
    modules = {name: module for name, module in model.named_modules() if name}
    if unknown := [name for name in names if name not in modules]:
        some = ", ".join(itertools.islice(modules, 8))
        raise UserError(
            f"hook_points: {type(model).__name__} has no module {unknown[0]!r}; it has {some} …"
        )
    return {name: modules[name] for name in names}


def output_tensor(name: str, output: Any) -> torch.Tensor:
    """Return the output of a module, or the first of several; UserError where it has no vectors."""
    output = next(iter(output.values())) if isinstance(output, Mapping) and output else output
    output = output[0] if isinstance(output, tuple | list) and output else output
    is_tensor = isinstance(output, torch.Tensor)
    if is_tensor and output.is_floating_point() and output.ndim in (2, 3):
        return output.detach()
    description = (
        f"{output.dtype} {tuple(output.shape)}" if is_tensor else f"a {type(output).__name__}"
    )
    raise UserError(
        f"hook point {name} returns {description}; name a module that returns vectors "
        "(batch, tokens, width) or (batch, width)"
    )


class PassHooks:
    """Hooks of a recorder's model: a pass is one call of the model.

    Calls outside the model are not recorded. A pass that cannot be recorded causes a warning; the
    model's own pass always continues.
    """

    def __init__(self, recorder: Recorder):
        self.recorder = recorder
        self.local = threading.local()  # data-parallel replicas run in threads

    @property
    def current(self) -> Pass | None:
        return getattr(self.local, "current", None)

    def begin(self, *_: Any) -> None:
        self.local.current = Pass(self.recorder) if self.recorder.active else None
        self.local.calls, self.local.chains = [], model_calls.LayerChains()

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

    def enter(
        self, parameters: list[str], module: torch.nn.Module, args: tuple, kwargs: dict
    ) -> None:
        """Note the call of a module with these positional parameters."""
        if self.current is not None:
            call = model_calls.Call(module, parameters, args, kwargs)
            call.source = self.local.chains.first.get(module, module)
            self.local.calls.append(call)

    def enter_layer(self, module: torch.nn.Module, args: tuple, kwargs: dict) -> None:
        if self.current is not None:
            self.local.chains.enter(module, args, kwargs)

    def leave_layer(self, module: torch.nn.Module, args: tuple, output: Any) -> None:
        if self.current is not None:
            self.local.chains.leave(module, args, output)

    def leave(self, module: torch.nn.Module, *_: Any) -> None:
        if self.current is not None:
            while self.local.calls and self.local.calls.pop().module is not module:
                pass  # calls that raised and whose caller continued

    def take(
        self, name: str, tokens_first: bool, module: torch.nn.Module, args: tuple, output: Any
    ) -> None:
        """Take rows of the output of a hook point."""
        if self.current is None:
            return
        with self.drop_pass_on_error():
            x, mask = model_calls.dense(output_tensor(name, output))
            if tokens_first and x.ndim == 3 and mask is None:
                x = x.transpose(0, 1)
            lead = tuple(x.shape[:-1])
            call = next((call for call in reversed(self.local.calls) if call.inputs), None)
            known = model_calls.Sequences(mask)
            if call is not None:
                known = call.sequences(name, lead, mask)
            rows = self.current.draw(name, lead, *known, call and call.source)
            index = torch.as_tensor(rows.rows_M, device=x.device)
            self.current.rows[name] = x.reshape(-1, x.shape[-1]).index_select(0, index)


@contextlib.contextmanager
def attach(recorder: Recorder) -> Iterator[None]:
    """Register the hooks of a recorder's model while the context lasts."""
    model, listener, points = recorder.model, PassHooks(recorder), recorder.hook_points
    around = [
        part for module in points.values() for part in model_calls.enclosing_modules(model, module)
    ]
    with contextlib.ExitStack() as hooks:
        begin = model.register_forward_pre_hook(_uncompiled(listener.begin), prepend=True)
        hooks.enter_context(begin)
        for layer in (part for part in model.modules() if isinstance(part, model_calls.LAYERS)):
            enter = _uncompiled(listener.enter_layer)
            hooks.enter_context(layer.register_forward_pre_hook(enter, with_kwargs=True))
            hooks.enter_context(layer.register_forward_hook(_uncompiled(listener.leave_layer)))
        for module in dict.fromkeys((model, *around, *points.values())):
            enter = _uncompiled(functools.partial(listener.enter, _positional(module)))
            hooks.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
        for name, module in points.items():
            take = functools.partial(listener.take, name, recorder.tokens_first[name])
            hooks.enter_context(module.register_forward_hook(_uncompiled(take)))
        for module in dict.fromkeys((*points.values(), *around, model)):
            hooks.enter_context(module.register_forward_hook(_uncompiled(listener.leave)))
        hooks.enter_context(model.register_forward_hook(_uncompiled(listener.end)))
        yield


def _positional(module: torch.nn.Module) -> list[str]:
    """Return the names of the positional arguments of a module."""
    try:
        parameters = inspect.signature(module.forward).parameters.values()
    except (TypeError, ValueError):
        return []
    return [parameter.name for parameter in parameters if parameter.kind in POSITIONAL]


def _uncompiled(hook: Callable[..., None]) -> Callable[..., None]:
    """Return a hook that torch.compile leaves to Python."""
    return torch.compiler.disable(hook) if "torch._dynamo" in sys.modules else hook
