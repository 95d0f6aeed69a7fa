"""Choose windows of pictures or sound, and the positions to measure, for models without text.

Letters: G batches, S sets of positions, Z inputs of a batch: its windows, and shuffled ones.
"""

import pathlib
from typing import Any, NamedTuple

import numpy as np

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.null_models import PERMUTED
from anisoscope.sources.evaluation_windows import POSITION_SETS, Probe, make_probe
from anisoscope.sources.hf.load_model import Place, PretrainedModel, load_model, read_processor
from anisoscope.sources.hf.media import feature_maps
from anisoscope.sources.hf.media.media_files import Pictures, Recordings
from anisoscope.sources.hf.reading.extract import read_activations
from anisoscope.sources.hf.reading.token_windows import SPECIAL, pick_ordinary
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace

# reader by the name of a model's input
MEDIA = {"pixel_values": Pictures, "input_values": Recordings, "input_features": Recordings}
NO_LOSS = {"bits_per_byte": "not asked: the loss is guarded for texts alone"}
# tokens before the patches
SPECIAL_TOKENS = {
    "cls_token": "a class token",
    "distillation_token": "a distillation token",
    "register_tokens": "register tokens",
}


class Source(NamedTuple):
    """The record of the files, in the place of a text."""

    name: str
    origin: str
    sha256: str

    def record(self) -> dict[str, str]:
        """Return name and origin, without the digest.

        The digest covers the files that were read, which settings of measuring choose.
        """
        return {"name": self.name, "origin": self.origin}


class Windows(NamedTuple):
    """Windows as in sources/hf/reading/token_windows.py, with model inputs in place of tokens."""

    probe: Probe  # tokens_GWT and shuffled_GWT are inputs (G, W, …)
    positions: tuple[str, ...]
    fixed_T: np.ndarray  # True where the model adds a token to every window
    places_GWT: np.ndarray  # the number of every position
    # shape of the map of every layer; empty where all layers have one shape
    shapes: list[feature_maps.Shape]
    names: dict[int, str]  # labels of the windows
    about: dict[str, Any]
    rate: int = 1  # every input is a separate position

    def in_words(self) -> list[str]:
        """Describe the windows for a reader, before the long part begins."""
        first = f"windows: {self.about['windows']}; the first are {self.about['first_windows']}"
        names = [name for name in ("preparation", "joined", "shuffled") if name in self.about]
        return [first, *(f"{name}: {self.about[name]}" for name in names)]

    def words(self, places: np.ndarray) -> list[str]:
        """Return the names of the windows that hold these positions."""
        return [self.names[number // self.places_GWT.shape[2]] for number in places.tolist()]

    @property
    def sizes(self) -> list[feature_maps.Size]:
        return [shape[:2] for shape in self.shapes]

    @property
    def widths(self) -> list[int]:
        return [shape[2] for shape in self.shapes]


def open_media(config: PretrainedConfig, place: Place) -> tuple[Source, Windows]:
    """Open the files, and choose windows as the last revision reads them.

    Raises:
        UserError: the files cannot be read.
    """
    loaded = load_model(place, config.pretrained)
    if (takes := loaded.base.main_input_name) not in MEDIA:
        raise UserError(
            f"{type(loaded.model).__name__} reads {takes}; name a model of text, pictures or sound"
        )
    media = MEDIA[takes]
    if config.data.path is None or config.data.source != "enwik8":
        raise UserError(
            f"this model reads {media.FILES}, not text; name a folder of them with "
            "--config.data.path="
        )
    for name, chosen in (
        ("special_tokens", config.special_tokens),
        ("characters", config.characters is not None),
        ("data.clean", config.data.clean),
    ):
        if chosen:
            raise UserError(f"{name} applies to models that read text; leave it out")
    path, processor = pathlib.Path(config.data.path), read_processor(place, media.PROCESSOR)
    files = media(path, processor, loaded.base, config.window, config.measure.seed)
    if not files.count:
        raise UserError(
            f"data.path {path} holds no {files.kind}; name longer recordings, or lower window"
        )
    shapes, context = _probe_shapes(loaded, files.prepare([0]), place)
    windows = _choose_windows(files, loaded, shapes, context, config.measure, path)
    return Source(files.name, str(path), files.digest()), windows


def drop_unmeasurable(config: PretrainedConfig, windows: Windows) -> PretrainedConfig:
    """Drop families and null models that these windows do not support.

    Places of different windows do not correspond, so permutations are dropped; where maps change
    between stages, so do heads and their masks.
    """
    families, nulls = config.measure.families, config.measure.nulls
    if windows.shapes:
        nulls = tuple(null for null in nulls if null != PERMUTED)
        families = tuple(
            name for name in families if FAMILIES[name].input_kind in feature_maps.KINDS
        )
        if not families:
            raise UserError(
                f"measure.families: {', '.join(config.measure.families)} cannot be measured where "
                "maps change from stage to stage; name others"
            )
    window = windows.places_GWT.shape[2]
    changes = {"measure.families": families, "measure.nulls": nulls, "window": window}
    return replace(config, changes)


def _probe_shapes(
    loaded: PretrainedModel, inputs: np.ndarray, place: Place
) -> tuple[list[feature_maps.Shape], int]:
    """Return the shapes of the maps, if any, and the positions of a window (coarsest map)."""
    try:
        if not loaded.adapter.maps:
            return [], read_activations(loaded, inputs[None], 1, heads=False).resid_ZNWTD.shape[3]
        shapes = feature_maps.map_shapes(loaded, inputs)
    except (RuntimeError, ValueError) as error:  # where sizes do not fit
        words = str(error).splitlines()[0].rstrip(".")
        raise UserError(
            f"{place.name} cannot read the output of its own processor ({words}); name another model"
        ) from error
    return shapes, min(height * width for height, width, _ in shapes)


def _choose_windows(
    files: Pictures | Recordings,
    loaded: PretrainedModel,
    shapes: list[feature_maps.Shape],
    context: int,
    measure: MeasureConfig,
    path: pathlib.Path,
) -> Windows:
    if context < 2:
        raise UserError(
            f"the coarsest map of {type(loaded.model).__name__} has one cell; pass larger pictures"
        )
    numbers_N = np.arange(files.count * context, dtype=np.int32)
    try:
        probe = make_probe(
            numbers_N, context, measure.points, measure.batches, measure.folds, measure.seed
        )
    except UserError as error:
        need = str(error).partition("; ")[2]
        need = need.replace("model.context, or take a longer text", "measure.points")
        raise UserError(
            f"data.path {path} holds {files.count} {files.kind}, {context} positions each; {need}, "
            "or take more files"
        ) from error
    places_GWT = probe.tokens_GWT
    window_GW = places_GWT[:, :, 0] // context
    rng = np.random.default_rng(measure.seed)
    inputs = [files.prepare(window_W) for window_W in window_GW.tolist()]
    shuffled = [
        files.shuffle(window_W, inputs_W, rng)
        for window_W, inputs_W in zip(window_GW.tolist(), inputs, strict=True)
    ]
    probe = probe._replace(tokens_GWT=np.stack(inputs), shuffled_GWT=np.stack(shuffled))
    embeddings = None if shapes else getattr(loaded.base, "embeddings", None)
    tokens = {name: getattr(embeddings, name, None) for name in SPECIAL_TOKENS}
    special = {name: x.shape[1] for name, x in tokens.items() if x is not None and x.shape[1]}
    fixed_T = np.arange(context) < sum(special.values())
    positions = POSITION_SETS
    if shapes:  # no cell of a map is the first token
        positions, probe = POSITION_SETS[:1], probe._replace(picks_SGP=probe.picks_SGP[:1])
    elif sum(special.values()) > 1:
        positions = (*POSITION_SETS, SPECIAL)
        picks_GP = pick_ordinary(np.broadcast_to(fixed_T, places_GWT.shape), measure)
        probe = probe._replace(picks_SGP=np.concatenate([probe.picks_SGP, picks_GP[None]]))
    names = {number: files.label(number) for number in window_GW.ravel().tolist()}
    batches, windows = window_GW.shape
    contents = _describe(shapes, context, special)
    about = files.about | {
        "windows": f"{windows} {files.kind} × {batches} batches, {contents}",
        "first_windows": " | ".join(names[number] for number in window_GW[0, :3].tolist()),
    }
    return Windows(probe, positions, fixed_T, places_GWT, shapes, names, about)


def _describe(shapes: list[feature_maps.Shape], context: int, special: dict[str, int]) -> str:
    if shapes:
        sizes = ", ".join(f"{height} × {width}" for height, width, _ in dict.fromkeys(shapes))
        return (
            f"maps of {sizes}; a point is a cell of the coarsest, and in finer ones a cell below it"
        )
    named = " and ".join(
        f"{count} {SPECIAL_TOKENS[name]}" if count > 1 else SPECIAL_TOKENS[name]
        for name, count in special.items()
    )
    return f"{context} positions each, in front {named or 'the first of them'}"
