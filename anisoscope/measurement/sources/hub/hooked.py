"""Named hook points of PyTorch's modules, and hooks by which a recorder hears of passes; no other library is needed.

Letters: M rows of a pass that are taken.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from anisoscope.measurement.recording.recorder import Pass, Recorder
from anisoscope.utils.errors import UserError, as_value_error

SHOWN = 8  # names of modules in a message
MASK = "attention_mask"  # of a pass, by name: where it is 0 there is padding


def modules_of(model: torch.nn.Module, hook_points: Any) -> dict[str, torch.nn.Module]:
    """{name: module} of names of modules, or of such a dict; UserError where there is none of a name."""
    if isinstance(hook_points, str):
        hook_points = [hook_points]
    if not isinstance(hook_points, Mapping):
        there = dict(model.named_modules())
        for name in hook_points:
            if name not in there or not name:
                some = ", ".join(itertools.islice(filter(None, there), SHOWN))
                raise UserError(f"hook_points: {type(model).__name__} has no module {name!r}; it has {some} …")
        hook_points = {name: there[name] for name in hook_points}
    if not hook_points:
        raise UserError("hook_points names none; give names of modules, as model.named_modules() lists them")
    for name, module in hook_points.items():
        if not isinstance(name, str) or not isinstance(module, torch.nn.Module):
            raise UserError(f"hook_points: {name!r} stands for a {type(module).__name__}, no torch.nn.Module")
    return dict(hook_points)


def output_of(name: str, output: Any) -> torch.Tensor:
    """What a module gave, or the first of several things."""
    output = next(iter(output.values())) if isinstance(output, Mapping) and output else output
    output = output[0] if isinstance(output, tuple | list) and output else output
    if not isinstance(output, torch.Tensor) or not output.is_floating_point() or output.ndim not in (2, 3):
        what = f"a {type(output).__name__}"
        if isinstance(output, torch.Tensor):
            what = f"{str(output.dtype).removeprefix('torch.')} of shape {tuple(output.shape)}"
        raise UserError(f"hook point {name} gives {what}; vectors (batch, tokens, width) or (batch, width) are needed")
    return output.detach()


@contextlib.contextmanager
def attached(recorder: Recorder) -> Iterator[None]:
    """A pass is a call of the recorder's model; what its modules compute outside of one is not recorded."""
    passes: list[Pass] = []

    def begin(_: Any, args: tuple, given: dict) -> None:
        passes.clear()
        if recorder.active:
            mask = given.get(MASK)
            two = isinstance(mask, torch.Tensor) and mask.ndim == 2
            passes.append(Pass(recorder, mask.detach().cpu().numpy() != 0 if two else None))

    def end(_: Any, args: tuple, output: Any) -> None:
        if passes:
            passes.pop().end()

    def hook(name: str) -> Any:
        def after(_: Any, args: tuple, output: Any) -> None:
            if passes:
                with as_value_error():
                    x = output_of(name, output)
                rows_M = passes[-1].drawn(name, tuple(x.shape[:-1])).rows_M
                index = torch.as_tensor(rows_M, device=x.device)
                passes[-1].rows[name] = x.reshape(-1, x.shape[-1]).index_select(0, index)

        return after

    with contextlib.ExitStack() as hooks:
        for name, module in recorder.hook_points.items():
            hooks.enter_context(module.register_forward_hook(hook(name)))
        hooks.enter_context(recorder.model.register_forward_pre_hook(begin, with_kwargs=True, prepend=True))
        hooks.enter_context(recorder.model.register_forward_hook(end))
        yield
