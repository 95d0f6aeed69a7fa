"""Measure layers of the same points, and queries and keys, in programs that clouds share.

G are groupings of the points.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array

from anisoscope.config.measure_config import GAUSSIAN
from anisoscope.engine import programs
from anisoscope.engine.cloud_programs import (
    Constants,
    Layer,
    ReferenceClouds,
    Selection,
    measure_head_family,
    measure_layer,
    measure_lens,
    measure_stack,
)
from anisoscope.engine.sizes import Folds, Layout, lay_out, pad
from anisoscope.metrics import lapack
from anisoscope.metrics.attention import Heads
from anisoscope.metrics.quantity import MEASURED, Values
from anisoscope.metrics.registry import FAMILIES, quantities

Check = Callable[[int], None]  # raises where so many bytes are not available


class LensInput(NamedTuple):
    """The unembedding, and the token that each point is to predict."""

    unembedding: Any
    target_P: np.ndarray


class Measured(NamedTuple):
    """What `measure_clouds` returns."""

    values: dict[str, Values]  # {cloud: {quantity: (layer, …, R)}}
    copies: list[int]  # in each layer


def measure_clouds(
    clouds: Iterable[np.ndarray | Array],
    layout: Layout,
    folds: Folds,
    selection: Selection,
    key: Array,
    numbers: Sequence[int] | None,
    check: Check,
    lens: LensInput | None = None,
    reference_clouds: ReferenceClouds | None = None,
    pairs: bool = True,
) -> Measured:
    """Measure layers of the same points.

    Args:
        clouds: The layers (P, D), read one after another; on an accelerator they may lie there.
        layout: The labels of the points.
        folds: How the points are resampled.
        selection: What is measured.
        key: Key of the null models.
        numbers: Numbers of the layers, which make their keys; None: a checksum of each does.
        check: Raises where this many bytes are not available.
        lens: Read by the family logit_lens.
        reference_clouds: Clouds that layers are compared with, beside one another.
        pairs: Whether families that read all layers are measured.
    """
    points, run = len(folds.fold_P), programs.make_run(check)
    together = pairs and any(map(selection.families_reading, ("layers", "logit_lens")))
    # sizes stay numbers of Python: a program is compiled for each
    layout = jax.device_put(layout._replace(size=0, fewest=0))._replace(
        size=layout.size, fewest=layout.fewest
    )
    found, copied, kept, nearest = [], [], [], []
    for x_PD, layer in _measure_each(run, clouds, layout, points, selection, key, numbers):
        by_cloud, copies = jax.device_get((layer.values, layer.copies))
        found.append(trim(_average_draws(by_cloud), folds))
        copied.append(points - len(np.unique(copies.original_P[:points])))
        if together:
            kept.append(x_PD)
            nearest.append(layer.nearest_G)
    values = jax.tree.map(lambda *layers: np.stack(layers), *found)
    if together:
        compared = _measure_together(run, kept, nearest, layout, selection, lens, reference_clouds)
        for cloud, by_name in trim(compared, folds).items():
            values.setdefault(cloud, {}).update(by_name)
    return Measured(values, copied)


def _measure_each(
    run: programs.Call,
    clouds: Iterable[np.ndarray | Array],
    layout: Layout,
    points: int,
    selection: Selection,
    key: Array,
    numbers: Sequence[int] | None,
) -> Iterator[tuple[Array, Layer]]:
    """Measure layer after layer by itself; an accelerator begins the next before one is returned."""
    planned, last = None, None
    for place, cloud_PD in enumerate(clouds):
        number = numbers[place] if numbers else zlib.crc32(np.ascontiguousarray(cloud_PD))
        constants = make_constants(selection, points, cloud_PD.shape[1], layout)
        x_PD = jax.device_put(pad(cloud_PD, layout.size))
        arguments = layout, selection, constants, key, np.uint32(number)
        with lapack.threads_for(min(x_PD.shape)):
            if x_PD.shape != planned:
                planned = x_PD.shape
                measure_layer(programs.compile_ahead, x_PD, *arguments)
            layer = x_PD, measure_layer(run, x_PD, *arguments)
        if last:
            yield last
        last = layer
    if last:
        yield last


def measure_all_heads(
    heads: Heads, folds: Folds, families: tuple[str, ...], check: Check
) -> Values:
    """Measure queries and keys of all blocks, (block, head, …, R); `folds` are those of windows."""
    run, values = programs.make_run(check), {}
    keep_RB = lay_out(folds, None, exact=True).labels.keep_RP
    for call in (programs.compile_ahead, run):
        for name in families:
            values |= call(measure_head_family, heads, keep_RB, name=name)
    return trim({MEASURED: jax.device_get(values)}, folds)[MEASURED]


def make_constants(selection: Selection, points: int, width: int, layout: Layout) -> Constants:
    """Compute what families need of the numbers alone, in the shapes of the program of this size."""
    makers = {name: FAMILIES[name].constants for name in selection.families_reading("cloud")}
    numbers = points, width, layout.fewest, layout.size
    return {name: make(*numbers) for name, make in makers.items() if make}


def _average_draws(values: dict[str, Any]) -> dict[str, Values]:
    """Average over the draws of the Gaussian null model."""
    values = dict(values)
    if GAUSSIAN in values:
        merged = [
            {name: x for by_cloud in draw for name, x in by_cloud[MEASURED].items()}
            for draw in values[GAUSSIAN]
        ]
        values[GAUSSIAN] = {
            name: np.mean([draw[name] for draw in merged], axis=0) for name in merged[0]
        }
    return {cloud: by_name for cloud, by_name in values.items() if by_name or cloud == MEASURED}


def _measure_together(
    run: programs.Call,
    clouds: list[Array],
    nearest: list[Any],
    layout: Layout,
    selection: Selection,
    lens: LensInput | None,
    reference_clouds: ReferenceClouds | None,
) -> dict[str, Values]:
    """Measure the families that read all layers."""
    calls, reference_clouds = [], reference_clouds or ReferenceClouds({}, {})
    for name in selection.families_reading("layers"):
        neighbors = nearest if FAMILIES[name].neighbors else None
        calls.append((name, measure_stack, (clouds, layout.labels, neighbors, reference_clouds)))
    if lens is not None:
        arrays = clouds, layout.labels, lens.unembedding, pad(lens.target_P, layout.size, -1)
        names = selection.families_reading("logit_lens")
        calls.extend((name, measure_lens, arrays) for name in names)
    values: dict[str, Values] = {}
    for call in (programs.compile_ahead, run):  # all are compiled side by side
        for name, function, arrays in calls:
            for cloud, by_name in call(function, *arrays, name=name).items():
                values.setdefault(cloud, {}).update(by_name)
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
