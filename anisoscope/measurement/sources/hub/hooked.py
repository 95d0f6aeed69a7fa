"""Hooks by which a recorder hears of a PyTorch model's passes; the model computes as without them.

Letters: M rows of a pass that are taken.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from anisoscope.measurement.recording.recorder import Pass, Recorder
from anisoscope.measurement.sources.hub.reading.named import output_of
from anisoscope.utils.errors import as_value_error

MASK = "attention_mask"  # of a pass, by name: where it is 0 there is padding


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

    def end(_: Any, args: tuple, found: Any) -> None:
        if passes:
            passes.pop().end()

    def hook(name: str) -> Any:
        def after(_: Any, args: tuple, found: Any) -> None:
            if passes:
                with as_value_error():
                    x = output_of(name, found)
                rows_M = passes[-1].drawn(name, tuple(x.shape[:-1])).rows_M
                index = torch.as_tensor(rows_M, device=x.device)
                passes[-1].rows[name] = x.reshape(-1, x.shape[-1]).index_select(0, index)

        return after

    hooks = [module.register_forward_hook(hook(name)) for name, module in recorder.hook_points.items()]
    hooks += [recorder.model.register_forward_pre_hook(begin, with_kwargs=True, prepend=True)]
    hooks += [recorder.model.register_forward_hook(end)]
    try:
        yield
    finally:
        for one in hooks:
            one.remove()
