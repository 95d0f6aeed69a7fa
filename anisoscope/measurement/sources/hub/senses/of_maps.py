"""One revision of a model of maps: everything measured of it, batch by batch."""

from typing import Any

import numpy as np

from anisoscope.config.pretrained import PretrainedConfig
from anisoscope.measurement.sources import extracted
from anisoscope.measurement.sources.activations import Measured, inputs_of
from anisoscope.measurement.sources.hub.load import Loaded
from anisoscope.measurement.sources.hub.reading import guards
from anisoscope.measurement.sources.hub.residuals import Residuals
from anisoscope.measurement.sources.hub.senses import maps


def measured(
    loaded: Loaded, windows: Any, config: PretrainedConfig, step: int, last: bool, beside: Residuals
) -> tuple[Measured, dict[str, float]]:
    """The first batch of the last revision once more, a picture at a time: the noise floor."""
    settings, size = config.measure, config.pretrained.batch_size
    found: list[Measured] = []
    noise: dict[str, float] = {}
    for g in range(settings.batches):
        inputs_ZW = np.stack([windows.probe.tokens_GWT[g], windows.probe.shuffled_GWT[g]][: len(inputs_of(settings))])
        at = picked(windows, settings.seed, g)
        clouds_N = maps.clouds(loaded, inputs_ZW, at, size)
        beside.keep(step, g, maps.padded(clouds_N)[0])
        others = beside.beside(step, g)
        found.append(Measured(maps.measure_batch(g, clouds_N, others, at, settings), {}))
        if last and g == 0:
            clouds_N = maps.clouds(loaded, inputs_ZW, at, 1 if size > 1 else 2)
            noise = guards.noise_floor(found[0].values, maps.measure_batch(g, clouds_N, others, at, settings))
    return extracted.joined(found), noise


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
