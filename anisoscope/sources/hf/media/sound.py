"""Recordings as windows: pieces of equal length, without padding, as the model's own feature
extractor takes them.
"""

import hashlib
import math
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import signal
from scipy.io import wavfile

from anisoscope.sources.hf.media.media_files import Material, listed
from anisoscope.utils.errors import UserError

PROCESSOR = "AutoFeatureExtractor"
LONGEST = 3600  # seconds that are read


def material(path: pathlib.Path, processor: Any, base: Any, positions: int, seed: int) -> Material:
    """Recordings in random order, joined, and cut into pieces of so many positions."""
    files, rate = listed(path, {".wav"}, "wav file", seed), processor.sampling_rate
    length = samples_of(base, processor, positions)
    digest, rates = hashlib.sha256(), set()
    sounds, ends, total = [], [], 0
    for file in files:
        content = file.read_bytes()
        digest.update(str(file.relative_to(path)).encode() + content)
        sound, own = _recording(file)
        rates.add(own)
        if own != rate:
            shared = math.gcd(own, rate)
            sound = signal.resample_poly(sound, rate // shared, own // shared).astype(np.float32)
        sounds.append(sound)
        ends.append(total := total + len(sound))
        if total >= LONGEST * rate:
            break
    joined = np.concatenate(sounds)
    pieces = joined[: len(joined) // length * length].reshape(-1, length)
    starts = np.arange(len(pieces)) * length
    file_of = np.searchsorted(ends, starts, side="right")
    cut = int((np.searchsorted(ends, starts + length - 1, side="right") > file_of).sum())

    def features(pieces_WN: np.ndarray) -> np.ndarray:
        given = processor(list(pieces_WN), sampling_rate=rate, return_tensors="np")
        return np.asarray(given[base.main_input_name], np.float32)

    def prepared(numbers: Sequence[int]) -> np.ndarray:
        return features(pieces[list(numbers)])

    def shuffled(
        numbers: Sequence[int], inputs: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """The samples of all of them in random order."""
        mixed = rng.permutation(pieces[list(numbers)].ravel())
        return features(mixed.reshape(len(numbers), -1))

    def called(number: int) -> str:
        begin = starts[number] - (ends[file_of[number] - 1] if file_of[number] else 0)
        return f"{files[file_of[number]].name} from {begin / rate:.2f} s"

    of_others = sorted(rates - {rate})
    return Material(
        name=f"recordings of {path.resolve().name}",
        what=f"pieces of {length / rate:.3g} s",
        count=len(pieces),
        prepared=prepared,
        shuffled=shuffled,
        called=called,
        sha256=digest.hexdigest,
        about={
            "preparation": f"{type(processor).__name__} of the model, without padding, {rate} samples a second"
            + f" (resampled from {', '.join(map(str, of_others))})" * bool(of_others),
            "joined": f"{len(sounds)} recordings of {total / rate:.1f} s in all; {cut} of {len(pieces)} pieces hold "
            "the end of one and the beginning of another",
            "shuffled": "samples of all pieces of a batch in random order",
        },
    )


def samples_of(base: Any, processor: Any, positions: int) -> int:
    """The least number of samples of which a model makes so many positions; Whisper's is always the
    same.

    UserError where its settings do not tell.
    """
    needed = {
        "input_features": ("max_source_positions",),
        "input_values": ("conv_kernel", "conv_stride"),
    }
    if any(not hasattr(base.config, name) for name in needed[base.main_input_name]):
        raise UserError(
            f"{type(base).__name__}: how many samples make a position is not known of this class"
        )
    if base.main_input_name == "input_features":
        return 2 * base.config.max_source_positions * processor.hop_length
    length = positions
    for kernel, stride in zip(
        reversed(base.config.conv_kernel), reversed(base.config.conv_stride), strict=True
    ):
        length = (length - 1) * stride + kernel
    return length


def _recording(file: pathlib.Path) -> tuple[np.ndarray, int]:
    """In float32 between -1 and 1, the mean of its channels; and its samples a second."""
    try:
        with warnings.catch_warnings(action="ignore"):  # of chunks that hold no sound
            rate, sound = wavfile.read(file)
    except Exception as error:  # SciPy's, of damaged files and of codecs
        raise UserError(
            f"data.path: {file} is no wav file that can be read ({(str(error).splitlines() or ['?'])[0].rstrip('.')}); "
            "write it as plain PCM, or move it away"
        ) from error
    if not sound.size:
        raise UserError(f"data.path: {file} holds no sound; move it away")
    if sound.dtype == np.uint8:
        sound = sound.astype(np.float32) / 128 - 1
    elif np.issubdtype(sound.dtype, np.integer):
        sound = sound.astype(np.float32) / -float(np.iinfo(sound.dtype).min)
    sound = sound.astype(np.float32).reshape(len(sound), -1).mean(axis=1)
    if not np.isfinite(sound).all():
        raise UserError(f"data.path: {file} holds numbers that are not finite; move it away")
    return sound, rate
