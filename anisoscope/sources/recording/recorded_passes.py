"""Sample rows from a stream of passes: every row offered is kept with the same probability.

Rows of a pass are collected at the hook points, and kept once the pass has ended completely. All
hook points have rows at the same positions, drawn once. Letters: M rows of a pass, or the taken
rows; S slots.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np

from anisoscope.metrics.convert import check_precision, real_numbers

ENDING = threading.Lock()  # lets passes of several threads end in turn


class RowDraw(NamedTuple):
    """Rows taken from a pass, and the slots that they fill."""

    lead: tuple[int, ...]  # (B, T), or (B,), of the pass
    rows_M: np.ndarray
    slots_M: np.ndarray
    cluster_M: np.ndarray  # number of the sequence, counted over all passes
    position_M: np.ndarray  # position in the sequence, without padding
    offered: int
    sequences: int
    before: int  # rows offered before this pass


class Reservoir:
    """The sample of hook points of one width, at the same positions."""

    def __init__(self, size: int, rng: np.random.Generator):
        self.size, self.rng, self.offered, self.sequences = size, rng, 0, 0
        self.names: list[str] = []  # names of the N hook points, after the first pass
        self.x_NSD = np.zeros((0, size, 0), np.float32)
        self.cluster_S, self.position_S = np.zeros(size, np.int64), np.zeros(size, np.int64)

    def draw(
        self,
        lead: tuple[int, ...],
        mask: np.ndarray | None = None,
        position_ids: np.ndarray | None = None,
    ) -> RowDraw:
        """Draw rows of a pass of shape `lead`: (sequences, tokens) or (sequences,).

        Algorithm R (Vitter 1985): row t, from 0, takes slot floor(u (t + 1)) if that slot exists.
        Where several rows take one slot, the last row keeps it, as if rows came one by one. `mask`
        is False at padding. Another sequence begins where `position_ids` do not rise.
        """
        count = int(np.prod(lead))
        rows_M = np.arange(count) if mask is None else np.flatnonzero(mask)
        row_M = rows_M // (lead[1] if len(lead) > 1 else 1)
        begins_M = np.diff(row_M, prepend=-1) != 0
        if position_ids is not None:
            begins_M[1:] |= np.diff(position_ids.ravel()[rows_M]) <= 0
        cluster_M = begins_M.cumsum() - 1
        order_M = np.arange(len(rows_M))
        position_M = order_M - np.maximum.accumulate(np.where(begins_M, order_M, 0))

        number_M = self.offered + order_M
        random_M = (self.rng.random(len(rows_M)) * (number_M + 1)).astype(np.int64)
        slot_M = np.where(number_M < self.size, number_M, random_M)
        taken = np.flatnonzero(slot_M < self.size)[::-1]
        slots_M, first = np.unique(slot_M[taken], return_index=True)
        kept = taken[first]
        cluster_M, counts = self.sequences + cluster_M[kept], (len(rows_M), int(begins_M.sum()))
        return RowDraw(
            lead, rows_M[kept], slots_M, cluster_M, position_M[kept], *counts, self.offered
        )

    def keep(self, draw: RowDraw, rows: dict[str, np.ndarray]) -> None:
        """Keep the rows of a pass that has ended.

        ValueError, and nothing is kept, where it has another width or interleaves another pass.
        """
        known = {self.x_NSD.shape[2]} if self.names else set()
        if len(widths := known | {row_MD.shape[1] for row_MD in rows.values()}) > 1:
            raise ValueError(
                f"hook points have the widths {sorted(widths)}; record each width separately"
            )
        if draw.before != self.offered:
            raise ValueError("another pass ended while this pass ran; record one thread at a time")
        if not self.names:
            self.names, width = [*rows], next(iter(rows.values())).shape[1]
            self.x_NSD = np.zeros((len(rows), self.size, width), np.float32)
        for n, name in enumerate(self.names):
            self.x_NSD[n, draw.slots_M] = rows[name]
        self.cluster_S[draw.slots_M] = draw.cluster_M
        self.position_S[draw.slots_M] = draw.position_M
        self.offered += draw.offered
        self.sequences += draw.sequences

    @property
    def order_S(self) -> np.ndarray:
        """The filled slots, sequence by sequence."""
        filled = min(self.offered, self.size)
        return np.lexsort((self.position_S[:filled], self.cluster_S[:filled]))


class Sequences(NamedTuple):
    """The sequences that a hook point reads: (batch, tokens) or (batch,), and what is known of them.

    `source` identifies where they come from, such as an encoder or a decoder.
    """

    lead: tuple[int, ...]
    mask: np.ndarray | None = None  # False at padding
    position_ids: np.ndarray | None = None
    source: Any = None

    def is_same(self, other: Sequences) -> bool:
        """Whether vectors at the same place belong to the same token."""
        pairs = zip(self[1:3], other[1:3], strict=True)
        return (self.lead, self.source) == (other.lead, other.source) and all(
            a is b or (a is not None and b is not None and np.array_equal(a, b)) for a, b in pairs
        )


class Pass:
    """The rows of one pass; a pass that is aborted or does not fit leaves nothing.

    `hook_points` are those that must run; None: those of the first pass.
    """

    def __init__(self, reservoir: Reservoir, hook_points: Iterable[str] | None = None):
        self.reservoir, self.hook_points = reservoir, hook_points
        self.shared: tuple[str, Sequences, RowDraw] | None = None  # of the first hook point
        self.rows: dict[str, Any] = {}

    def draw(self, name: str, sequences: Sequences) -> RowDraw:
        """Draw rows for a hook point, the same for all; ValueError where it has others."""
        if name in self.rows:
            raise ValueError(
                f"hook point {name} runs more than once in a pass; name modules that run once"
            )
        if self.shared is None:
            self.shared = name, sequences, self.reservoir.draw(*sequences[:3])
        first, own, draw = self.shared
        if own.lead != sequences.lead:
            shapes = f"{own.lead} and {sequences.lead} vectors"
            raise ValueError(
                f"hook points {first} and {name} have {shapes}; record them separately"
            )
        if not own.is_same(sequences):
            what = f"hook points {first} and {name} read other sequences, or other padding"
            raise ValueError(f"{what}; record them separately")
        return draw

    def end(self) -> None:
        """Keep the pass; ValueError where a hook point did not run, or does not fit."""
        expected = self.hook_points or self.reservoir.names or self.rows
        if different := sorted({*expected} ^ self.rows.keys()):
            where = "this pass" if different[0] in expected else "the first pass"
            what = f"hook point {different[0]} did not run in {where}"
            raise ValueError(f"{what}; leave it out, or record before the model is compiled")
        rows = {name: as_numpy(self.rows[name], name) for name in expected}
        for name, row_MD in rows.items():
            if not np.isfinite(row_MD).all():
                raise ValueError(f"hook point {name} has numbers that are not finite in float32")
        with ENDING:
            if self.shared is not None:
                self.reservoir.keep(self.shared[2], rows)


def check_mask(name: str, lead: tuple[int, ...], mask: Any) -> None:
    """Raise ValueError unless a mask has one number for each vector, or fits one per sequence."""
    shape = tuple(mask.shape)
    if shape != lead and not (len(lead) == 1 and len(shape) == 2 and shape[:1] == lead):
        raise ValueError(
            f"mask has shape {shape}, hook point {name} has vectors {lead}; "
            "pass one number per vector, 0 at padding and 1 elsewhere"
        )


def as_booleans(mask: Any) -> np.ndarray:
    """Convert a mask of 0 and 1 to booleans; ValueError where it has other values."""
    if isinstance(mask, np.ma.MaskedArray):
        raise ValueError("mask is a masked array; fill it: 0 at padding and 1 elsewhere")
    mask = mask.detach().float().cpu().numpy() if hasattr(mask, "detach") else np.asarray(mask)
    other = mask[~np.isin(mask, (0, 1))]
    if other.size:
        raise ValueError(f"mask holds {other[0]}; pass 0 at padding and 1 elsewhere")
    return mask.astype(bool)


def take_rows(x: Any, rows_M: np.ndarray, name: str) -> np.ndarray:
    """Take rows of (batch, tokens, width) on the accelerator, in few programs for any number."""
    if isinstance(x, np.ndarray) or not hasattr(x, "devices"):
        x = x if hasattr(x, "detach") else np.asanyarray(x)
        return as_numpy(x.reshape(-1, x.shape[-1])[rows_M], name)
    if x.is_deleted():
        raise ValueError(f"{name} was deleted, as donated arrays are; add it before that step")
    padded = np.zeros(1 << max(len(rows_M) - 1, 0).bit_length(), np.int64)
    padded[: len(rows_M)] = rows_M
    return as_numpy(np.asarray(x.reshape(-1, x.shape[-1])[padded])[: len(rows_M)], name)


def as_numpy(x: Any, name: str) -> np.ndarray:
    """Convert rows of any library to float32; ValueError where that would lose their differences."""
    if hasattr(x, "detach") and str(x.dtype) == "torch.float32" and not x.is_meta:
        try:
            x = x.detach().cpu().numpy()
        except RuntimeError:  # a tensor without storage
            advice = "call the model outside of torch.func's transforms"
            raise ValueError(f"{name} has no values to read; {advice}") from None
    if type(x) is not np.ndarray or x.dtype != np.float32:
        x = real_numbers(x, name)
        check_precision(x, name)
    return x.astype(np.float32)
