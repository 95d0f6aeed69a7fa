"""One revision of a model of maps: everything measured of it, batch by batch.

Letters: G probe batches, S sets of positions.
"""

from typing import Any

import numpy as np

from anisoscope.config.pretrained import PretrainedConfig
from anisoscope.measurement.sources.activations import Measured, inputs_of
from anisoscope.measurement.sources.hub.load import Loaded
from anisoscope.measurement.sources.hub.modalities import maps
from anisoscope.measurement.sources.hub.plan import Plan, by_batch
from anisoscope.measurement.sources.hub.residuals import Residuals


def measured(plan: Plan, loaded: Loaded, step: int, last: bool, beside: Residuals) -> tuple[Measured, dict[str, float]]:
    seed = plan.config.measure.seed

    def read(g: int, size: int, again: bool) -> list[np.ndarray]:
        clouds_N = maps.clouds(loaded, plan.inputs(g, again), picked(plan.windows, seed, g), size)
        if not again:
            beside.keep(step, g, maps.padded(clouds_N)[0])
        return clouds_N

    def compute(g: int, clouds_N: list[np.ndarray], again: bool) -> Measured:
        at = picked(plan.windows, seed, g)
        return Measured(maps.measure_batch(g, clouds_N, beside.beside(step, g), at, plan.settings(again)), {})

    return by_batch(plan, last, read, compute)


def residuals(loaded: Loaded, windows: Any, config: PretrainedConfig) -> list[np.ndarray]:
    """Of each batch the clouds alone, as other revisions are compared with them."""
    size, seed = config.pretrained.batch_size, config.measure.seed
    inputs_GW = windows.probe.tokens_GWT
    return [
        maps.padded(maps.clouds(loaded, inputs_W[None], picked(windows, seed, g), size))[0]
        for g, inputs_W in enumerate(inputs_GW)
    ]


def picked(windows: Any, seed: int, g: int) -> maps.Picked:
    return maps.picked(windows.probe.picks_SGP[0, g], windows.sizes, seed)


def words(windows: Any) -> str:
    cells = windows.places_GWT.shape[2]
    return f"D={min(windows.widths)} to {max(windows.widths)}, windows of {cells} cells of the coarsest map"


def bytes_of(windows: Any, config: PretrainedConfig) -> int:
    """Of a batch: inputs, and the points of all layers."""
    return windows.probe.tokens_GWT[0].nbytes * len(inputs_of(config.measure)) + 4 * config.measure.points * sum(
        windows.widths
    )
