"""Which validation windows are measured, and which of their positions make up a cloud."""

from typing import NamedTuple

import numpy as np

from errors import UserError

POSITION_SETS = ("all", "without_first")  # each number is read twice: with and without position 0


class Probe(NamedTuple):
    """G batches of W windows of T characters, and P picked positions for each of the S position sets."""

    tokens_GWT: np.ndarray  # int32
    picks_SGP: np.ndarray  # int32, indices into the W*T positions of a batch; S as in POSITION_SETS


def make_probe(valid_tokens_N: np.ndarray, context: int, points: int, batches: int, seed: int) -> Probe:
    """Aligned, non-overlapping windows drawn without replacement, and shuffled positions drawn without replacement.

    W is the least number of windows with W (T - 1) >= points, so that position 0 can be left out. Both position sets
    take the first `points` that they allow from one shuffle: they differ in position 0, and in little else.
    """
    windows = -(-points // (context - 1))
    available = len(valid_tokens_N) // context
    if available < batches * windows:
        raise UserError(_too_few(len(valid_tokens_N), available, windows, context, points, batches))
    rng = np.random.default_rng(seed)
    starts_GW = rng.permutation(available)[: batches * windows].reshape(batches, windows) * context
    tokens_GWT = valid_tokens_N[starts_GW[:, :, None] + np.arange(context)]
    picks_SGP = np.empty((len(POSITION_SETS), batches, points), np.int32)
    for batch in range(batches):
        shuffled = rng.permutation(windows * context)
        picks_SGP[0, batch] = shuffled[:points]
        picks_SGP[1, batch] = shuffled[shuffled % context != 0][:points]
    return Probe(tokens_GWT.astype(np.int32), picks_SGP)


def _too_few(characters: int, available: int, windows: int, context: int, points: int, batches: int) -> str:
    """What is missing and what to lower to what; at least 8 points are wanted of a cloud."""
    have = f"the validation split has {characters} characters, {available} windows of {context}"
    need = f"measure.points={points} x measure.batches={batches} needs {batches * windows}"
    remedies = []
    for fewer in (batches, 1):
        most = min(points, available // fewer * (context - 1))
        if most >= 8 and not remedies:
            remedies.append(f"measure.points to {most}" + (" and measure.batches to 1" if fewer < batches else ""))
    if available >= windows:
        remedies.append(f"measure.batches to {available // windows}")
    return f"{have}; {need}: lower {' or '.join(remedies) if remedies else 'model.context, or take a longer text'}"
