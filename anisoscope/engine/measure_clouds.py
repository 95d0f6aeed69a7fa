"""Measure layers of the same points, in programs that few sizes of clouds share.

G are groupings of the points.
"""

import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from anisoscope.config.measure_config import GAUSSIAN
from anisoscope.engine import programs
from anisoscope.engine.cloud_programs import (
    Constants,
    Layer,
    Selection,
    measure_layer,
    measure_lens,
    measure_stack,
)
from anisoscope.engine.sizes import Folds, Layout, fewest_points, pad
from anisoscope.measurement.families.registry import FAMILIES, quantities
from anisoscope.measurement.quantity import MEASURED, Values
from anisoscope.metrics import lapack


class LensInput(NamedTuple):
    """The unembedding, and the token that each point is to predict."""

    unembedding: Any
    target_P: np.ndarray


def measure_clouds(
    clouds: Iterable[np.ndarray],
    layout: Layout,
    folds: Folds,
    selection: Selection,
    key: Array,
    numbered: bool,
    check: Callable[[int], None],
    lens: LensInput | None = None,
) -> tuple[dict[str, Values], list[int]]:
    """Measure layers of the same points.

    Args:
        clouds: The layers (P, D), read one after another.
        layout: The labels of the points.
        folds: How the points are resampled.
        selection: What is measured.
        key: Key of the null models.
        numbered: Whether the number of a layer makes its key, or else a checksum of the layer.
        check: Raises where this many bytes are not available.
        lens: Read by the family logit_lens.

    Returns:
        {cloud: {quantity: (layer, …, R)}}, and the number of copies in each layer.
    """
    points, run = len(folds.fold_P), programs.make_run(check)
    together = selection.families_reading("layers") or selection.families_reading("logit_lens")
    layout = jax.device_put(layout._replace(size=0))._replace(size=layout.size)
    found, copied, kept, nearest, planned = [], [], [], [], None
    for number, cloud_PD in enumerate(clouds):
        name = number if numbered else zlib.crc32(np.ascontiguousarray(cloud_PD))
        constants = make_constants(selection, points, cloud_PD.shape[1], layout.size)
        x_PD = jax.device_put(pad(cloud_PD, layout.size))
        arguments = layout, selection, constants, key, np.uint32(name)
        with lapack.threads_for(min(x_PD.shape)):
            if x_PD.shape != planned:
                planned = x_PD.shape
                measure_layer(programs.plan, x_PD, *arguments)
            layer = jax.device_get(measure_layer(run, x_PD, *arguments))
        found.append(trim(_average(layer), folds))
        copied.append(points - len(np.unique(layer.copies.original_P[:points])))
        if together:
            kept.append(x_PD)
            nearest.append(layer.nearest_G)
    values = jax.tree.map(lambda *layers: np.stack(layers), *found)
    if together:
        width = max(x_PD.shape[1] for x_PD in kept)
        # columns of zeros change no distance, where layers are compared
        x_NPD = np.stack([np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in kept])
        compared = _compare(run, x_NPD, nearest, layout, selection, lens)
        for cloud, by_name in trim(compared, folds).items():
            values.setdefault(cloud, {}).update(by_name)
    return values, copied


def make_constants(selection: Selection, points: int, width: int, size: int) -> Constants:
    """Compute what families need of the numbers alone, in the shapes of the program of this size."""
    makers = {name: FAMILIES[name].constants for name in selection.families_reading("cloud")}
    least = fewest_points(size)
    return {name: make(points, width, least, size) for name, make in makers.items() if make}


def _average(layer: Layer) -> dict[str, Values]:
    """Average over the draws of the Gaussian null model."""
    values = dict(layer.values)
    if GAUSSIAN in values:
        merged = [
            {name: x for by_cloud in draw for name, x in by_cloud[MEASURED].items()}
            for draw in values[GAUSSIAN]
        ]
        values[GAUSSIAN] = {
            name: np.mean([draw[name] for draw in merged], axis=0) for name in merged[0]
        }
    return {cloud: by_name for cloud, by_name in values.items() if by_name or cloud == MEASURED}


def _compare(
    run: programs.Call,
    x_NPD: Array,
    nearest: list[Any],
    layout: Layout,
    selection: Selection,
    lens: LensInput | None,
) -> dict[str, Values]:
    """Measure the families that read all layers."""
    nearest_N = None
    if selection.compares:
        nearest_N = jax.tree.map(lambda *layers: np.stack(layers), *nearest)
    calls = [
        (measure_stack, (x_NPD, layout.labels, nearest_N if FAMILIES[name].neighbors else None))
        for name in selection.families_reading("layers")
    ]
    if lens is not None:
        target_P = pad(lens.target_P, layout.size, -1)
        calls.append((measure_lens, (x_NPD, layout.labels, lens.unembedding, target_P)))
    names = selection.families_reading("layers") + selection.families_reading("logit_lens")
    values: dict[str, Values] = {MEASURED: {}}
    for call in (programs.plan, run):  # all are compiled side by side
        for (function, arrays), name in zip(calls, names, strict=True):
            measured = call(function, *arrays, name=name)
            values[MEASURED] |= measured[MEASURED]
    return jax.device_get(values)


def trim(values: dict[str, Values], folds: Folds) -> dict[str, Values]:
    """Leave out replicates of folds and sections that are none, and weight those of unequal ones."""
    schema = quantities()
    return {
        cloud: {
            name: folds.weight(np.asarray(value), schema[name].resampling)
            for name, value in by_name.items()
        }
        for cloud, by_name in values.items()
    }
