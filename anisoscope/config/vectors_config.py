"""Settings of a file of vectors and its measurement."""

from dataclasses import dataclass, field

from anisoscope.config.measure_config import ARRAY_FAMILIES, CLOUD_NULLS, DEFAULT
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import LARGEST_SEED, check_fields, setting


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    path: str = setting("", "file of vectors: .npy, .npz, .safetensors or NetCDF")
    layers: tuple[str, ...] = setting(
        (), "names of the arrays (points, width); (): `vectors`, or the only array"
    )
    clusters: str = setting(
        "", "array with each point's cluster, such as its document; empty: `clusters`, if any"
    )
    token_positions: str = setting(
        "", "array with each point's position in its cluster; empty: `token_positions`, if any"
    )
    num_chunks: int = setting(
        1, "split the points into this many chunks; values are means over chunks", low=1
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldsConfig:
    families: tuple[str, ...] = setting(
        tuple(name for name in ARRAY_FAMILIES if name in DEFAULT),
        "groups of metrics to compute (docs/reference/metric_families.md)",
        choices=ARRAY_FAMILIES,
        nonempty=True,
    )
    nulls: tuple[str, ...] = setting(
        CLOUD_NULLS, "null models with which every value is compared", choices=CLOUD_NULLS
    )
    folds: int = setting(
        8, "folds of whole clusters, resampled for confidence intervals; 1: no intervals", low=1
    )
    seed: int = setting(
        0, "random seed of the folds and of the null models", low=0, high=LARGEST_SEED
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class VectorsConfig:
    vectors: FileConfig = field(default_factory=FileConfig)
    measure: FoldsConfig = field(default_factory=FoldsConfig)


def check_vectors(config: VectorsConfig) -> None:
    """Raise UserError if nothing can be measured with these settings."""
    if not config.vectors.path:
        raise UserError(
            "no vectors named; pass --config.vectors.path=FILE (.npy, .npz, .safetensors, .nc)"
        )
    check_fields(config)
