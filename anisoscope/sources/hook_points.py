"""Describe hook points, the clouds inside blocks, such as the outputs of attention.

Each hook point has its own tables, hook_points/<name>/ in the folder of the run, in the same form
as the tables of the run; layer l is block l.
"""

import numpy as np
import xarray as xr

from anisoscope.results.averages import BLOCK

WORDS = {
    "attention_out": "output of attention, before it is added to the residual stream",
    "mlp_out": "output of the feed-forward layer, before it is added to the residual stream",
    "values": "values of all heads side by side",
}


def attributes(run: str, name: str) -> dict[str, str]:
    """Describe a hook point, in addition to the attributes of its run."""
    return {
        "run": f"{run}, {name}",
        "hook_point": name,
        "hook_point_in_words": WORDS[name],
        "layer_0": BLOCK,
    }


def number_blocks(table: xr.Dataset) -> xr.Dataset:
    """Assign layer numbers from 1, since the embedding is not a block's output."""
    layer = np.arange(1, table.sizes["layer"] + 1)
    return table.assign_coords(layer=layer, depth=("layer", layer / len(layer)))
