"""Attention that a model computes by itself, not where the library computes it for others: seen
about its softmax.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

PRODUCTS = ("matmul", "__matmul__", "bmm", "baddbmm")


class Watching(TorchFunctionMode):
    """Tells of every softmax over (B, H, T, T) the queries and keys of the last product before it,
    its input, and the values of the first product after it."""

    def __init__(self, tell: Callable[[Any, Any, Any, Any], None]):
        super().__init__()
        self.tell = tell
        self.factors: list[Any] = []
        self.before: tuple[Any, ...] = ()  # what is known at the softmax, until the values are

    def __torch_function__(
        self, function: Any, types: Any, args: tuple = (), kwargs: dict | None = None
    ) -> Any:
        given = [x for x in (*args, *(kwargs or {}).values()) if isinstance(x, torch.Tensor)]
        name = getattr(function, "__name__", "")
        if name in PRODUCTS:
            self.factors = given[-2:]
            if self.before:
                (windows, _, tokens, _), values = self.before[-1].shape, given[-1]
                self.tell(*self.before, values.reshape(windows, -1, tokens, values.shape[-1]))
                self.before = ()
        if name == "softmax" and self.factors and given[0].ndim == 4:
            self.before = (*_heads(*self.factors, given[0]), given[0])
        return function(*args, **(kwargs or {}))


def _heads(queries: Any, keys: Any, scores_BHTT: Any) -> tuple[Any, Any]:
    """Windows and heads may be one axis; and of several heads the keys may be the same."""
    windows, heads, tokens, _ = scores_BHTT.shape
    q_BHTK = queries.reshape(windows, heads, tokens, -1)
    k_BHTK = keys.transpose(-1, -2).reshape(windows, -1, tokens, q_BHTK.shape[-1])
    return q_BHTK, k_BHTK.repeat_interleave(heads // k_BHTK.shape[1], dim=1)
