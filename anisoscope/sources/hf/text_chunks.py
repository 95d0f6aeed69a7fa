"""Draw chunks of a text for two models, and their common points, where a token of each model ends.

At such a point both vectors follow the same characters, whatever the tokenizers are. Letters: A, B the
positions of the models in a chunk, M the points of a batch, P the picked points, S sets of positions.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.sources.evaluation_windows import POSITION_SETS
from anisoscope.utils.errors import SettingError

SPACE = "Ġ"  # as byte-level tokenizers write it
BYTE_TOKENS = 3, 258  # the first and last token of a byte in ByT5
NO_POSITION = 10**9  # larger than any distance of two positions
# chunk -> the byte after the token at every position; 0: a token without text
Ends = Callable[[bytes], np.ndarray]


class CommonPoints(NamedTuple):
    """The points of one batch."""

    chunks: list[bytes]
    chunk_M: np.ndarray  # the number of each point's chunk
    places_2M: np.ndarray  # positions in the chunk, of the first model and of the second
    picks_SP: np.ndarray  # indices of points, by set of positions
    other_M: np.ndarray  # the null model: a point of another chunk for each point


def draw_chunks(valid: bytes, length: int, seed: int) -> Iterator[bytes]:
    """Yield chunks that do not overlap and split no character, in random order."""
    starts = np.random.default_rng(seed).permutation(len(valid) // length) * length
    for start in starts.tolist():
        chunk = valid[start : start + length]
        try:
            chunk.decode()
        except UnicodeDecodeError:
            continue
        yield chunk


def common_points(
    chunks: Iterator[bytes], ends: tuple[Ends, ...], measure: MeasureConfig, batch: int
) -> CommonPoints:
    """Collect points in folds of equal size, of as many whole chunks as they need.

    `without_first_token` leaves out points where either model stands at its first token. UserError
    where the text is too short.
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
                what = "tokens of both models end together at too few places"
                advice = "lower measure.points, or pass a longer text"
                raise SettingError(f"{what}; {advice}", "measure.points")
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
    other_M = points_elsewhere(chunk_M, places[0], rng)
    return CommonPoints(used, chunk_M, np.stack(places), picks_SP, other_M)


def token_ends(text: str, offsets: list[tuple[int, int]], names: list[str]) -> np.ndarray:
    """Return the byte after each token; 0 where it is unknown.

    It is unknown for special tokens, for a token that ends inside the next token (part of a
    character, or the sign of a following space), and for a token that ends with a space, which
    byte-level tokenizers leave out of the offsets.
    """
    after_C = np.cumsum([0, *(len(character.encode()) for character in text)])
    ends, following = [], len(text)
    for (start, end), name in zip(reversed(offsets), reversed(names), strict=True):
        known = start < end <= following and not name.endswith(SPACE)
        ends.append(after_C[end] if known else 0)
        following = start if start < end else following
    return np.array(ends[::-1])


def byte_ends(chunk: bytes, ids: list[int]) -> np.ndarray:
    """Return the byte after each token of ByT5, whose token is a byte; 0 at special tokens.

    No end is known of a chunk that spells a special token.
    """
    is_byte = np.array([BYTE_TOKENS[0] <= number <= BYTE_TOKENS[1] for number in ids])
    ends = np.where(is_byte, np.cumsum(is_byte), 0)
    return ends if is_byte.sum() == len(chunk) else np.zeros_like(ends)


def shared_ends(first_A: np.ndarray, second_B: np.ndarray) -> np.ndarray:
    """Return positions (M, 2) whose tokens end at the same byte; of several tokens the last."""
    first, second = (
        {int(end): place for place, end in enumerate(ends) if end} for ends in (first_A, second_B)
    )
    both = sorted(first.keys() & second.keys())
    return np.array([[first[end], second[end]] for end in both], np.int64).reshape(-1, 2)


def points_elsewhere(
    chunk_M: np.ndarray, place_M: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """Return for every point the point of another chunk nearest in position in the first model.

    Position 0 is replaced by position 0 only, since the first token's vector may be massive. The
    chunks form a circle in random order; each is replaced by the next, as in null_models.
    """
    count = int(chunk_M.max()) + 1
    order = rng.permutation(count)
    replacement = np.empty(count, int)
    replacement[order] = np.roll(order, -1)
    other_M = np.empty(len(chunk_M), int)
    for chunk in np.unique(chunk_M):
        here = np.flatnonzero(chunk_M == chunk)
        others = np.flatnonzero(chunk_M == replacement[chunk])
        if not len(others):  # a chunk without a point: any other that has some
            others = np.flatnonzero(chunk_M != chunk)
        distance = np.abs(place_M[others][None] - place_M[here][:, None])
        unlike = (place_M[others] == 0)[None] != (place_M[here] == 0)[:, None]
        other_M[here] = others[(distance + NO_POSITION * unlike).argmin(1)]
    return other_M
