"""Hook points: clouds inside the blocks, where they are asked for: what attention and the feed-forward layer add, …

Each has tables of its own, hook_points/<name>/ in the folder of the run, in the form of the run's; layer l is block l.
"""

import pathlib

import numpy as np
import xarray as xr

from anisoscope.measurement.tables.averages import BLOCK

FOLDER, FOLDER_BEFORE = "hook_points", "sites"  # the second in runs of version 0.1
WORDS = {
    "attention_out": "output of attention, before it is added to the residual stream",
    "mlp_out": "output of the feed-forward layer, before it is added to the residual stream",
    "values": "values of all heads side by side",
}


def folder_of(root: pathlib.Path) -> pathlib.Path:
    """Where the tables of hook points lie, or would lie."""
    return root / (FOLDER_BEFORE if (root / FOLDER_BEFORE).is_dir() else FOLDER)


def attributes(run: str, name: str) -> dict[str, str]:
    """What tables of a hook point say beside what those of the run say."""
    return {"run": f"{run}, {name}", "hook_point": name, "hook_point_in_words": WORDS[name], "layer_0": BLOCK}


def of_blocks(table: xr.Dataset) -> xr.Dataset:
    """Layers from 1 on: the embedding is no block's output."""
    layer = np.arange(1, table.sizes["layer"] + 1)
    return table.assign_coords(layer=layer, depth=("layer", layer / len(layer)))
