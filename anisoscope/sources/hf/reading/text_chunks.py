"""Chunks of a text that two models read, and their common points: where a token of each ends.

There a vector of each model stands after the same characters, whatever the tokenizers are. A is the
positions of the first model in a chunk, M the points of a batch, P those picked.

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
# of a chunk, for every position the byte after its token; 0: a token of no text
Ends = Callable[[bytes], np.ndarray]


class CommonPoints(NamedTuple):
    """The points of one batch."""

    chunks: list[bytes]
    piece_M: np.ndarray
    places_2M: np.ndarray  # positions in the chunk, of the first model and of the second
    picks_SP: np.ndarray  # of M, by set of positions
    others_KM: np.ndarray  # the null model: the point of another chunk that stands for each


def draw_chunks(valid: bytes, length: int, seed: int) -> Iterator[bytes]:
    """Yield chunks that do not overlap, in random order, and that cut no character in two."""
    starts = np.random.default_rng(seed).permutation(len(valid) // length) * length
    for start in starts.tolist():
        chunk = valid[start : start + length]
        try:
            chunk.decode()
        except UnicodeDecodeError:
            continue
        yield chunk


def common_points(
    chunks: Iterator[bytes], ends: tuple[Ends, Ends], measure: MeasureConfig, batch: int
) -> CommonPoints:
    """Collect points in folds of equal size, of whole chunks, as many as they need.

    `without_first_token` leaves out where either model stands at its first token.

    Raises UserError: the text is too short.
    """
    rng = np.random.default_rng((measure.seed, batch))
    share = measure.points // measure.folds
    used: list[bytes] = []
    folds, picks, before = [], [[] for _ in POSITION_SETS], 0
    for _ in range(measure.folds):
        rows_M3 = np.empty((0, 3), np.int64)  # the number of a chunk, and both positions in it
        while (rows_M3[:, 1:] > 0).all(1).sum() < share or len(used) < 2:
            chunk = next(chunks, None)
            if chunk is None:
                raise UserError(
                    "--similarity: the text has too few places where tokens of both models end for "
                    f"{measure.batches} × {measure.points} points; lower measure.points"
                )
            places_M2 = shared_ends(ends[0](chunk), ends[1](chunk))
            number_M = np.full(len(places_M2), len(used))
            rows_M3 = np.concatenate([rows_M3, np.column_stack([number_M, places_M2])])
            used.append(chunk)
        order = rng.permutation(len(rows_M3))
        later = order[(rows_M3[order, 1:] > 0).all(1)]
        for chosen, allowed in zip(picks, (order, later), strict=True):
            chosen.append(before + allowed[:share])
        before += len(rows_M3)
        folds.append(rows_M3)
    chunk_M, *places = np.concatenate(folds).T
    picks_SP = np.stack([np.concatenate(chosen) for chosen in picks])
    others = [points_elsewhere(chunk_M, places[0], rng, number) for number in range(PERMUTATIONS)]
    return CommonPoints(used, chunk_M, np.stack(places), picks_SP, np.stack(others))


def token_ends(text: str, offsets: list[tuple[int, int]], names: list[str]) -> np.ndarray:
    """Return the byte after each token; 0 where that is not known.

    It is not known of a token of no text (a special one), of one that ends inside of the next (a
    part of a character, a sign for a space to come), and of one that ends with a space, which
    byte-level tokenizers leave out of the offsets.
    """
    after_C = np.cumsum([0, *(len(character.encode()) for character in text)])
    ends, following = [], len(text)
    for (start, end), name in zip(reversed(offsets), reversed(names), strict=True):
        known = start < end <= following and not name.endswith(SPACE)
        ends.append(after_C[end] if known else 0)
        following = start if start < end else following
    return np.array(ends[::-1])


def shared_ends(first_A: np.ndarray, second_B: np.ndarray) -> np.ndarray:
    """Return positions (M, 2) whose tokens end at the same byte; of several there the last."""
    first, second = (
        {int(end): place for place, end in enumerate(ends) if end} for ends in (first_A, second_B)
    )
    both = sorted(first.keys() & second.keys())
    return np.array([[first[end], second[end]] for end in both], np.int64).reshape(-1, 2)


def points_elsewhere(
    chunk_M: np.ndarray, place_M: np.ndarray, rng: np.random.Generator, number: int
) -> np.ndarray:
    """Return for every point that of another chunk nearest to its position in the first model.

    Position 0 stands for the first token alone: its vector may be a massive one. The chunks stand in a
    circle in random order, and each is replaced by that `number` + 1 places on, as in null_models.
    """
    count = int(chunk_M.max()) + 1
    order = rng.permutation(count)
    replacement = np.empty(count, int)
    replacement[order] = np.roll(order, -1 - number % (count - 1))
    other_M = np.empty(len(chunk_M), int)
    for chunk in range(count):
        own = np.flatnonzero(chunk_M == chunk)
        others = np.flatnonzero(chunk_M == replacement[chunk])
        if not len(others):  # a chunk without a point: any other that has some
            others = np.flatnonzero(chunk_M != chunk)
        if len(own):
            distance = np.abs(place_M[others][None] - place_M[own][:, None])
            unlike = (place_M[others] == 0)[None] != (place_M[own] == 0)[:, None]
            other_M[own] = others[(distance + FAR * unlike).argmin(1)]
    return other_M
