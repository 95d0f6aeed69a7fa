"""Activations that another program computed, as a source: one batch of windows at a time through the same panel.

Letters: S sets of positions, Z inputs of a batch: its windows, and shuffled ones.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from anisoscope.config.measure import MeasureConfig
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.panel import bytes_of_cloud
from anisoscope.measurement.sources.activations import Batches, Measured, Read, Spec, inputs_of, keys, measure_batches
from anisoscope.metrics.readout import Readout
from anisoscope.utils import mesh
from anisoscope.utils.layout import MeshConfig

COPIED = 1 << 30  # bytes of vectors: up to so many each device holds a copy, and takes sets of positions of its own
# resid_ZNWTD, q_ZNWTHK, k_ZNWTHK; None: no family reads queries and keys
Arrays = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]


class Beside(NamedTuple):
    """What a model has beside its activations, in the words of `activations.Read`."""

    bias_NHTT: np.ndarray | None = None
    readout: Readout | None = None
    target_ZWT: np.ndarray | None = None

    @property
    def nbytes(self) -> int:
        return sum(x.nbytes for x in jax.tree.leaves(self))


def measure_batch(
    batch: int,
    inputs: Arrays,
    others: dict[str, np.ndarray],
    picks_SP: np.ndarray,
    visible_STT: np.ndarray,
    settings: MeasureConfig,
    beside: Beside = Beside(),  # noqa: B008 (nothing)
) -> Measured:
    """The panel of one batch of windows, in NumPy; arrays (1, positions, …).

    `inputs` are the activations of what `inputs_of(settings)` names, in that order; `others` the residual streams
    (N, W, T, D) of the same windows to compare with. `picks_SP` are places in the windows: fold after fold of whole
    windows, as many of each. Sets of positions are shared out to the devices; all batches, and all models of one
    shape, are one program. ValueError where these do not fit together.
    """
    _check(inputs, picks_SP, settings, beside)
    devices = mesh.make_mesh(MeshConfig())
    if sum(x_ZN.nbytes for x_ZN in inputs if x_ZN is not None) + beside.nbytes <= COPIED:
        devices = mesh.measuring_mesh(1, len(picks_SP)) or devices
    windows, width = tuple(None if x_ZN is None else x_ZN[None] for x_ZN in inputs), inputs[0].shape[-1]
    one = Batches(windows, keys(settings)[batch : batch + 1], picks_SP[:, None], visible_STT)
    given = jax.device_put((beside, others, one), NamedSharding(devices, P()))
    return jax.device_get(
        _computation(settings, devices, bytes_of_cloud(settings.points, width, settings.families))(*given)
    )


def _check(inputs: Arrays, picks_SP: np.ndarray, settings: MeasureConfig, beside: Beside) -> None:
    names, of_text = inputs_of(settings), [name for name in settings.families if FAMILIES[name].of_text]
    of_heads = [name for name in settings.families if FAMILIES[name].of in ("heads", "vectors")]
    if len(inputs[0]) != len(names):
        raise ValueError(f"activations of {len(inputs[0])} inputs; {' and '.join(names)} are measured: {len(names)}")
    if picks_SP.shape[1] != settings.points or settings.points % settings.folds:
        raise ValueError(f"{picks_SP.shape[1]} points in {settings.folds} folds; measure.points is {settings.points}")
    if of_text:
        raise ValueError(f"{', '.join(of_text)} cannot be measured of arrays: it reads characters of a text")
    if "readout" in settings.families and (beside.readout is None or beside.target_ZWT is None):
        raise ValueError("readout cannot be measured without how a model makes its output, and what it is to predict")
    if of_heads and inputs[1] is None:
        raise ValueError(f"{', '.join(of_heads)} cannot be measured without queries and keys")
    if not np.isfinite(inputs[0]).all():
        raise ValueError("activations that are not finite")


def joined(batches: list[Measured]) -> Measured:
    """Of all batches: values side by side, vectors of the first."""
    return Measured(
        jax.tree.map(lambda *values: np.concatenate(values), *(one.values for one in batches)), batches[0].vectors
    )


@functools.cache
def _computation(settings: MeasureConfig, devices: jax.sharding.Mesh, bytes_of_one: int) -> Callable[..., Measured]:
    over_units = mesh.over_units(devices) if devices.axis_names == mesh.UNITS else lambda work: work
    over_clouds = mesh.over_clouds(MeshConfig(), bytes_of_one)

    def activate(beside: Beside, others: Any, activations_Z: Any) -> tuple:
        return Read(*activations_Z, beside.readout, beside.target_ZWT, beside.bias_NHTT), others

    spec = Spec(activate, settings, over_units, over_clouds)
    # Values stay where they are made: to gather them, devices would wait for one another.
    return jax.jit(functools.partial(measure_batches, spec))
