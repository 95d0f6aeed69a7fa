"""Averages of quantities over blocks and heads: their names and how to compute them."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from anisoscope.measurement.families.registry import quantities
from anisoscope.measurement.quantity import HEAD, LAYERS

EMBEDDING = "embedding"  # meaning of layer 0, unless a table says otherwise
BLOCK = "block 1"  # meaning of layer 0 at hook points of blocks


class Average(NamedTuple):
    """An average over blocks or heads.

    `take` averages arrays (batch, replicate, positions, *dims of the quantity); `dims` remain.
    """

    words: str
    dims: tuple[str, ...]
    take: Callable[[np.ndarray], np.ndarray]


def over_blocks(name: str) -> str:
    """Name the variable with a quantity's average over blocks, or over blocks and heads."""
    return f"{name}_over_blocks"


def over_heads(name: str) -> str:
    """Name the variable with a quantity's average over the heads of each block."""
    return f"{name}_over_heads"


def averages(name: str, layer_0: str = EMBEDDING) -> dict[str, Average]:
    """List the averages of a quantity by variable, without the embedding.

    If layer 0 is neither the embedding nor a block, it is unknown which layers are blocks, and
    there are no averages. An average is NaN if any layer or head is not finite, since it would jump
    when that layer becomes finite.
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
