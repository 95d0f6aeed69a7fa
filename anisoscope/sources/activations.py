"""Run the panel on activations: fused with a network, or computed by another program.

Arrays carry the letters of `models`, and W windows of an evaluation batch, G batches, S position
sets, Z inputs.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement import null_models
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.panel import (
    MEASURED,
    Over,
    Sample,
    estimate_cloud_bytes,
    panel,
)
from anisoscope.measurement.quantity import Values
from anisoscope.measurement.resampling import Places, Types
from anisoscope.metrics import lapack
from anisoscope.metrics.logit_lens import Unembedding
from anisoscope.utils import mesh
from anisoscope.utils.settings import MeshConfig

INPUTS = (MEASURED, "shuffled")  # the windows, and the same characters in random order


class Measured(NamedTuple):
    """Values of the measured batches, and the vectors kept unchanged."""

    values: dict[str, Values]  # {sample: {quantity: (batch, positions, *dims, R)}}
    vectors: Values  # stored as they are: first batch, all positions


class Read(NamedTuple):
    """Activations of the inputs, and what the logit lens and attention need."""

    resid_ZLBTD: Any
    q_ZNBTHK: Any = None  # None: no family reads queries and keys
    k_ZNBTHK: Any = None
    unembedding: Unembedding | None = None  # maps a vector of any layer to logits
    target_ZBT: Array | None = None  # the token to predict at each position; below 0: none
    bias_NHTT: Array | None = None  # added to the scores, the same in every window


class Spec(NamedTuple):
    """What to measure, of which network, and how work is distributed over devices."""

    # (params, references, windows) -> activations of each input of a batch, in float32, and the
    # residual streams to compare with
    activate: Callable[[Any, dict[str, Any], Any], tuple[Read, dict[str, Array]]]
    settings: MeasureConfig
    over_units: Callable[[Callable], Callable] = lambda work: work  # batches and position sets
    over_clouds: Over = jax.lax.map


class Batches(NamedTuple):
    """G batches of windows with S position sets each; the first set holds all positions."""

    windows_G: Any  # what `activate` reads
    keys_G: Array  # random keys of the Gaussian null model
    picks_SGP: Array
    visible_STT: Array  # which key (column) each query sees
    types_GZ: Types | None = None  # for all positions of each batch and input; None: unknown


def measure_batches(
    spec: Spec, params: Any, references: dict[str, Any], batches: Batches
) -> Measured:
    """Measure every value of every batch, one batch after another; pure and un-jitted.

    `references` are parameters to compare with, {"previous": …, "last": …}.
    """

    def measure_batch(params: Any, references: dict[str, Any], visible_STT: Array, batch: tuple):
        (windows, all_P, key, types_Z), picks_SP = batch
        read_Z, resid = spec.activate(params, references, windows)

        def measure_positions(positions: tuple[Array, Array]) -> dict[str, Values]:
            picks_P, visible_TT = positions
            samples = {
                name: _sample(read_Z, z, picks_P, visible_TT, types_Z)
                for z, name in enumerate(input_names(spec.settings))
            }
            others = {name: _clouds(resid_LBTD, picks_P) for name, resid_LBTD in resid.items()}
            permuted = None
            if PERMUTED in spec.settings.nulls:
                permuted = functools.partial(
                    null_models.permuted_clouds, read_Z.resid_ZLBTD[0], picks_P, key
                )
            return panel(samples, others, spec.settings, key, spec.over_clouds, permuted)

        values_S = jax.lax.map(measure_positions, (picks_SP, visible_STT))
        vectors = {}
        for family in (FAMILIES[name] for name in spec.settings.families):
            if family.input_kind == "vectors":
                heads = _sample(read_Z, 0, all_P, visible_STT[0]).heads
                vectors |= family.compute(heads, spec.settings.projected_head)
        return values_S, vectors

    # Accelerators round the factors of float32 products to TF32 or bfloat16 by default.
    @jax.default_matmul_precision("highest")
    def over_batches(params: Any, references: Any, each_G: tuple, picks_GSP: Array, visible_STT):
        work = functools.partial(measure_batch, params, references, visible_STT)
        return jax.lax.map(work, (each_G, picks_GSP))

    each_G = batches.windows_G, batches.picks_SGP[0], batches.keys_G, batches.types_GZ
    picks_GSP = jnp.swapaxes(batches.picks_SGP, 0, 1)
    run = spec.over_units(over_batches)
    values, vectors = run(params, references, each_G, picks_GSP, batches.visible_STT)
    return Measured(values, jax.tree.map(lambda x: x[0], vectors))


def input_names(settings: MeasureConfig) -> tuple[str, ...]:
    """Name the inputs that a source reads of each batch of windows."""
    return INPUTS if "shuffled" in settings.nulls else INPUTS[:1]


def batch_keys(seed: int | Array, batches: int) -> Array:
    """Make one random key of the Gaussian null model for each batch."""
    return jax.random.split(jax.random.key(seed), batches)


def _sample(
    read_Z: Read, z: int, picks_P: Array, visible_TT: Array, types_Z: Types | None = None
) -> Sample:
    """Pick the clouds of one input, and its heads, if any."""
    resid_LBTD, heads = read_Z.resid_ZLBTD[z], None
    if read_Z.q_ZNBTHK is not None:
        heads = Heads(read_Z.q_ZNBTHK[z], read_Z.k_ZNBTHK[z], picks_P, visible_TT, read_Z.bias_NHTT)
    target_ZBT = read_Z.target_ZBT
    return Sample(
        _clouds(resid_LBTD, picks_P),
        heads,
        Places(*jnp.divmod(picks_P, resid_LBTD.shape[2])),
        jax.tree.map(lambda x_Z: x_Z[z][..., picks_P], types_Z),
        read_Z.unembedding,
        None if target_ZBT is None else target_ZBT[z].ravel()[picks_P],
    )


def _clouds(resid_LBTD: Array, picks_P: Array) -> Array:
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
    windows = tuple(None if x_ZN is None else x_ZN[None] for x_ZN in read_Z[:3])
    model = read_Z._replace(resid_ZLBTD=None, q_ZNBTHK=None, k_ZNBTHK=None)
    width, sets = read_Z.resid_ZLBTD.shape[-1], len(picks_SP)
    key_G = batch_keys(settings.seed, settings.batches)[batch : batch + 1]
    unseeded = dataclasses.replace(settings, seed=0)  # keys are arguments
    program = _compile_measure(
        unseeded, estimate_cloud_bytes(settings.points, width, settings.families)
    )

    def measure_set(s: int, arrays: tuple) -> Measured:
        return program(*arrays, picks_SP[s], visible_STT[s])

    with lapack.threads_for(0 if sets > 1 else min(settings.points, width)):
        parts = mesh.map_over_devices(measure_set, (model, others, windows, key_G), sets)
    return join_batches(parts, axis=1)


def _check(read_Z: Read, picks_SP: np.ndarray, settings: MeasureConfig) -> None:
    """Raise ValueError where the arrays do not fit the settings, or are not finite."""
    heads, lens = read_Z.q_ZNBTHK is not None, read_Z.unembedding is not None
    available = {"heads": heads, "vectors": heads, "logit_lens": lens}
    families = {name: FAMILIES[name] for name in settings.families}
    for name, family in families.items():
        if family.reads_types or not available.get(family.input_kind, True):
            raise ValueError(f"families: {name} cannot be measured on these arrays; leave it out")
    inputs, points = len(read_Z.resid_ZLBTD), picks_SP.shape[1]
    if inputs != len(names := input_names(settings)):
        raise ValueError(
            f"activations have {inputs} inputs; pass {len(names)}: {' and '.join(names)}"
        )
    if points != settings.points:
        raise ValueError(f"picks_SP has {points} points; pass measure.points={settings.points}")
    if not np.isfinite(read_Z.resid_ZLBTD).all():
        raise ValueError("activations are not finite; check the program that made them")


def join_batches(parts: list[Measured], axis: int = 0) -> Measured:
    """Join the values of all batches, or sets of positions, and keep the vectors of the first."""
    values = jax.tree.map(
        lambda *values: np.concatenate(values, axis), *(part.values for part in parts)
    )
    return Measured(values, parts[0].vectors)


@functools.cache
def _compile_measure(settings: MeasureConfig, cloud_bytes: int) -> Callable[..., Measured]:
    """Jit the measurement of one batch and one set of positions."""

    def activate(model: Read, others: Any, activations_Z: tuple) -> tuple:
        return Read(*activations_Z, *model[3:]), others

    spec = Spec(activate, settings, over_clouds=mesh.over_clouds(MeshConfig(), cloud_bytes))

    def measure(
        model: Read, others: Any, windows: tuple, key_G: Any, picks_P: Any, visible_TT: Any
    ) -> Measured:
        return measure_batches(
            spec, model, others, Batches(windows, key_G, picks_P[None, None], visible_TT[None])
        )

    return jax.jit(measure)
