"""What of vectors is worth a second look: rows of zeros, columns that never change, copies, and
distances that tie.

Values are as defined all the same: a vector of zeros has no direction and is left out of cosines, a
copy is the nearest neighbour. Whoever measures is told how many there are.
"""

import jax
import numpy as np

from anisoscope.metrics import copies

DEGENERATE = "degenerate"  # an attribute of tables
# whole numbers in a row: where vectors have no others, as of int8 or of bits, many distances are
# equal
FEW = 256


find_copies = jax.jit(copies.copies)


class Seen:
    """Counts of one layer, of which pieces come one after another; copies are counted within a
    piece.
    """

    def __init__(self) -> None:
        self.zeros, self.copies, self.rounded, self.whole = 0, 0, 0, True
        self.low_D, self.high_D = np.inf, -np.inf

    def add(self, cloud_PD: np.ndarray) -> None:
        self.zeros += int((~cloud_PD.any(axis=1)).sum())
        matches = find_copies(cloud_PD)
        distinct, different = (
            len(np.unique(of_P)) for of_P in (matches.original_P, matches.equal_P)
        )
        self.copies += len(cloud_PD) - distinct
        self.rounded += different - distinct
        self.low_D = np.minimum(self.low_D, cloud_PD.min(axis=0))
        self.high_D = np.maximum(self.high_D, cloud_PD.max(axis=0))
        self.whole = self.whole and all((np.rint(x_D) == x_D).all() for x_D in cloud_PD)

    def words(self) -> str:
        constant = int((self.low_D == self.high_D).sum())
        counts = (
            (self.zeros, "zero row"),
            (constant, "constant column"),
            (self.copies, "duplicate"),
        )
        but = f" ({self.rounded:,} but for rounding)" if self.rounded else ""
        parts = [f"{count:,} {name}{'s' * (count > 1)}" for count, name in counts if count]
        parts[-1:] = [parts[-1] + but] if parts else []
        low, high = np.min(self.low_D), np.max(self.high_D)
        if self.whole and low < high < low + FEW:
            parts.append(f"whole numbers from {low:.0f} to {high:.0f} alone (many distances tie)")
        return ", ".join(parts)


def counts_in_words(seen: list[Seen]) -> dict[str, str]:
    """An attribute that says it of all layers, those with the same counts together; none where
    there is nothing.
    """
    layers: dict[str, list[int]] = {}
    for number, one in enumerate(seen):
        if words := one.words():
            layers.setdefault(words, []).append(number)
    parts = [
        f"{words} in layer{'s' * (len(some) > 1)} {', '.join(map(str, some))}"
        for words, some in layers.items()
    ]
    return {DEGENERATE: "; ".join(parts)} if parts else {}
