"""Clamp massive coordinates while a model runs.

This shows how much of its geometry, attention and loss depends on them.
"""

from typing import Any

import numpy as np

from anisoscope.sources.hf.adapters import ENTRY, UNKNOWN
from anisoscope.sources.hf.extract import first_output, forward
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.utils.errors import UserError


class _Clamp:
    """A hook after every block that clamps coordinates and counts the vectors it changes."""

    def __init__(self, most: float, blocks: int):
        self.most, self.calls = most, 0
        self.changed_N, self.first_N, self.largest_N, self.vectors_N = np.zeros((4, blocks))

    def after(self, _: Any, args: tuple, output: Any) -> Any:
        x_BTD = first_output(output)
        n = self.calls % len(self.changed_N)  # one module may be many blocks
        self.calls += 1
        large_BT = x_BTD.abs().amax(-1) > self.most
        self.changed_N[n] += int(large_BT.sum())
        self.vectors_N[n] += large_BT.numel()
        self.first_N[n] += int(large_BT[:, 0].sum())
        self.largest_N[n] = max(self.largest_N[n], float(x_BTD.abs().max()))
        x_BTD = x_BTD.clamp(-self.most, self.most)
        return (x_BTD, *output[1:]) if isinstance(output, tuple) else x_BTD


def clamp_coordinates(
    loaded: PretrainedModel,
    most: float,
    tokens_WT: np.ndarray,
    batch_size: int,
    needed: bool = True,
) -> str:
    """Clamp every coordinate to at most `most` in absolute value after every block from now on.

    Later blocks read the clamped values. Return in words how clamping changes these windows.
    UserError where nothing is clamped though `needed`: early revisions may have nothing to clamp.
    """
    if loaded.adapter == UNKNOWN:
        raise UserError(
            f"pretrained.clamp: the blocks of {loaded.class_name} are not known; {ENTRY}"
        )
    blocks, clamp = loaded.blocks, _Clamp(most, loaded.blocks)
    for module in loaded.block_modules:
        module.register_forward_hook(clamp.after)
    for start in range(0, len(tokens_WT), batch_size):
        forward(loaded, tokens_WT[start : start + batch_size])
    changed_N, largest_N = clamp.changed_N, clamp.largest_N
    if not changed_N.any():
        none = f"no coordinate of the residual stream exceeds {largest_N.max():.3g}: nothing"
        if needed:
            raise UserError(f"pretrained.clamp is {most:g}, but {none} would be clamped; lower it")
        return f"{none} is clamped to {most:g}"
    numbers, n = np.flatnonzero(changed_N) + 1, changed_N.argmax()
    return (
        f"coordinates above {most:g}, after {len(numbers)} of {blocks} blocks, from block "
        f"{numbers[0]} on; at most {changed_N[n]:.0f} of {clamp.vectors_N[n]:.0f} vectors, "
        f"{clamp.first_N[n]:.0f} of them the first token; the largest was {largest_N.max():.0f}, "
        f"after block {largest_N.argmax() + 1}"
    )
