"""Measure activations that another program computed, one batch of windows at a time.

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
from anisoscope.utils.settings import MeshConfig

# resid_ZNWTD, q_ZNWTHK, k_ZNWTHK; None: no family reads queries and keys
Arrays = tuple[np.ndarray, np.ndarray | None, np.ndarray | None]


class ModelExtras(NamedTuple):
    """A model's attention bias, unembedding and targets, as in `activations.Read`."""

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
    extras: ModelExtras = ModelExtras(),  # noqa: B008 (immutable)
) -> Measured:
    """Measure one batch of windows with the panel, in NumPy; arrays (1, positions, …).

    Position sets are distributed over cores or devices. All batches, and all models of one shape,
    share one program.

    Args:
        batch: number of the batch, which selects its random key.
        inputs: activations of the inputs that `input_names(settings)` lists, in that order.
        others: residual streams (N, W, T, D) of the same windows to compare with.
        picks_SP: positions in the windows, fold after fold of whole windows, equally many per fold.
        visible_STT: which key (column) each query sees, by set of positions.
        settings: what to measure.
        extras: bias, unembedding and targets, where a family reads them.

    Raises:
        ValueError: the arguments do not fit together.
    """
    _check(inputs, picks_SP, settings, extras)
    windows = tuple(None if x_ZN is None else x_ZN[None] for x_ZN in inputs)
    width, sets = inputs[0].shape[-1], len(picks_SP)
    key_G = batch_keys(settings.seed, settings.batches)[batch : batch + 1]
    unseeded = dataclasses.replace(settings, seed=0)  # keys are arguments
    program = _compile_measure(
        unseeded, estimate_cloud_bytes(settings.points, width, settings.families)
    )

    def measure_set(s: int, arrays: tuple) -> Measured:
        return program(*arrays, picks_SP[s], visible_STT[s])

    with lapack.threads_for(0 if sets > 1 else min(settings.points, width)):
        parts = mesh.map_over_devices(measure_set, (extras, others, windows, key_G), sets)
    return join_batches(parts, axis=1)


def _check(
    inputs: Arrays, picks_SP: np.ndarray, settings: MeasureConfig, extras: ModelExtras
) -> None:
    """Raise ValueError where the arrays do not fit the settings, or are not finite."""
    available = {
        "heads": inputs[1] is not None,
        "vectors": inputs[1] is not None,
        "logit_lens": extras.unembedding is not None,
    }
    unknown = [
        name
        for name in settings.families
        if FAMILIES[name].reads_types or not available.get(FAMILIES[name].input_kind, True)
    ]
    if unknown:
        raise ValueError(
            f"families: {', '.join(unknown)} cannot be measured on these arrays; leave them out"
        )
    if len(inputs[0]) != len(names := input_names(settings)):
        raise ValueError(
            f"activations have {len(inputs[0])} inputs; pass {len(names)}: {' and '.join(names)}"
        )
    if picks_SP.shape[1] != settings.points:
        raise ValueError(
            f"picks_SP has {picks_SP.shape[1]} points, measure.points is {settings.points}; pass "
            "as many"
        )
    if not np.isfinite(inputs[0]).all():
        raise ValueError(
            "activations hold numbers that are not finite; check the program that made them"
        )


def join_batches(parts: list[Measured], axis: int = 0) -> Measured:
    """Join the values of all batches, or sets of positions, and keep the vectors of the first."""
    values = jax.tree.map(
        lambda *values: np.concatenate(values, axis), *(part.values for part in parts)
    )
    return Measured(values, parts[0].vectors)


@functools.cache
def _compile_measure(settings: MeasureConfig, cloud_bytes: int) -> Callable[..., Measured]:
    """Jit the measurement of one batch and one set of positions."""

    def activate(extras: ModelExtras, others: Any, activations_Z: Any) -> tuple:
        return Read(*activations_Z, extras.unembedding, extras.target_ZWT, extras.bias_NHTT), others

    spec = Spec(activate, settings, over_clouds=mesh.over_clouds(MeshConfig(), cloud_bytes))

    def measure(
        extras: ModelExtras, others: Any, windows: tuple, key_G: Any, picks_P: Any, visible_TT: Any
    ) -> Measured:
        return measure_batches(
            spec, extras, others, Batches(windows, key_G, picks_P[None, None], visible_TT[None])
        )

    return jax.jit(measure)
