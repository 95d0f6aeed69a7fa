"""Activations that another program computed, as a source: one batch of windows at a time through
the same panel.

Letters: G batches, S sets of positions, Z inputs of a batch: its windows, and shuffled ones.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import numpy as np

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.panel import estimate_cloud_bytes
from anisoscope.metrics import lapack
from anisoscope.metrics.logit_lens import Unembedding
from anisoscope.sources.activations import (
    Batches,
    Measured,
    Read,
    Spec,
    batch_keys,
    input_names,
    measure_batches,
)
from anisoscope.utils import mesh
from anisoscope.utils.layout import MeshConfig

# resid_ZNWTD, q_ZNWTHK, k_ZNWTHK; None: no family reads queries and keys
Arrays = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]


class Beside(NamedTuple):
    """A model's bias, unembedding and targets, in the words of `activations.Read`."""

    bias_NHTT: np.ndarray | None = None
    unembedding: Unembedding | None = None
    target_ZWT: np.ndarray | None = None


def measure_batch(
    batch: int,
    inputs: Arrays,
    others: dict[str, np.ndarray],
    picks_SP: np.ndarray,
    visible_STT: np.ndarray,
    settings: MeasureConfig,
    beside: Beside = Beside(),  # noqa: B008 (nothing)
) -> Measured:
    """Measure one batch of windows with the panel, in NumPy; arrays (1, positions, …).

    `inputs` are the activations of what `input_names(settings)` names, in that order; `others` the
    residual streams (N, W, T, D) of the same windows to compare with. `picks_SP` are places in the
    windows: fold after fold of whole windows, as many of each. Sets of positions are shared out to
    cores or devices; all batches, and all models of one shape, are one program. ValueError where
    these do not fit together.
    """
    _check(inputs, picks_SP, settings, beside)
    windows = tuple(None if x_ZN is None else x_ZN[None] for x_ZN in inputs)
    width, sets = inputs[0].shape[-1], len(picks_SP)
    key_G = batch_keys(settings.seed, settings.batches)[batch : batch + 1]
    unseeded = dataclasses.replace(settings, seed=0)  # keys are arguments
    program = _computation(
        unseeded, estimate_cloud_bytes(settings.points, width, settings.families)
    )

    def measure_set(s: int, arrays: tuple) -> Measured:
        return program(*arrays, picks_SP[s], visible_STT[s])

    with lapack.threads_for(0 if sets > 1 else min(settings.points, width)):
        parts = mesh.map_over_devices(measure_set, (beside, others, windows, key_G), sets)
    return _side_by_side(parts, axis=1)


def _check(inputs: Arrays, picks_SP: np.ndarray, settings: MeasureConfig, beside: Beside) -> None:
    """Raise ValueError where the arrays do not fit the settings, or lack what a family reads."""
    names, families = input_names(settings), settings.families
    text = [name for name in families if FAMILIES[name].reads_types]
    heads = [name for name in families if FAMILIES[name].input_kind in ("heads", "vectors")]
    if len(inputs[0]) != len(names):
        raise ValueError(
            f"activations of {len(inputs[0])} inputs; {' and '.join(names)} are measured: {len(names)}"
        )
    if picks_SP.shape[1] != settings.points or settings.points % settings.folds:
        raise ValueError(
            f"{picks_SP.shape[1]} points in {settings.folds} folds; measure.points is {settings.points}"
        )
    if text:
        raise ValueError(
            f"{', '.join(text)} cannot be measured of arrays: it reads characters of a text"
        )
    if "logit_lens" in families and (beside.unembedding is None or beside.target_ZWT is None):
        raise ValueError(
            "unembedding cannot be measured without how a model makes its output, and what it is to predict"
        )
    if heads and inputs[1] is None:
        raise ValueError(f"{', '.join(heads)} cannot be measured without queries and keys")
    if not np.isfinite(inputs[0]).all():
        raise ValueError("activations that are not finite")


def joined(batches: list[Measured]) -> Measured:
    """Join the values of all batches, and the vectors of the first."""
    return _side_by_side(batches, axis=0)


def _side_by_side(parts: list[Measured], axis: int) -> Measured:
    values = jax.tree.map(
        lambda *values: np.concatenate(values, axis), *(one.values for one in parts)
    )
    return Measured(values, parts[0].vectors)


@functools.cache
def _computation(settings: MeasureConfig, bytes_of_one: int) -> Callable[..., Measured]:
    """Jit the measurement of one batch and one set of positions."""

    def activate(beside: Beside, others: Any, activations_Z: Any) -> tuple:
        return Read(*activations_Z, beside.unembedding, beside.target_ZWT, beside.bias_NHTT), others

    spec = Spec(activate, settings, over_clouds=mesh.over_clouds(MeshConfig(), bytes_of_one))

    def measure(
        beside: Beside, others: Any, windows: tuple, key_G: Any, picks_P: Any, visible_TT: Any
    ) -> Measured:
        return measure_batches(
            spec, beside, others, Batches(windows, key_G, picks_P[None, None], visible_TT[None])
        )

    return jax.jit(measure)
