"""A fair sample of rows that come a pass at a time: each row ever offered is kept with the same probability.

The rows of a pass at several hook points are the same positions, so they are drawn once. Letters: M rows of a pass, or
those of them that are taken; S slots.
"""

from typing import NamedTuple

import numpy as np


class Drawn(NamedTuple):
    """What is taken of a pass: rows of its (B, T), or (B,), and the slots that they go to."""

    lead: tuple[int, ...]
    rows_M: np.ndarray
    slots_M: np.ndarray
    cluster_M: np.ndarray  # which sequence, of all that were ever seen
    position_M: np.ndarray  # the place in it, padding not counted
    offered: int


class Reservoir:
    """Of hook points whose vectors stand at the same positions."""

    def __init__(self, size: int, rng: np.random.Generator):
        self.size, self.rng, self.seen, self.sequences = size, rng, 0, 0
        self.made: dict[str, np.ndarray] = {}
        self.cluster_S, self.position_S = np.zeros(size, np.int64), np.zeros(size, np.int64)

    def draw(self, lead: tuple[int, ...], mask: np.ndarray | None) -> Drawn:
        """Algorithm R (Vitter 1985) for all rows of a pass: row t, from 0, takes slot floor(u (t + 1)) if it is one.

        Of several rows for one slot the last has it, as if they came one by one.
        """
        time_M = np.arange(np.prod(lead, dtype=int)) % lead[1] if len(lead) > 1 else np.zeros(lead[0], int)
        rows_M = np.arange(len(time_M))
        if mask is not None and mask.shape == lead:
            rows_M, time_M = np.flatnonzero(mask), np.maximum(mask.cumsum(1) - 1, 0).ravel()
        number_M = self.seen + np.arange(len(rows_M))
        slot_M = np.where(
            number_M < self.size, number_M, (self.rng.random(len(rows_M)) * (number_M + 1)).astype(np.int64)
        )
        taken = np.flatnonzero(slot_M < self.size)[::-1]
        slots_M, first = np.unique(slot_M[taken], return_index=True)
        kept_M = rows_M[taken[first]]
        sequence_M = kept_M // lead[1] if len(lead) > 1 else kept_M
        return Drawn(lead, kept_M, slots_M, self.sequences + sequence_M, time_M[kept_M], len(rows_M))

    def keep(self, drawn: Drawn, rows: dict[str, np.ndarray]) -> None:
        """Of a pass that has ended; ValueError where a hook point gives another width than before."""
        for name, row_MD in rows.items():
            made = self.made.setdefault(name, np.zeros((self.size, row_MD.shape[1]), np.float32))
            if made.shape[1] != row_MD.shape[1]:
                raise ValueError(f"hook point {name} gives width {row_MD.shape[1]}, and gave {made.shape[1]} before")
        for name, row_MD in rows.items():
            self.made[name][drawn.slots_M] = row_MD
        self.cluster_S[drawn.slots_M], self.position_S[drawn.slots_M] = drawn.cluster_M, drawn.position_M
        self.seen += drawn.offered
        self.sequences += drawn.lead[0]

    @property
    def order_S(self) -> np.ndarray:
        """The slots that are filled, sequence by sequence."""
        filled = min(self.seen, self.size)
        return np.lexsort((self.position_S[:filled], self.cluster_S[:filled]))
