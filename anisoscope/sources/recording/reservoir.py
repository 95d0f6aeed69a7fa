"""Sample rows from a stream of passes: every row offered is kept with the same probability.

Several hook points have rows at the same positions, so the positions are drawn once. Letters: M
rows of a pass, or the taken rows; S slots.
"""

from typing import NamedTuple

import numpy as np


class Draw(NamedTuple):
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
    """The sample of hook points whose vectors lie at the same positions."""

    def __init__(self, size: int, rng: np.random.Generator):
        self.size, self.rng, self.offered, self.sequences = size, rng, 0, 0
        self.x_SD: dict[str, np.ndarray] = {}  # rows by hook point
        self.cluster_S, self.position_S = np.zeros(size, np.int64), np.zeros(size, np.int64)

    def draw(
        self,
        lead: tuple[int, ...],
        mask: np.ndarray | None = None,
        position_ids: np.ndarray | None = None,
    ) -> Draw:
        """Draw rows of a pass of shape `lead`: (sequences, tokens) or (sequences,).

        Algorithm R (Vitter 1985): row t, from 0, takes slot floor(u (t + 1)) if that slot exists.
        Where several rows take one slot, the last row keeps it, as if rows came one by one.

        Args:
            lead: (B, T) or (B,).
            mask: booleans of shape `lead`, False at padding.
            position_ids: whole numbers of shape `lead`. Where they do not rise from a token to the
                next in its row, another sequence begins.
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
        return Draw(
            lead,
            rows_M[kept],
            slots_M,
            self.sequences + cluster_M[kept],
            position_M[kept],
            offered=len(rows_M),
            sequences=int(begins_M.sum()),
            before=self.offered,
        )

    def check(self, draw: Draw, rows: dict[str, np.ndarray]) -> None:
        """Raise ValueError where a pass cannot be kept: another width, or an interleaved pass."""
        for name, row_MD in rows.items():
            width = self.x_SD[name].shape[1] if name in self.x_SD else row_MD.shape[1]
            if width != row_MD.shape[1]:
                raise ValueError(
                    f"hook point {name} has width {row_MD.shape[1]}, and had {width} before; record it "
                    "separately"
                )
        if draw.before != self.offered:
            raise ValueError("another pass ended while this pass ran; record one thread at a time")

    def keep(self, draw: Draw, rows: dict[str, np.ndarray]) -> None:
        """Keep the rows of a pass that has ended."""
        for name, row_MD in rows.items():
            if name not in self.x_SD:
                self.x_SD[name] = np.zeros((self.size, row_MD.shape[1]), np.float32)
            self.x_SD[name][draw.slots_M] = row_MD
        self.cluster_S[draw.slots_M] = draw.cluster_M
        self.position_S[draw.slots_M] = draw.position_M
        self.offered += draw.offered
        self.sequences += draw.sequences

    @property
    def order_S(self) -> np.ndarray:
        """The filled slots, sequence by sequence."""
        filled = min(self.offered, self.size)
        return np.lexsort((self.position_S[:filled], self.cluster_S[:filled]))
