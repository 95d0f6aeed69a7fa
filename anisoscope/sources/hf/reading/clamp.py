"""Massive coordinates clamped while a model runs: what of its geometry, attention and loss hangs on
them?
"""

from typing import Any

import numpy as np

from anisoscope.sources.hf.adapters import UNKNOWN
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.reading.extract import forward
from anisoscope.utils.errors import UserError


def clamp_coordinates(
    loaded: PretrainedModel,
    most: float,
    tokens_WT: np.ndarray,
    batch_size: int,
    needed: bool = True,
) -> str:
    """From now on no coordinate exceeds `most` in absolute value after any block, at any position.

    Later blocks read what is clamped. Returns, in words, what that changes of these windows; where
    nothing, UserError if it is `needed`: of early revisions of a training it need not be.
    """
    vectors_N, first_N, largest_N, seen_N = (np.zeros(loaded.blocks) for _ in range(4))
    calls = 0

    def after(_: Any, args: tuple, output: Any) -> Any:
        nonlocal calls
        x_BTD = output[0] if isinstance(output, tuple) else output
        n, calls = calls % loaded.blocks, calls + 1  # one module may be many blocks
        over_BT = x_BTD.abs().amax(-1) > most
        vectors_N[n] += int(over_BT.sum())
        seen_N[n] += over_BT.numel()
        first_N[n] += int(over_BT[:, 0].sum())
        largest_N[n] = max(largest_N[n], float(x_BTD.abs().max()))
        limited_BTD = x_BTD.clamp(-most, most)
        return (limited_BTD, *output[1:]) if isinstance(output, tuple) else limited_BTD

    if loaded.adapter == UNKNOWN:
        raise UserError(
            f"pretrained.clamp: the blocks of {type(loaded.model).__name__} are not known (it has no entry in "
            "sources/hf/adapters.py); leave it out"
        )
    for module in loaded.block_modules:
        module.register_forward_hook(after)
    for start in range(0, len(tokens_WT), batch_size):
        forward(loaded, tokens_WT[start : start + batch_size])
    if not vectors_N.any():
        none = f"no coordinate of the residual stream exceeds {largest_N.max():.3g}: nothing"
        if needed:
            raise UserError(f"pretrained.clamp is {most:g}, and {none} would be clamped")
        return f"{none} is clamped to {most:g}"
    blocks, n = np.flatnonzero(vectors_N) + 1, vectors_N.argmax()
    return (
        f"coordinates beyond {most:g}, after {len(blocks)} of {loaded.blocks} blocks, from block {blocks[0]} on; "
        f"at most {vectors_N[n]:.0f} of {seen_N[n]:.0f} vectors, {first_N[n]:.0f} of them token 0; the largest was "
        f"{largest_N.max():.0f}, after block {largest_N.argmax() + 1}"
    )
