"""Run the panel on activations of a batch: traced inside a program, or arrays of another program.

Shape letters are those of docs/reference/letters.md, and W windows of a batch, S position sets, Z inputs.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anisoscope.config.measure_config import INPUT_KINDS, MeasureConfig
from anisoscope.measurement import null_models
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.panel import MEASURED, Over, Sample, estimate_cloud_bytes, measure_panel
from anisoscope.measurement.quantity import Values
from anisoscope.measurement.resampling import Places, Types
from anisoscope.metrics import lapack
from anisoscope.metrics.logit_lens import Unembedding
from anisoscope.utils import mesh

INPUTS = (MEASURED, "shuffled")  # the windows, and the same characters in random order


Measured = dict[str, Values]  # {sample: {quantity: (batch, positions, *dims, R)}}


class Read(NamedTuple):
    """Activations of the inputs of a batch, and what the logit lens and attention need."""

    resid_ZLBTD: Any
    q_ZNBTHK: Any = None  # None: no family reads queries and keys
    k_ZNBTHK: Any = None
    unembedding: Unembedding | None = None  # maps a vector of any layer to logits
    target_ZBT: Array | None = None  # the token to predict at each position; below 0: none
    bias_NHTT: Array | None = None  # added to the scores, the same in every window
    types_Z: Types | None = None  # at all positions of each input; None: unknown


# Accelerators round the factors of float32 products to TF32 or bfloat16 by default.
@jax.default_matmul_precision("highest")
def measure_positions(
    read_Z: Read,
    others: dict[str, Array],
    picks_P: Array,
    visible_TT: Array,
    key: Array,
    settings: MeasureConfig,
    over_clouds: Over = jax.lax.map,
) -> Measured:
    """Measure one set of positions of a batch, without the axes of both; pure and un-jitted.

    `others` are residual streams to compare with, {"previous": …, "last": …}.
    """
    samples = {
        name: _pick_sample(read_Z, z, picks_P, visible_TT)
        for z, name in enumerate(input_names(settings))
    }
    clouds = {name: _pick_clouds(resid_LBTD, picks_P) for name, resid_LBTD in others.items()}
    permuted_NPD = None
    if PERMUTED in settings.nulls:
        permuted_NPD = null_models.permuted_clouds(read_Z.resid_ZLBTD[0], picks_P, key)
    return measure_panel(samples, clouds, settings, key, over_clouds, permuted_NPD)


def input_names(settings: MeasureConfig) -> tuple[str, ...]:
    """Name the inputs that a source reads of each batch of windows."""
    return INPUTS if "shuffled" in settings.nulls else INPUTS[:1]


def batch_keys(seed: int | Array, batches: int) -> Array:
    """Make one random key of the Gaussian null model for each batch."""
    return jax.random.split(jax.random.key(seed), batches)


def _pick_sample(read_Z: Read, z: int, picks_P: Array, visible_TT: Array) -> Sample:
    """Pick the clouds of one input, and its heads, if any."""
    resid_LBTD, heads = read_Z.resid_ZLBTD[z], None
    if read_Z.q_ZNBTHK is not None:
        heads = Heads(read_Z.q_ZNBTHK[z], read_Z.k_ZNBTHK[z], picks_P, visible_TT, read_Z.bias_NHTT)
    target_ZBT = read_Z.target_ZBT
    return Sample(
        _pick_clouds(resid_LBTD, picks_P),
        heads,
        Places(*jnp.divmod(picks_P, resid_LBTD.shape[2])),
        jax.tree.map(lambda x_Z: x_Z[z][..., picks_P], read_Z.types_Z),
        read_Z.unembedding,
        None if target_ZBT is None else target_ZBT[z].ravel()[picks_P],
    )


def _pick_clouds(resid_LBTD: Array, picks_P: Array) -> Array:
    """Pick the vectors at these positions in every layer, (N, P, D)."""
    return resid_LBTD.reshape(resid_LBTD.shape[0], -1, resid_LBTD.shape[-1])[:, picks_P]


def measure_batch(
    batch: int,
    read_Z: Read,
    others: dict[str, np.ndarray],
    picks_SP: np.ndarray,
    visible_STT: np.ndarray,
    settings: MeasureConfig,
) -> Measured:
    """Measure one batch of windows with the panel, in NumPy; arrays (1, positions, …).

    Position sets are distributed over cores or devices. All models of one shape share one program.

    Args:
        batch: number of the batch, which selects its random key.
        read_Z: activations of the inputs that `input_names(settings)` lists, in that order.
        others: residual streams (N, W, T, D) of the same windows to compare with.
        picks_SP: positions in the windows, fold after fold of whole windows, equally many per fold.
        visible_STT: which key (column) each query sees, by set of positions.
        settings: what to measure; ValueError where the arguments do not fit.
    """
    _check(read_Z, picks_SP, settings)
    width, sets = read_Z.resid_ZLBTD.shape[-1], len(picks_SP)
    key = batch_keys(settings.seed, settings.batches)[batch]
    unseeded = dataclasses.replace(settings, seed=0)  # keys are arguments
    program = _compile_measure(
        unseeded, estimate_cloud_bytes(settings.points, width, settings.families)
    )

    def measure_set(s: int, arrays: tuple) -> Measured:
        return program(*arrays[:2], picks_SP[s], visible_STT[s], arrays[2])

    with lapack.threads_for(0 if sets > 1 else min(settings.points, width)):
        parts = mesh.map_over_devices(measure_set, (read_Z, others, key), sets)
    return jax.tree.map(lambda *values: np.stack(values)[None], *parts)


@functools.cache
def _compile_measure(settings: MeasureConfig, cloud_bytes: int) -> Callable[..., Measured]:
    """Jit the measurement of one batch and one set of positions."""
    over_clouds = mesh.over_clouds(None, cloud_bytes)
    return jax.jit(functools.partial(measure_positions, settings=settings, over_clouds=over_clouds))


def _check(read_Z: Read, picks_SP: np.ndarray, settings: MeasureConfig) -> None:
    """Raise ValueError where the arrays do not fit the settings, or are not finite."""
    heads, lens = read_Z.q_ZNBTHK is not None, read_Z.unembedding is not None
    available = {"heads": heads, "logit_lens": lens}
    for name in settings.families:
        if FAMILIES[name].reads_types or not available.get(INPUT_KINDS[name], True):
            raise ValueError(f"families: {name} cannot be measured on these arrays; leave it out")
    names = input_names(settings)
    if len(read_Z.resid_ZLBTD) != len(names):
        raise ValueError(
            f"activations have {len(read_Z.resid_ZLBTD)} inputs; "
            f"pass {len(names)}: {' and '.join(names)}"
        )
    if picks_SP.shape[1] != settings.points:
        raise ValueError(
            f"picks_SP has {picks_SP.shape[1]} points; pass measure.points={settings.points}"
        )
    if not np.isfinite(read_Z.resid_ZLBTD).all():
        raise ValueError("activations are not finite; check the program that made them")


def join_batches(batches: list[Measured]) -> Measured:
    """Join the values of all batches."""
    return jax.tree.map(lambda *values: np.concatenate(values), *batches)
