"""Random values in the form in which checkpoints are measured, and the tables of them."""

import json

import numpy as np
import xarray as xr

from anisoscope.metrics.registry import coordinates, quantities
from anisoscope.results import replicates_table

S, G, J, LAYERS, BLOCKS, HEADS = 2, 3, 4, 4, 3, 2
POSITIONS = ("all", "without_first_token")
NULLS = ("gaussian", "shuffled", "untrained")
NAMES = (
    "anisotropy",
    "twonn",
    "duplicate_points",
    "query_drift",
    "top_coordinate_variance_share",
    "gride",
    "cka_layers",
)
CLOUDS = {  # of each cloud, what is in it: as null models have it
    "measured": NAMES,
    "gaussian": ("twonn", "duplicate_points", "gride"),
    "shuffled": (
        "anisotropy",
        "twonn",
        "duplicate_points",
        "query_drift",
        "top_coordinate_variance_share",
        "gride",
    ),
}
MADE_BY = {"measure.points": 16, "measure.batches": G, "corpus_sha256": "digest"}
ATTRIBUTES = {"run": "decoder", "corpus": "letters", "made_by": json.dumps(MADE_BY)}


def sizes() -> dict[str, int]:
    found = {"batch": G, "positions": S, "layer": LAYERS, "other_layer": LAYERS, "block": BLOCKS}
    found |= {"head": HEADS, "jackknife": 1 + J, "sections": 5, "share_sections": 5}
    return found | {name: len(labels) for name, labels in coordinates().items()}


def values(
    seed: int = 0, clouds: dict[str, tuple[str, ...]] = CLOUDS
) -> dict[str, replicates_table.Arrays]:
    rng, lengths = np.random.default_rng(seed), sizes()
    return {
        cloud: {
            name: rng.random([lengths[dim] for dim in quantities()[name].raw_dims], np.float32)
            for name in names
        }
        for cloud, names in clouds.items()
    }


def table(
    measured: dict[str, replicates_table.Arrays], step: int = 7, **attributes: str
) -> xr.Dataset:
    return replicates_table.build_table(measured, step, POSITIONS, ATTRIBUTES | attributes)
