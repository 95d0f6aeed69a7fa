"""Pieces of a text that two models read, and the points that both have there: where a token of each
ends.

There a vector of one and a vector of the other stand after the same characters, whatever the
tokenizers are. A is the positions of the first model in a piece, M the points of a batch, P those
picked.

Letters: S sets of positions.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.null_models import PERMUTATIONS
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.utils.errors import UserError

SPACE = "Ġ"  # as byte-level tokenizers write it
FAR = 10**9  # positions: more than any two are apart
# of a piece, for every position the byte after its token; 0: a token of no text
Ends = Callable[[bytes], np.ndarray]


class CommonPoints(NamedTuple):
    """The points of one batch."""

    pieces: list[bytes]
    piece_M: np.ndarray
    places_2M: np.ndarray  # positions in the piece, of the first model and of the second
    picks_SP: np.ndarray  # of M, by set of positions
    others_KM: np.ndarray  # the null model: the point of another piece that stands beside each


def draw_chunks(valid: bytes, length: int, seed: int) -> Iterator[bytes]:
    """Pieces of so many bytes that do not overlap, in random order; those that cut a character in
    two are left out.
    """
    starts = np.random.default_rng(seed).permutation(len(valid) // length) * length
    for start in starts.tolist():
        piece = valid[start : start + length]
        try:
            piece.decode()
        except UnicodeDecodeError:
            continue
        yield piece


def common_points(
    pieces: Iterator[bytes], ends: tuple[Ends, Ends], measure: MeasureConfig, batch: int
) -> CommonPoints:
    """Points in folds of equal size, one after another, of whole pieces; as many pieces as they
    need.

    `without_first` leaves out where either model stands at its position 0. UserError where the text
    is too short.
    """
    rng = np.random.default_rng((measure.seed, batch))
    share = measure.points // measure.folds
    taken, rows, picks = [], [], [[] for _ in POSITION_SETS]
    for _ in range(measure.folds):
        before, fold = sum(len(one) for one in rows), []
        while _without_first(fold) < share or len(taken) < 2:
            piece = next(pieces, None)
            if piece is None:
                raise UserError(
                    f"--similarity: the pieces of the text have too few places where tokens of both models end for "
                    f"{measure.batches} × {measure.points} points; take a longer text, or fewer measure.points"
                )
            places_M2 = shared_ends(ends[0](piece), ends[1](piece))
            fold.append(np.column_stack([np.full(len(places_M2), len(taken)), places_M2]))
            taken.append(piece)
        rows += fold
        rows_M3 = np.concatenate(fold)
        order = rng.permutation(len(rows_M3))
        for chosen, allowed in zip(
            picks, (order, order[(rows_M3[order, 1:] > 0).all(1)]), strict=True
        ):
            chosen.append(before + allowed[:share])
    rows_M3 = np.concatenate(rows)
    picks_SP = np.stack([np.concatenate(one) for one in picks])
    others_KM = np.stack(
        [
            points_elsewhere(rows_M3[:, 0], rows_M3[:, 1], rng, number)
            for number in range(PERMUTATIONS)
        ]
    )
    return CommonPoints(taken, rows_M3[:, 0], rows_M3[:, 1:].T, picks_SP, others_KM)


def _without_first(fold: list[np.ndarray]) -> int:
    return sum(int((rows_M3[:, 1:] > 0).all(1).sum()) for rows_M3 in fold)


def token_ends(text: str, offsets: list[tuple[int, int]], names: list[str]) -> np.ndarray:
    """The byte after each token, 0 where that is not known: a token of no text (a special one), one
    that ends inside of the next (a part of a character, a sign for a space that is still to come),
    and one that ends with a space, which byte-level tokenizers leave out of what they tell.
    """
    after_C = np.cumsum([0, *(len(character.encode()) for character in text)])
    ends, following = [], len(text)
    for (start, end), name in zip(reversed(offsets), reversed(names), strict=True):
        known = start < end <= following and not name.endswith(SPACE)
        ends.append(after_C[end] if known else 0)
        following = start if start < end else following
    return np.array(ends[::-1])


def shared_ends(first_A: np.ndarray, second_B: np.ndarray) -> np.ndarray:
    """Positions (M, 2) of the two whose tokens end at the same byte; of several that end there the
    last.
    """
    last = [
        {int(end): place for place, end in enumerate(ends) if end} for ends in (first_A, second_B)
    ]
    both = sorted(last[0].keys() & last[1].keys())
    return np.array([[places[end] for places in last] for end in both], np.int64).reshape(-1, 2)


def points_elsewhere(
    piece_M: np.ndarray, place_M: np.ndarray, rng: np.random.Generator, number: int
) -> np.ndarray:
    """For every point one of another piece, at the position of the first model that is nearest to
    its own.

    Position 0 has its like, and no other: its vector may be a massive one.

    The pieces stand in a circle in random order, and each is replaced by that `number` + 1 places
    on (as panel/nulls).
    """
    count = int(piece_M.max()) + 1
    order = rng.permutation(count)
    by = np.empty(count, int)
    by[order] = np.roll(order, -1 - number % (count - 1))
    of_piece = [np.flatnonzero(piece_M == piece) for piece in range(count)]
    other_M = np.empty(len(piece_M), int)
    for here, there in zip(of_piece, (of_piece[other] for other in by), strict=True):
        if not len(there):  # a piece without a point: any other that has one
            there = np.flatnonzero(piece_M != piece_M[here[0]]) if len(here) else there
        if len(here):
            apart = np.abs(place_M[there][None] - place_M[here][:, None])
            unlike = (place_M[there] == 0)[None] != (place_M[here] == 0)[:, None]
            other_M[here] = there[(apart + FAR * unlike).argmin(1)]
    return other_M
