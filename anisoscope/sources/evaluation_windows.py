"""Draw the validation windows to measure, and the positions that make up each cloud.

Letters: G batches of windows, S sets of positions, Z inputs of a batch: its windows, and shuffled
ones.
"""

from typing import NamedTuple

import numpy as np

from anisoscope.data import unigrams
from anisoscope.measurement.resampling import Types
from anisoscope.utils.errors import UserError

POSITION_SETS = ("all", "without_first_token")  # every quantity is measured on both
OFFERED = {"none": 1, "types": 4}  # multiple of the windows needed, by weighting


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


def make_probe(
    valid_tokens_N: np.ndarray,
    context: int,
    points: int,
    batches: int,
    folds: int,
    seed: int,
    weighting: str = "none",
    have: str = "",
    advice: str = "model.context, or take a longer text",
) -> Probe:
    """Draw aligned windows without replacement, and positions of each fold without replacement.

    A fold has the least number w of windows with w (T - 1) >= P/J, so that the first token can be
    left out. Both position sets take the first P/J positions that they allow from one shuffle. With
    weighting "types" a fold has 4 times as many windows, and `choose_evenly` takes its positions;
    the shuffled text keeps the characters at the positions of each set, in another order. `have`
    and `advice` are parts of the UserError where windows are too few.
    """
    share = points // folds
    # windows of a fold whose positions, without the first ones, hold `share` points
    windows = folds * -(-share // (context - 1)) * OFFERED[weighting]
    available = len(valid_tokens_N) // context
    if available < batches * windows:
        weighted = f" with measure.weighting={weighting}" * (weighting != "none")
        text = f"the validation split has {len(valid_tokens_N)} characters"
        raise UserError(
            f"{have or f'{text}, {available} windows of {context}'}; measure.points={points} x "
            f"measure.batches={batches} in {folds} folds needs {batches * windows}{weighted}: lower "
            f"measure.points, measure.batches or {advice}"
        )
    rng = np.random.default_rng(seed)
    starts_GW = rng.permutation(available)[: batches * windows].reshape(batches, windows) * context
    tokens_GWT = valid_tokens_N[starts_GW[:, :, None] + np.arange(context)].astype(np.int32)
    picks_SGP = np.empty((len(POSITION_SETS), batches, points), np.int32)
    positions = windows // folds * context  # positions of a fold
    for batch in range(batches):
        for fold in range(folds):
            shuffled = rng.permutation(positions)
            chosen = slice(fold * share, (fold + 1) * share)
            for number, allowed in enumerate((shuffled, shuffled[shuffled % context != 0])):
                if weighting == "types":
                    tokens_N = tokens_GWT[batch].reshape(folds, -1)[fold, allowed]
                    allowed = allowed[choose_evenly(tokens_N, share)]
                picks_SGP[number, batch, chosen] = fold * positions + allowed[:share]
    if weighting == "types":
        shuffled_GWT = _shuffle_within_sets(tokens_GWT, picks_SGP, rng)
    else:
        shuffled_GN = rng.permuted(tokens_GWT.reshape(batches, -1), axis=1)
        shuffled_GWT = shuffled_GN.reshape(tokens_GWT.shape)
    return Probe(tokens_GWT, shuffled_GWT, picks_SGP)


def choose_evenly(type_N: np.ndarray, count: int) -> np.ndarray:
    """Choose `count` places in order: the first of each type, then the second of each, and so on.

    No type gets two places more than another type that still has places left.
    """
    by_type_N = np.argsort(type_N, kind="stable")
    sorted_N, before_N = type_N[by_type_N], np.empty(len(type_N), np.int64)
    before_N[by_type_N] = np.arange(len(type_N)) - np.searchsorted(sorted_N, sorted_N)
    return np.sort(np.argsort(before_N, kind="stable")[:count])


def _shuffle_within_sets(
    tokens_GWT: np.ndarray, picks_SGP: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Shuffle the characters of each batch within groups of equal set membership.

    The groups are the positions picked by both sets, by one set, and by no set.
    """
    shuffled_GN = tokens_GWT.reshape(len(tokens_GWT), -1).copy()
    for batch, tokens_N in enumerate(shuffled_GN):
        picked_N = np.zeros(tokens_N.size, np.int32)
        for number, picks_P in enumerate(picks_SGP[:, batch]):
            picked_N[picks_P] += 2**number
        for kind in np.unique(picked_N):
            tokens_N[picked_N == kind] = rng.permutation(tokens_N[picked_N == kind])
    return shuffled_GN.reshape(tokens_GWT.shape)


def describe_evenness(probe: Probe) -> str:
    """Describe how evenly characters weigh at the points, and at all positions."""
    tokens_GN = probe.tokens_GWT.reshape(len(probe.tokens_GWT), -1)
    parts = []
    for tokens in (np.take_along_axis(tokens_GN, probe.picks_SGP[0], axis=1), tokens_GN):
        counts = np.unique(tokens, return_counts=True)[1]
        share = counts / counts.sum()
        effective = np.exp(-(share * np.log(share)).sum())
        parts.append(
            f"{len(counts)} characters weigh as {effective:.1f} equal ones, the most frequent {share.max():.1%}"
        )
    return f"at the points {parts[0]}; in the text {parts[1]}"


def add_types(probe: Probe, train_tokens_N: np.ndarray, vocab_size: int) -> Probe:
    """Add the type at every position, and its frequency in the training split."""
    tokens_GZWT = np.stack([probe.tokens_GWT, probe.shuffled_GWT], axis=1)
    types, log_frequencies, bins = [], [], []
    for length in unigrams.LENGTHS:
        log_frequency_C = unigrams.log_frequency(train_tokens_N, length, vocab_size)
        type_GZWT = unigrams.types(tokens_GZWT, length, vocab_size)
        type_GZP = type_GZWT.reshape(*tokens_GZWT.shape[:2], -1)
        types.append(type_GZP)
        known = type_GZP != unigrams.NONE
        log_frequencies.append(np.where(known, log_frequency_C[type_GZP], -np.inf))
        bins.append(unigrams.bins(log_frequency_C)[type_GZP] if length == 1 else None)
    type_GZLP, log_GZLP = (np.stack(arrays, axis=2) for arrays in (types, log_frequencies))
    return probe._replace(types=Types(type_GZLP, log_GZLP.astype(np.float32), bins[0]))
