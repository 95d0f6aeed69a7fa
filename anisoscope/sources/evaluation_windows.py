"""Draw the validation windows to measure, and the positions that make up each cloud.

Letters: G batches of windows, S sets of positions, M positions of a fold, Z inputs of a batch: its
windows, and shuffled ones.
"""

from typing import NamedTuple

import numpy as np

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.data import unigrams
from anisoscope.metrics import frequency
from anisoscope.metrics.resampling import Types
from anisoscope.utils.errors import SettingError

POSITION_SETS = ("all", "without_first_token")  # every quantity is measured on both
WITHOUT_MASSIVE = "without_massive"  # the last set, on request: measure.without_massive


class Probe(NamedTuple):
    """G batches of W windows of T characters, with P picked positions for each of S position sets.

    Windows and picks come in J folds of equal size, one after another. Picks of fold j lie in
    windows of fold j, so leaving out P/J consecutive points leaves out whole windows.
    """

    tokens_GWT: np.ndarray  # int32
    # the characters of a batch in random order: the null model of text without structure
    shuffled_GWT: np.ndarray
    picks_SGP: np.ndarray  # int32, indices into the W*T positions of a batch; S as in POSITION_SETS
    # types at all positions, (G, input, …): of the text, then of the shuffled text
    types: Types | None = None
    # int32, the token to predict at each position, -1: none; None: the next token of the window
    target_GZWT: np.ndarray | None = None
    # int32, the positions of each fold in the random order in which they are picked
    order_GJM: np.ndarray | None = None


def add_massive_set(sets: tuple[str, ...], measure: MeasureConfig) -> tuple[str, ...]:
    """Add the set without massive vectors to these sets of positions where it is measured."""
    return (*sets, WITHOUT_MASSIVE) if measure.without_massive else sets


def make_probe(
    valid_tokens_N: np.ndarray,
    context: int,
    points: int,
    batches: int,
    folds: int,
    seed: int,
    have: str = "",
    advice: str = "model.context, or take a longer text",
) -> Probe:
    """Draw aligned windows without replacement, and positions of each fold without replacement.

    A fold has the least number w of windows with w (T - 1) >= P/J, so that the first token can be
    left out. Both position sets take the first P/J positions that they allow from one shuffle:
    they differ only by first tokens and their replacements. `have` and `advice` are parts of the
    UserError where windows are too few.
    """
    share = points // folds
    # windows of a fold whose positions, without the first ones, hold `share` points
    windows = folds * -(-share // (context - 1))
    available = len(valid_tokens_N) // context
    if available < batches * windows:
        text = f"the validation split has {len(valid_tokens_N)} characters"
        names = "measure.points", "measure.batches"
        most = available // folds * (context - 1) * folds
        fits = f"; measure.points={min(most, points)} x measure.batches=1 fits" if most else ""
        raise SettingError(
            f"{have or f'{text}, {available} windows of {context}'}; measure.points={points} x "
            f"measure.batches={batches} in {folds} folds needs {batches * windows}: lower "
            f"measure.points, measure.batches or {advice}{fits}",
            *names,
        )
    rng = np.random.default_rng(seed)
    starts_GW = rng.permutation(available)[: batches * windows].reshape(batches, windows) * context
    tokens_GWT = valid_tokens_N[starts_GW[:, :, None] + np.arange(context)].astype(np.int32)
    picks_SGP = np.empty((len(POSITION_SETS), batches, points), np.int32)
    positions = windows // folds * context  # positions of a fold
    order_GJM = np.empty((batches, folds, positions), np.int32)
    for batch in range(batches):
        for fold in range(folds):
            shuffled = rng.permutation(positions)
            order_GJM[batch, fold] = fold * positions + shuffled
            chosen = slice(fold * share, (fold + 1) * share)
            for number, allowed in enumerate((shuffled, shuffled[shuffled % context != 0])):
                picks_SGP[number, batch, chosen] = fold * positions + allowed[:share]
    shuffled_GN = rng.permuted(tokens_GWT.reshape(batches, -1), axis=1)
    shuffled_GWT = shuffled_GN.reshape(tokens_GWT.shape)
    return Probe(tokens_GWT, shuffled_GWT, picks_SGP, order_GJM=order_GJM)


def add_types(probe: Probe, train_tokens_N: np.ndarray, vocab_size: int) -> Probe:
    """Add the type at every position, and its frequency in the training split."""
    tokens_GZWT = np.stack([probe.tokens_GWT, probe.shuffled_GWT], axis=1)
    types, log_frequencies, bins = [], [], []
    for length in frequency.LENGTHS:
        log_frequency_C = unigrams.log_frequency(train_tokens_N, length, vocab_size)
        type_GZWT = unigrams.types(tokens_GZWT, length, vocab_size)
        type_GZP = type_GZWT.reshape(*tokens_GZWT.shape[:2], -1)
        types.append(type_GZP)
        known = type_GZP != unigrams.NONE
        log_frequencies.append(np.where(known, log_frequency_C[type_GZP], -np.inf))
        bins.append(unigrams.bins(log_frequency_C)[type_GZP] if length == 1 else None)
    type_GZLP, log_GZLP = (np.stack(arrays, axis=2) for arrays in (types, log_frequencies))
    return probe._replace(types=Types(type_GZLP, log_GZLP.astype(np.float32), bins[0]))
