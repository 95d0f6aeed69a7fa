"""A file of vectors and how it is measured: every setting and its default. It imports little:
refusals come at once.
"""

from dataclasses import dataclass, field

from anisoscope.config.measure_config import CLOUD_NULLS, DEFAULT, OF_ARRAYS
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, check_fields, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    path: str = setting("", ".npy, .npz, .safetensors, .zarr or NetCDF")
    layers: tuple[str, ...] = setting(
        (), "names of arrays (points, width); (): `vectors`, or the only one"
    )
    clusters: str = setting("", "array of the points' labels; empty: `clusters`, if any")
    token_positions: str = setting(
        "", "array of places in the cluster; empty: `token_positions`, if any"
    )
    num_chunks: int = setting(1, "measured one by one; values are means over them", low=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldsConfig:
    families: tuple[str, ...] = setting(
        tuple(name for name in OF_ARRAYS if name in DEFAULT),
        "docs/reference/metric_families.md",
        choices=OF_ARRAYS,
        nonempty=True,
    )
    nulls: tuple[str, ...] = setting(
        CLOUD_NULLS, "what values are compared with", choices=CLOUD_NULLS
    )
    folds: int = setting(8, "of whole clusters, for the intervals; 1: none", low=1)
    seed: int = setting(0, "of the folds and of the null model", low=0, high=LARGEST_SEED)


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsConfig:
    vectors: FileConfig = field(default_factory=FileConfig)
    measure: FoldsConfig = field(default_factory=FoldsConfig)


def check_vectors(config: VectorsConfig) -> None:
    """Raise UserError, one line, where nothing can be measured."""
    if not config.vectors.path:
        raise UserError(
            "no vectors given; pass --config.vectors.path=FILE, .npy, .npz, .safetensors, .zarr or .nc"
        )
    check_fields(config)
