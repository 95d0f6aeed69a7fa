"""Compare every layer of one model with every layer of another, on clouds of the same points.

Letters: M layers of the second model, E its width, G batches, S sets of positions.
"""

from typing import NamedTuple

import jax
import numpy as np
import xarray as xr

from anisoscope.engine.layer_pairs import BETWEEN_MODELS, compare_every_layer
from anisoscope.engine.sizes import Folds, lay_out, pad
from anisoscope.metrics.quantity import MEASURED, PERMUTED, Values
from anisoscope.results.summary import summarize


class PairedClouds(NamedTuple):
    """The same P points of both models, and points of the first from other places of the text."""

    first_NPD: np.ndarray
    second_MPE: np.ndarray
    permuted_NPD: np.ndarray | None = None


def make_pair_table(
    batches: list[list[dict[str, Values]]], positions: tuple[str, ...]
) -> xr.Dataset:
    """Make the table of the values of each batch and set of positions, of clouds and null model."""
    known, stack = BETWEEN_MODELS, lambda *values: np.stack(values)
    values_G = jax.tree.map(stack, *(jax.tree.map(stack, *sets) for sets in batches))
    schema = {name: entry for name, entry in known.items() if name in values_G[MEASURED]}

    def label(cloud: str) -> xr.Dataset:
        named = {
            name: (x.raw_dims, values_G[cloud][name], x.attributes) for name, x in schema.items()
        }
        samples = xr.Dataset(named)
        layers = {dim: np.arange(samples.sizes[dim]) for dim in ("layer", "other_layer")}
        return samples.assign_coords({"positions": list(positions)} | layers)

    table = summarize(schema, label(MEASURED), {PERMUTED: label(PERMUTED).variables})
    return table.assign_attrs(permutations=1)


@jax.enable_x64(False)
def compare_clouds(clouds: PairedClouds, folds: Folds, aligned: bool = False) -> dict[str, Values]:
    """Compare every layer of one model with every layer of the other; `aligned`: by RSA too."""
    layout = lay_out(folds, None)
    size, labels = layout.size, layout.labels
    padded = (None if x is None else pad(np.swapaxes(x, 0, 1), size).swapaxes(0, 1) for x in clouds)
    found = jax.device_get(compare_every_layer(*padded, labels, aligned))
    return {
        cloud: {
            name: folds.weight(x, BETWEEN_MODELS[name].resampling) for name, x in values.items()
        }
        for cloud, values in found.items()
    }
