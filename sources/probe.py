"""Which validation windows are measured, and which of their positions make up a cloud."""

from typing import NamedTuple

import numpy as np

from workdir.errors import UserError

POSITION_SETS = ("all", "without_first")  # each number is read twice: with and without position 0


class Probe(NamedTuple):
    """G batches of W windows of T characters, and P picked positions for each of the S position sets.

    Windows and picks come in J groups of equal size, one after another: picks of group j lie in windows of group j,
    so that leaving out P/J points in a row leaves out whole windows.
    """

    tokens_GWT: np.ndarray  # int32
    shuffled_GWT: np.ndarray  # the characters of a batch in random order: the null model of meaningless input
    picks_SGP: np.ndarray  # int32, indices into the W*T positions of a batch; S as in POSITION_SETS


def make_probe(valid_tokens_N: np.ndarray, context: int, points: int, batches: int, groups: int, seed: int) -> Probe:
    """Aligned windows drawn without replacement that do not overlap, and positions drawn without replacement per group.

    A group has the least number of windows w with w (T - 1) >= P/J, so that position 0 can be left out. Both position
    sets take the first P/J positions that they allow from one shuffle: they differ in position 0, and in little else.
    """
    share = points // groups
    windows = groups * windows_of_group(share, context)
    available = len(valid_tokens_N) // context
    if available < batches * windows:
        raise UserError(_too_few(len(valid_tokens_N), available, windows, context, points, batches, groups))
    rng = np.random.default_rng(seed)
    starts_GW = rng.permutation(available)[: batches * windows].reshape(batches, windows) * context
    tokens_GWT = valid_tokens_N[starts_GW[:, :, None] + np.arange(context)].astype(np.int32)
    picks_SGP = np.empty((len(POSITION_SETS), batches, points), np.int32)
    positions = windows // groups * context  # of one group
    for batch in range(batches):
        for group in range(groups):
            shuffled = rng.permutation(positions)
            chosen = slice(group * share, (group + 1) * share)
            picks_SGP[0, batch, chosen] = group * positions + shuffled[:share]
            picks_SGP[1, batch, chosen] = group * positions + shuffled[shuffled % context != 0][:share]
    shuffled_GWT = rng.permuted(tokens_GWT.reshape(batches, -1), axis=1).reshape(tokens_GWT.shape)
    return Probe(tokens_GWT, shuffled_GWT, picks_SGP)


def windows_of_group(share: int, context: int) -> int:
    """Windows that hold so many positions without their first ones."""
    return -(-share // (context - 1))


def _too_few(
    characters: int, available: int, windows: int, context: int, points: int, batches: int, groups: int
) -> str:
    """What is missing and what to lower to what; at least 8 points are wanted of a cloud."""
    have = f"the validation split has {characters} characters, {available} windows of {context}"
    need = f"measure.points={points} x measure.batches={batches} in {groups} groups needs {batches * windows}"
    remedies = []
    for fewer, coarser in ((batches, groups), (1, groups), (1, 1)):
        most = min(points, available // fewer // coarser * (context - 1) * coarser)
        if most >= 8 and not remedies:
            lowered = [f"measure.points to {most}"] * (most < points)
            lowered += ["measure.batches to 1"] * (fewer < batches) + ["measure.groups to 1"] * (coarser < groups)
            remedies.append(" and ".join(lowered))
    if available >= windows:
        remedies.append(f"measure.batches to {available // windows}")
    return f"{have}; {need}: lower {' or '.join(remedies) if remedies else 'model.context, or take a longer text'}"
