"""A file of vectors and how it is measured: every setting and its default. It imports little: refusals come at once."""

from dataclasses import dataclass, field

from anisoscope.config.measure import DEFAULT, OF_ARRAYS
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, at_least, choose, once, within


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    path: str = ""  # .npy, .npz, .safetensors, .zarr or NetCDF
    layers: tuple[str, ...] = ()  # names of arrays (points, width), in order; (): the array `vectors`, or the only one
    clusters: str = ""  # name of the array of labels, one for each point; "": `clusters`, if it is there
    positions: str = ""  # name of the array of places in the cluster, 0 its first token; "": `positions`, if there
    pieces: int = 1  # in which points are measured that do not fit into memory at once; values are means over them


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldsConfig:
    families: tuple[str, ...] = tuple(name for name in OF_ARRAYS if name in DEFAULT)  # docs/reference/files.md
    nulls: tuple[str, ...] = ("gaussian",)  # what every value is compared with
    folds: int = 8  # of whole clusters, resampled for the intervals; 1: no intervals
    seed: int = 0  # of the folds and of the null model


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsConfig:
    vectors: FileConfig = field(default_factory=FileConfig)
    measure: FoldsConfig = field(default_factory=FoldsConfig)


def check_vectors(config: VectorsConfig) -> None:
    """Raise UserError, one line, where nothing can be measured."""
    if not config.vectors.path:
        raise UserError("no vectors given; pass --config.vectors.path=FILE, .npy, .npz, .safetensors, .zarr or .nc")
    at_least("measure.folds", config.measure.folds, 1)
    at_least("vectors.pieces", config.vectors.pieces, 1)
    within("measure.seed", config.measure.seed, 0, LARGEST_SEED)
    allowed = {"families": OF_ARRAYS, "nulls": FoldsConfig().nulls}
    for name, names in allowed.items():
        for value in getattr(config.measure, name):
            choose(f"measure.{name}", value, names)
        once(f"measure.{name}", getattr(config.measure, name))
    if not config.measure.families:
        raise UserError(f"measure.families is empty; choose from {', '.join(OF_ARRAYS)}")
