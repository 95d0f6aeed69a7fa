"""Read pictures and recordings of a folder as windows of a model, in random order.

`Pictures` and `Recordings` have the same members: `name`, `unit` (what a window is), `count`,
`attributes` (for tables), `prepare`, `shuffle` (the null model), `label` and `sha256`, the digest of the
files that were read.
"""

import hashlib
import math
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image
from scipy import signal
from scipy.io import wavfile

from anisoscope.utils.errors import UserError

MOST_FILES = 10_000  # drawn at random: far more than are measured
MOST_SECONDS = 3600  # of sound


def list_files(path: pathlib.Path, seed: int) -> list[pathlib.Path]:
    """List the files below a folder, or one file, in random order, without hidden files."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    files = [
        file
        for file in files
        if not any(part.startswith(".") for part in file.relative_to(path).parts)
    ]
    if not files:
        raise UserError(f"data.path {path} is empty or does not exist; name a folder of files")
    order = np.random.default_rng(seed).permutation(len(files))
    return [files[place] for place in order[:MOST_FILES]]


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


class Pictures:
    """Pictures as windows, resized and scaled by the model's image processor."""

    PROCESSOR, FILES, unit = "AutoImageProcessor", "pictures", "pictures"

    def __init__(self, path: pathlib.Path, processor: Any, base: Any, positions: int, seed: int):
        self.path, self.processor, self.sha256 = path, processor, hashlib.sha256()
        self.files = list_files(path, seed)
        self.mode = "L" if getattr(base.config, "num_channels", 3) == 1 else "RGB"
        self.name, self.count = f"pictures of {path.resolve().name}", len(self.files)
        self.attributes = {
            "preparation": f"{type(processor).__name__} of the model",
            "shuffled": "pixels of all pictures of a batch in random order, each with its colors",
        }

    def prepare(self, numbers: Sequence[int]) -> np.ndarray:
        """Make the model's inputs (W, C, H, W) of these pictures."""
        inputs = []
        for number in numbers:
            file = self.files[number]
            self.sha256.update(str(file.relative_to(self.path)).encode() + file.read_bytes())
            picture = read_picture(file, self.mode)
            inputs.append(self.processor(images=[picture], return_tensors="np")["pixel_values"][0])
        if len({x.shape for x in inputs}) > 1:
            raise UserError(
                f"data.path {self.path}: the model's processor returns pictures of several sizes; "
                "name a folder of pictures of one size"
            )
        return np.stack(inputs).astype(np.float32)

    def shuffle(
        self, numbers: Sequence[int], inputs_WCHW: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Shuffle the pixels of all pictures together, each with its colors."""
        inputs_CWHW = np.moveaxis(inputs_WCHW, 1, 0)
        pixels_CN = inputs_CWHW.reshape(len(inputs_CWHW), -1)
        mixed_CN = pixels_CN[:, rng.permutation(pixels_CN.shape[1])]
        return np.moveaxis(mixed_CN.reshape(inputs_CWHW.shape), 0, 1)

    def label(self, number: int) -> str:
        return self.files[number].name


def read_picture(file: pathlib.Path, mode: str) -> Image.Image:
    """Read a picture in mode "RGB" or "L"; UserError where a color has more than 8 bits."""
    try:
        # warnings about palettes and large pictures
        with warnings.catch_warnings(action="ignore"), Image.open(file) as picture:
            own_mode = picture.mode
            if own_mode[0] not in "IF":
                return picture.convert(mode)
    except Exception as error:  # of Pillow or its plugins
        raise UserError(
            f"data.path: {file} cannot be read as a picture ({_first_line(error)}); move it away"
        ) from error
    raise UserError(
        f"data.path: {file} has pixels of mode {own_mode}, more than 8 bits a color; "
        "save it with 8 bits"
    )


class Recordings:
    """Recordings, joined and cut into windows of equal length, without padding.

    The model's feature extractor prepares each window.
    """

    PROCESSOR, FILES = "AutoFeatureExtractor", "wav files"

    def __init__(self, path: pathlib.Path, processor: Any, base: Any, positions: int, seed: int):
        self.processor, self.input = processor, base.main_input_name
        self.files, self.rate = list_files(path, seed), processor.sampling_rate
        length = samples_of_positions(base, processor, positions)
        sha256, rates = hashlib.sha256(), set()
        sounds, ends = [], []
        for file in self.files:
            sha256.update(str(file.relative_to(path)).encode() + file.read_bytes())
            sound, rate = read_recording(file)
            if rate != self.rate:
                rates.add(rate)
                shared = math.gcd(rate, self.rate)
                sound = signal.resample_poly(sound, self.rate // shared, rate // shared)
            sounds.append(sound.astype(np.float32))
            ends.append(len(sound) + (ends[-1] if ends else 0))
            if ends[-1] >= MOST_SECONDS * self.rate:
                break
        joined = np.concatenate(sounds)
        self.ends, self.sha256 = ends, sha256
        self.chunks = joined[: len(joined) // length * length].reshape(-1, length)
        self.starts = np.arange(len(self.chunks)) * length
        self.file_of = np.searchsorted(ends, self.starts, side="right")
        last = np.searchsorted(ends, self.starts + length - 1, side="right")
        self.name, self.count = f"recordings of {path.resolve().name}", len(self.chunks)
        self.unit = f"chunks of {length / self.rate:.3g} s"
        resampled = f" (resampled from {', '.join(map(str, sorted(rates)))})" if rates else ""
        self.attributes = {
            "preparation": f"{type(processor).__name__} of the model, without padding, "
            f"{self.rate} samples a second{resampled}",
            "joined": f"{len(sounds)} recordings of {ends[-1] / self.rate:.1f} s in all; "
            f"{(last > self.file_of).sum()} of {self.count} chunks hold the end of one and the "
            "beginning of another",
            "shuffled": "samples of all chunks of a batch in random order",
        }

    def _extract(self, pieces_WN: np.ndarray) -> np.ndarray:
        inputs = self.processor(list(pieces_WN), sampling_rate=self.rate, return_tensors="np")
        return np.asarray(inputs[self.input], np.float32)

    def prepare(self, numbers: Sequence[int]) -> np.ndarray:
        """Make the model's inputs (W, …) of these windows."""
        return self._extract(self.chunks[list(numbers)])

    def shuffle(
        self, numbers: Sequence[int], inputs: np.ndarray, rng: np.random.Generator
    ) -> np.ndarray:
        """Shuffle the samples of all windows together."""
        mixed = rng.permutation(self.chunks[list(numbers)].ravel())
        return self._extract(mixed.reshape(len(numbers), -1))

    def label(self, number: int) -> str:
        file = self.file_of[number]
        begin = self.starts[number] - (self.ends[file - 1] if file else 0)
        return f"{self.files[file].name} from {begin / self.rate:.2f} s"


def samples_of_positions(base: Any, processor: Any, positions: int) -> int:
    """Return the least number of samples that yields this many positions; Whisper's is fixed."""
    if base.main_input_name == "input_features" and hasattr(base.config, "max_source_positions"):
        return 2 * base.config.max_source_positions * processor.hop_length
    if not hasattr(base.config, "conv_kernel"):
        raise UserError(
            f"{type(base).__name__}: samples per position are unknown; name another model"
        )
    length = positions
    for kernel, stride in zip(
        reversed(base.config.conv_kernel), reversed(base.config.conv_stride), strict=True
    ):
        length = (length - 1) * stride + kernel
    return length


def read_recording(file: pathlib.Path) -> tuple[np.ndarray, int]:
    """Read samples in float32 from -1 to 1, averaged over channels, and the sampling rate."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about chunks that hold no sound
            rate, sound = wavfile.read(file)
    except Exception as error:  # of SciPy, for damaged files and codecs
        raise UserError(
            f"data.path: {file} cannot be read as a wav file ({_first_line(error)}); "
            "write it as plain PCM, or move it away"
        ) from error
    if sound.dtype == np.uint8:
        sound = sound.astype(np.float32) / 128 - 1
    elif np.issubdtype(sound.dtype, np.integer):
        sound = sound.astype(np.float32) / -float(np.iinfo(sound.dtype).min)
    sound = sound.astype(np.float32).reshape(len(sound), -1).mean(axis=1)
    if not np.isfinite(sound).all():
        raise UserError(f"data.path: {file} holds numbers that are not finite; move it away")
    return sound, rate
