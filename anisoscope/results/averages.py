"""Averages over blocks and heads: of which quantities there are some, what they are called, and
what is averaged.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from anisoscope.measurement.families.registry import quantities
from anisoscope.measurement.quantity import HEAD, LAYERS

EMBEDDING = "embedding"  # what the first layer is, unless a table says otherwise
BLOCK = "block 1"  # what it is of the hook points of blocks


class Average(NamedTuple):
    """`take` averages arrays (batch, replicate, positions, *dims of the quantity), from which it
    leaves `dims`.
    """

    words: str
    dims: tuple[str, ...]
    take: Callable[[np.ndarray], np.ndarray]


def over_blocks(name: str) -> str:
    """Name the variable of a quantity's average over blocks, or over blocks and heads."""
    return f"{name}_over_blocks"


def over_heads(name: str) -> str:
    """Name the variable of a quantity's average over the heads of each block."""
    return f"{name}_over_heads"


def averages(name: str, layer_0: str = EMBEDDING) -> dict[str, Average]:
    """List the averages of a quantity by variable. The embedding is no block's output.

    Layers of which the first is no embedding have no average: which of them are blocks is not known
    here. NaN where a layer or head has no finite number: where it has one, the average would jump.
    """
    dims = quantities()[name].dims
    if dims == HEAD:
        by_block = Average("mean over the heads of a block", dims[:1], lambda x: finite(x).mean(4))
        whole = Average("mean over blocks and heads", (), lambda x: finite(x).mean((3, 4)))
        return {over_heads(name): by_block, over_blocks(name): whole}
    if dims[0] == "block":
        average = Average("mean over blocks", dims[1:], lambda x: finite(x).mean(3))
        return {over_blocks(name): average}
    if dims[:2] == LAYERS or layer_0 not in (EMBEDDING, BLOCK):
        return {}
    first = int(layer_0 == EMBEDDING)
    return {
        over_blocks(name): Average(
            "mean over blocks 1 to N", dims[1:], lambda x: finite(x[:, :, :, first:]).mean(3)
        )
    }


def finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)
