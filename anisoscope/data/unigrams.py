"""Types of positions (the last n characters), their log frequency in a text, and frequency bins.

The type of a position is the character there with the n - 1 before it: a character, a pair, a
triple.

Letters: C types, S types that occur, L levels of frequency.
"""

import numpy as np

from anisoscope.metrics.frequency import BINS

NONE = -1  # the type of a position with fewer than n - 1 characters before it
_CHUNK = 1 << 22  # positions that are counted at once


def types(tokens_WT: np.ndarray, length: int, vocab_size: int) -> np.ndarray:
    """Encode the last `length` token ids that end at each position as a number; int32.

    Shapes: (…, T) -> (…, T), below vocab_size^length. The tokens before a window are unknown, so
    that its first length - 1 positions have the type NONE. For three characters the numbers fit
    into 31 bits where vocab_size is at most 1,290.
    """
    tokens_WT = np.asarray(tokens_WT, np.int32)
    context = tokens_WT.shape[-1]
    numbers = np.full(tokens_WT.shape, NONE, np.int32)
    if context >= length:
        code = np.zeros((*tokens_WT.shape[:-1], context - length + 1), np.int32)
        for offset in range(length):
            code = code * vocab_size + tokens_WT[..., offset : offset + code.shape[-1]]
        numbers[..., length - 1 :] = code
    return numbers


def log_frequency(tokens_N: np.ndarray, length: int, vocab_size: int) -> np.ndarray:
    """Compute ln(occurrences of a type / occurrences of all types) in a text; float32.

    The text is usually the training split. Shapes: (N,) -> (vocab_size^length,), indexed by the
    numbers of `types`. A type that does not occur has -inf. The exponentials add up to 1.
    """
    counts_C = np.zeros(vocab_size**length, np.int64)
    for start in range(0, len(tokens_N) - length + 1, _CHUNK):
        chunk = types(tokens_N[start : start + _CHUNK + length - 1], length, vocab_size)
        counts_C += np.bincount(chunk[length - 1 :], minlength=counts_C.size)
    with np.errstate(divide="ignore"):
        return np.log(counts_C / max(counts_C.sum(), 1)).astype(np.float32)


def bins(log_frequency_C: np.ndarray, count: int = len(BINS)) -> np.ndarray:
    """Assign every type to a frequency bin, 0 the least frequent: (C,) -> (C,), int32.

    Each bin holds about as many positions of the text, so that error bars are equal. Types of the
    same frequency are in the same bin, where the middle of their positions falls. So bins are equal
    only as far as frequent types allow, and may be empty. A type that does not occur is in bin 0.
    """
    occurs_C = np.isfinite(log_frequency_C)
    level_L, level_S = np.unique(log_frequency_C[occurs_C], return_inverse=True)
    share_L = np.bincount(level_S, minlength=level_L.size) * np.exp(np.float64(level_L))
    middle_L = np.cumsum(share_L) - share_L / 2
    bin_C = np.zeros(np.shape(log_frequency_C), np.int32)
    bin_C[occurs_C] = np.minimum(middle_L * count, count - 1).astype(np.int32)[level_S]
    return bin_C
