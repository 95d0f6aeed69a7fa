"""Choose windows of pictures or sound, and the positions to measure, for models without text.

G are batches, Z samples: what is measured, and its null models.
"""

import pathlib
from typing import NamedTuple

import numpy as np

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources.evaluation_windows import POSITION_SETS, make_probe
from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.load_model import PretrainedModel, load_model, read_processor
from anisoscope.sources.hf.media_files import Pictures, Recordings
from anisoscope.sources.hf.pretrained_weights import WeightLocation
from anisoscope.sources.hf.token_windows import Windows, add_ordinary
from anisoscope.utils.errors import UserError

# reader by the name of a model's input
MEDIA = {"pixel_values": Pictures, "input_values": Recordings, "input_features": Recordings}
NO_LOSS = {"bits_per_byte": "not asked: the loss is guarded for texts alone"}
# tokens before the patches
SPECIAL_TOKENS = {
    "cls_token": "a class token",
    "distillation_token": "a distillation token",
    "register_tokens": "register tokens",
}


class MediaFolder(NamedTuple):
    """The record of the files, in the place of a text."""

    name: str
    origin: str
    sha256: str

    def record(self) -> dict[str, str]:
        """Return name and origin, without the digest.

        The digest covers the files that were read, which settings of measuring choose.
        """
        return {"name": self.name, "origin": self.origin}


def open_media(config: PretrainedConfig, location: WeightLocation) -> tuple[MediaFolder, Windows]:
    """Open the files, and choose windows as the last revision reads them."""
    loaded = load_model(location, config.pretrained)
    if (takes := loaded.base.main_input_name) not in MEDIA:
        raise UserError(
            f"{loaded.class_name} reads {takes}; name a model of text, pictures or sound"
        )
    media = MEDIA[takes]
    if config.data.path is None or config.data.source != "enwik8":
        raise UserError(
            f"this model reads {media.FILES}, not text; name a folder of them with "
            "--config.data.path="
        )
    for name, used in (
        ("special_tokens", config.special_tokens),
        ("characters", config.characters is not None),
        ("data.clean", config.data.clean),
    ):
        if used:
            raise UserError(f"{name} is for models that read text; leave it out")
    path, processor = pathlib.Path(config.data.path), read_processor(location, media.PROCESSOR)
    files = media(path, processor, loaded.base, config.window, config.measure.seed)
    if not files.count:
        raise UserError(
            f"data.path {path} holds no {files.unit}; name longer recordings, or lower window"
        )
    read = read_activations(loaded, files.prepare([0])[None], 1, heads=False)
    context = read.resid_ZLBTD.shape[3]
    windows = choose_windows(files, loaded, context, config.measure, path)
    return MediaFolder(files.name, str(path), files.sha256.hexdigest()), windows


def choose_windows(
    files: Pictures | Recordings,
    loaded: PretrainedModel,
    context: int,
    measure: MeasureConfig,
    path: pathlib.Path,
) -> Windows:
    """Choose files, and positions in what the model makes of each."""
    numbers_N = np.arange(files.count * context, dtype=np.int32)
    sizes = measure.points, measure.batches, measure.folds, measure.seed
    have = f"data.path {path} holds {files.count} {files.unit}, {context} positions each"
    probe = make_probe(numbers_N, context, *sizes, have=have, advice="take more files")
    window_GW = probe.tokens_GWT[:, :, 0] // context
    rng = np.random.default_rng(measure.seed)
    inputs = [files.prepare(window_W) for window_W in window_GW.tolist()]
    shuffled = [
        files.shuffle(window_W, inputs_W, rng)
        for window_W, inputs_W in zip(window_GW.tolist(), inputs, strict=True)
    ]
    probe = probe._replace(tokens_GWT=np.stack(inputs), shuffled_GWT=np.stack(shuffled))
    embeddings = getattr(loaded.base, "embeddings", None)
    tokens = {name: getattr(embeddings, name, None) for name in SPECIAL_TOKENS}
    special = {name: x.shape[1] for name, x in tokens.items() if x is not None and x.shape[1]}
    fixed_T, positions = np.arange(context) < sum(special.values()), POSITION_SETS
    if sum(special.values()) > 1:
        fixed_GWT = np.broadcast_to(fixed_T, (*window_GW.shape, context))
        positions, probe = add_ordinary(probe, fixed_GWT, measure)
    batches, windows = window_GW.shape
    front = " and ".join(
        f"{count} {SPECIAL_TOKENS[name]}" if count > 1 else SPECIAL_TOKENS[name]
        for name, count in special.items()
    )
    attributes = files.attributes | {
        "windows": f"{windows} {files.unit} × {batches} batches, {context} positions each, in front "
        f"{front or 'the first of them'}",
        "first_windows": " | ".join(files.label(number) for number in window_GW[0, :3].tolist()),
    }
    return Windows(probe, positions, fixed_T, context, attributes)
