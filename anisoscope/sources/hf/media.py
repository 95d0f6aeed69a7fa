"""Read pictures or recordings as windows of a model, and choose the positions to measure.

`Pictures` and `Recordings` have the same members: `name`, `unit` (what a window is), `count`,
`attributes` (for tables), `prepare`, `shuffle` (the null model), `label`, and `sha256` of the files
that were read. Letters: G batches, W windows, Z inputs.
"""

import hashlib
import math
import pathlib
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps
from scipy import signal
from scipy.io import wavfile

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources.evaluation_windows import POSITION_SETS, make_probe
from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.load_model import PretrainedModel, load_model, read_tokenizer
from anisoscope.sources.hf.pretrained_weights import WeightLocation
from anisoscope.sources.hf.token_windows import InputWindows, add_ordinary
from anisoscope.utils.errors import UserError

MOST_FILES = 10_000  # drawn at random: far more than are measured
MOST_SECONDS = 3600  # seconds of sound
# tokens before the patches
SPECIAL_TOKENS = ("cls_token", "distillation_token", "register_tokens")


class Pictures:
    """Pictures as windows, resized and scaled by the model's image processor."""

    PROCESSOR, FILES, unit = "AutoImageProcessor", "pictures", "pictures"

    def __init__(self, path: pathlib.Path, processor: Any, base: Any, positions: int, seed: int):
        self.path, self.processor, self.sha256 = path, processor, hashlib.sha256()
        self.files = list_files(path, seed)
        self.mode = "L" if getattr(base.config, "num_channels", 3) == 1 else "RGB"
        self.name, self.count = f"pictures of {path.resolve().name}", len(self.files)
        self.attributes = {"preparation": f"{type(processor).__name__} of the model"}

    def prepare(self, numbers: Sequence[int]) -> np.ndarray:
        """Make the model's inputs (W, C, H, W) of these pictures."""
        inputs = []
        for file in (self.files[number] for number in numbers):
            self.sha256.update(str(file.relative_to(self.path)).encode() + file.read_bytes())
            picture = read_picture(file, self.mode)
            inputs.append(self.processor(images=[picture], return_tensors="np")["pixel_values"][0])
        if len({x.shape for x in inputs}) > 1:
            what = f"data.path {self.path}: the model's processor returns several sizes"
            raise UserError(f"{what}; name a folder of pictures of one size")
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


class Recordings:
    """Recordings, joined and cut into windows of equal length, without padding.

    The model's feature extractor prepares each window.
    """

    PROCESSOR, FILES = "AutoFeatureExtractor", "wav files"

    def __init__(self, path: pathlib.Path, processor: Any, base: Any, positions: int, seed: int):
        self.processor, self.input = processor, base.main_input_name
        self.rate = processor.sampling_rate
        length = samples_of_positions(base, processor, positions)
        self.files, self.sha256, rates = list_files(path, seed), hashlib.sha256(), set()
        sounds, self.ends = [], []
        for file in self.files:
            self.sha256.update(str(file.relative_to(path)).encode() + file.read_bytes())
            sound, rate = read_recording(file)
            rates.add(rate)
            if rate != self.rate:
                shared = math.gcd(rate, self.rate)
                sound = signal.resample_poly(sound, self.rate // shared, rate // shared)
            sounds.append(sound.astype(np.float32))
            self.ends.append(len(sound) + (self.ends[-1] if self.ends else 0))
            if self.ends[-1] >= MOST_SECONDS * self.rate:
                break
        joined = np.concatenate(sounds)
        self.chunks = joined[: len(joined) // length * length].reshape(-1, length)
        self.name, self.count = f"recordings of {path.resolve().name}", len(self.chunks)
        self.unit = f"chunks of {length / self.rate:.3g} s"
        seconds = f"{len(sounds)} recordings of {self.ends[-1] / self.rate:.1f} s in all"
        self.attributes = {
            "preparation": f"{type(processor).__name__} of the model, without padding",
            "joined": f"{seconds}, of {', '.join(map(str, sorted(rates)))} samples a second; "
            f"measured at {self.rate}",
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
        start = number * self.chunks.shape[1]
        file = int(np.searchsorted(self.ends, start, side="right"))
        begin = start - (self.ends[file - 1] if file else 0)
        return f"{self.files[file].name} from {begin / self.rate:.2f} s"


# reader by the name of a model's input
MEDIA = {"pixel_values": Pictures, "input_values": Recordings, "input_features": Recordings}


class MediaFolder(NamedTuple):
    """A record of the files that replaces that of a text."""

    name: str
    origin: str
    sha256: str

    def record(self) -> dict[str, str]:
        """Return name and origin: the digest is of the files read, which settings choose."""
        return {"name": self.name, "origin": self.origin}


def open_media(
    config: PretrainedConfig, location: WeightLocation
) -> tuple[MediaFolder, InputWindows]:
    """Open the files, and choose windows as the last revision reads them."""
    loaded = load_model(location, config.pretrained)
    if (takes := loaded.base.main_input_name) not in MEDIA:
        what = f"{loaded.class_name} reads {takes}"
        raise UserError(f"{what}; name a model of text, pictures or sound")
    media = MEDIA[takes]
    if config.data.path is None or config.data.source != "enwik8":
        what = f"this model reads {media.FILES}, not text"
        raise UserError(f"{what}; name a folder of them with --config.data.path=")
    for name, used in (
        ("special_tokens", config.special_tokens),
        ("characters", config.characters is not None),
        ("data.clean", config.data.clean),
    ):
        if used:
            raise UserError(f"{name} is for models that read text; leave it out")
    path, processor = pathlib.Path(config.data.path), read_tokenizer(location, media.PROCESSOR)
    files = media(path, processor, loaded.base, config.window, config.measure.seed)
    if not files.count:
        what = f"data.path {path} holds no {files.unit}"
        raise UserError(f"{what}; name longer recordings, or lower window")
    context = read_activations(loaded, files.prepare([0])[None], 1).resid_ZLBTD.shape[3]
    windows = choose_windows(files, loaded, context, config.measure, path)
    return MediaFolder(files.name, str(path), files.sha256.hexdigest()), windows


def choose_windows(
    files: Pictures | Recordings,
    loaded: PretrainedModel,
    context: int,
    measure: MeasureConfig,
    path: pathlib.Path,
) -> InputWindows:
    """Choose files, and positions in what the model makes of each."""
    numbers_N = np.arange(files.count * context, dtype=np.int32)
    sizes = measure.points, measure.batches, measure.folds, measure.seed
    have = f"data.path {path} holds {files.count} {files.unit}, {context} positions each"
    probe = make_probe(numbers_N, context, *sizes, have=have, advice="take more files")
    window_GW = (probe.tokens_GWT[:, :, 0] // context).tolist()
    rng = np.random.default_rng(measure.seed)
    inputs = [files.prepare(window_W) for window_W in window_GW]
    pairs = zip(window_GW, inputs, strict=True)
    shuffled = [files.shuffle(window_W, inputs_W, rng) for window_W, inputs_W in pairs]
    probe = probe._replace(tokens_GWT=np.stack(inputs), shuffled_GWT=np.stack(shuffled))
    embeddings = getattr(loaded.base, "embeddings", None)
    tokens = {name: getattr(embeddings, name, None) for name in SPECIAL_TOKENS}
    special = {name: x.shape[1] for name, x in tokens.items() if x is not None and x.shape[1]}
    fixed_T, positions = np.arange(context) < sum(special.values()), POSITION_SETS
    batches, windows = np.shape(window_GW)
    if sum(special.values()) > 1:
        fixed_GWT = np.broadcast_to(fixed_T, (batches, windows, context))
        positions, probe = add_ordinary(probe, fixed_GWT, measure)
    front = ", ".join(f"{count} {name}" for name, count in special.items()) or "none"
    attributes = files.attributes | {
        "windows": f"{windows} {files.unit} × {batches} batches, {context} positions each",
        "special_tokens": front,
        "first_windows": " | ".join(files.label(number) for number in window_GW[0][:3]),
    }
    return InputWindows(probe, positions, fixed_T, context, attributes)


def list_files(path: pathlib.Path, seed: int) -> list[pathlib.Path]:
    """List the files below a folder, or one file, in random order, without hidden files."""
    files = [path] if path.is_file() else sorted(file for file in path.rglob("*") if file.is_file())
    parts = {file: file.relative_to(path).parts for file in files}
    files = [file for file in files if not any(part.startswith(".") for part in parts[file])]
    if not files:
        raise UserError(f"data.path {path} is empty or does not exist; name a folder of files")
    order = np.random.default_rng(seed).permutation(len(files))
    return [files[place] for place in order[:MOST_FILES]]


def read_picture(file: pathlib.Path, mode: str) -> Image.Image:
    """Read a picture in mode "RGB" or "L"; UserError where a color has more than 8 bits."""
    try:
        # warnings about palettes and large pictures
        with warnings.catch_warnings(action="ignore"), Image.open(file) as picture:
            own_mode = picture.mode
            if own_mode[0] not in "IF":
                return ImageOps.exif_transpose(picture).convert(mode)  # upright
    except Exception as error:  # any error of Pillow or its plugins
        raise UserError(f"data.path: {file} cannot be read as a picture; move it away") from error
    what = f"data.path: {file} has pixels of mode {own_mode}, more than 8 bits a color"
    raise UserError(f"{what}; save it with 8 bits")


def samples_of_positions(base: Any, processor: Any, positions: int) -> int:
    """Return the least number of samples that yields this many positions; Whisper's is fixed."""
    config = base.config
    if base.main_input_name == "input_features" and hasattr(config, "max_source_positions"):
        return 2 * config.max_source_positions * processor.hop_length
    if not hasattr(config, "conv_kernel"):
        what = f"{type(base).__name__}: samples per position are unknown"
        raise UserError(f"{what}; name another model")
    length = positions
    for kernel, stride in reversed([*zip(config.conv_kernel, config.conv_stride, strict=True)]):
        length = (length - 1) * stride + kernel
    return length


def read_recording(file: pathlib.Path) -> tuple[np.ndarray, int]:
    """Read samples in float32 from -1 to 1, averaged over channels, and the sampling rate."""
    try:
        with warnings.catch_warnings(action="ignore"):  # about chunks that hold no sound
            rate, sound = wavfile.read(file)
    except Exception as error:  # any error of SciPy, for damaged files and codecs
        advice = "write it as plain PCM, or move it away"
        raise UserError(f"data.path: {file} cannot be read as a wav file; {advice}") from error
    if sound.dtype == np.uint8:
        sound = sound.astype(np.float32) / 128 - 1
    elif np.issubdtype(sound.dtype, np.integer):
        sound = sound.astype(np.float32) / -float(np.iinfo(sound.dtype).min)
    sound = sound.astype(np.float32).reshape(len(sound), -1).mean(axis=1)
    if not np.isfinite(sound).all():
        raise UserError(f"data.path: {file} holds numbers that are not finite; move it away")
    return sound, rate
