"""Models as a source: the activations of a network on the probe, fused with the panel in one
program.

Arrays carry the letters of `models`, and W windows of a probe batch, G probe batches, S position
sets, Z inputs.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.measurement import null_models
from anisoscope.measurement.families.attention_family import Heads
from anisoscope.measurement.families.registry import FAMILIES
from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.panel import MEASURED, Found, Known, Over, Sample, panel_and_nearest
from anisoscope.measurement.quantity import Values
from anisoscope.measurement.resampling import Places, Searched, Types
from anisoscope.metrics.logit_lens import Readout
from anisoscope.sources.evaluation_windows import Probe

INPUTS = (MEASURED, "shuffled")  # the probe's windows, and their characters in random order


class Measured(NamedTuple):
    values: dict[str, Values]  # {sample: {quantity: (batch, positions, *dims, R)}}
    vectors: Values  # of the first batch, all positions: what is kept as it is
    # of the measured clouds, (batch, positions, layer, …), where others' are known
    nearest_GS: Searched | None = None


class Read(NamedTuple):
    """Activations of inputs, and what else a model has."""

    resid_ZLBTD: Array
    q_ZNBTHK: Array | None
    k_ZNBTHK: Array | None
    readout: Readout | None = None  # how its output is read off every layer
    target_ZBT: Array | None = None  # the token that each position is to predict; below 0: none
    bias_NHTT: Array | None = None  # added to its scores, in every window alike


class Spec(NamedTuple):
    """What a program is made for: two programs of equal specs are one.

    `activate(params, references, windows)` gives the activations of each input of one batch, (Z,
    …), in float32, and the residual streams to compare with. `over_units(work)` may share batches
    and sets of positions out to devices; `over_clouds` takes the clouds of each.
    """

    activate: Callable[[Any, dict[str, Any], Any], tuple[Any, dict[str, Array]]]
    settings: MeasureConfig
    over_units: Callable[[Callable], Callable] = lambda work: work
    over_clouds: Over = jax.lax.map


class Batches(NamedTuple):
    """G batches of windows, S sets of positions of each; the first set is all positions."""

    windows_G: Any  # what `activate` reads
    keys_G: Array  # of the Gaussian null model
    picks_SGP: Array
    visible_STT: Array  # which key (column) each query sees
    # of all positions of each batch and input; None: they are not known
    types_GZ: Types | None = None
    known: Known | None = None  # arrays (batch, positions, …)


def measure_batches(
    spec: Spec, params: Any, references: dict[str, Any], batches: Batches
) -> Measured:
    """Every value of every batch, pure and un-jitted.

    `references` are the parameters to compare with, {"previous": …, "last": …}, or {} without the
    family comparison.
    """
    each = batches.windows_G, batches.picks_SGP[0], batches.keys_G, batches.types_GZ
    units_GS = jnp.swapaxes(batches.picks_SGP, 0, 1), batches.known
    work = spec.over_units(functools.partial(_of_batches, spec))
    results_GS, vectors = work(params, references, each, units_GS, batches.visible_STT)
    nearest_GS = None if batches.known is None else results_GS.nearest_N
    return Measured(results_GS.values, jax.tree.map(lambda x: x[0], vectors), nearest_GS)


# Accelerators round the factors of float32 products to TF32 or bfloat16 unless told not to.
@jax.default_matmul_precision("highest")
def _of_batches(
    spec: Spec,
    params: Any,
    references: dict[str, Any],
    batches: tuple,
    units_GS: tuple,
    visible_STT: Array,
) -> tuple[Found, Values]:
    """One after another."""
    return jax.lax.map(
        functools.partial(_of_batch, spec, params, references, visible_STT), (batches, units_GS)
    )


def _of_batch(
    spec: Spec, params: Any, references: dict[str, Any], visible_STT: Array, batch: tuple
) -> tuple[Found, Values]:
    (windows, all_P, key, types_Z), units_S = batch
    activations_Z, resid = spec.activate(params, references, windows)
    of_positions = functools.partial(_of_positions, spec, activations_Z, resid, key, types_Z)
    results_S = jax.lax.map(of_positions, (units_S, visible_STT))
    vectors = {}
    for family in map(FAMILIES.__getitem__, spec.settings.families):
        if family.of == "vectors":
            heads = _sample(activations_Z, 0, all_P, visible_STT[0]).heads
            vectors |= family.compute(heads, spec.settings.projected_head)
    return results_S, vectors


def _of_positions(
    spec: Spec,
    activations_Z: Any,
    resid: dict[str, Array],
    key: Array,
    types_Z: Types | None,
    unit: tuple,
) -> Found:
    (picks_P, known), visible_TT = unit
    names = inputs_of(spec.settings)
    samples = {
        name: _sample(activations_Z, z, picks_P, visible_TT, types_Z)
        for z, name in enumerate(names)
    }
    others = {name: _clouds(resid_LBTD, picks_P) for name, resid_LBTD in resid.items()}
    permuted = functools.partial(null_models.permuted_clouds, activations_Z[0][0], picks_P, key)
    permuted = permuted if PERMUTED in spec.settings.nulls else None
    return panel_and_nearest(samples, others, known, spec.settings, key, spec.over_clouds, permuted)


def of_model(
    apply: Callable[[Any, Array], tuple[Array, Any]],
    settings: MeasureConfig,
    readout: Callable[[Any], Readout] | None = None,
) -> Callable:
    """`activate` of a network, `apply(params, tokens_BT) -> (logits, Activations)`, on windows and
    shuffled ones.

    Where its output is read off every layer, `readout(params)` says how; the token to be told is
    the next one, unless the windows come with others.
    """
    inputs = len(inputs_of(settings))

    def activate(
        params: Any, references: dict[str, Any], windows: tuple[Array, ...]
    ) -> tuple[Any, dict[str, Array]]:
        tokens_ZWT = jnp.stack(windows[:inputs])
        activations_Z = jax.lax.map(lambda tokens_WT: apply(params, tokens_WT)[1], tokens_ZWT)
        if "readout" in settings.families:
            target_ZWT = windows[2][:inputs] if len(windows) > 2 else next_tokens(tokens_ZWT)
            activations_Z = Read(*activations_Z[:3], readout(params), target_ZWT)
        return activations_Z, {
            name: apply(other, windows[0])[1].resid_LBTD for name, other in references.items()
        }

    return activate


def next_tokens(tokens_ZBT: Array) -> Array:
    """The next token of the same window; -1 at its end."""
    missing = [(0, 0)] * (tokens_ZBT.ndim - 1) + [(0, 1)]
    return jnp.pad(tokens_ZBT, missing, constant_values=-1)[..., 1:]


def of_probe(probe: Probe, key_G: Array, visible_TT: Array, known: Known | None = None) -> Batches:
    """Of all positions, and without position 0.

    Without it the clouds leave out the first vector of each window, and attention leaves it out as query and as key:
    the softmax over the other keys tells what sharpness there is apart from a sink on the first token.
    """
    visible_STT = jnp.stack([visible_TT, visible_TT.at[0].set(False).at[:, 0].set(False)])
    windows = (
        probe.tokens_GWT,
        probe.shuffled_GWT,
        *(() if probe.target_GZWT is None else (probe.target_GZWT,)),
    )
    return Batches(windows, key_G, probe.picks_SGP, visible_STT, probe.types, known)


def inputs_of(settings: MeasureConfig) -> tuple[str, ...]:
    """What a source reads of each batch of windows."""
    return INPUTS if "shuffled" in settings.nulls else INPUTS[:1]


def keys(seed: int | Array, batches: int) -> Array:
    """Draw a key of the Gaussian null model for each batch."""
    return jax.random.split(jax.random.key(seed), batches)


def _sample(
    activations_Z: Any, z: int, picks_P: Array, visible_TT: Array, types_Z: Types | None = None
) -> Sample:
    """The clouds of one input, and its heads, if any; some models add a bias to all scores."""
    resid_LBTD, q_NBTHK, k_NBTHK = (None if x is None else x[z] for x in activations_Z[:3])
    heads = None
    if q_NBTHK is not None:
        heads = Heads(
            q_NBTHK, k_NBTHK, picks_P, visible_TT, getattr(activations_Z, "bias_NHTT", None)
        )
    places = Places(*jnp.divmod(picks_P, resid_LBTD.shape[2]))
    types = jax.tree.map(lambda x_Z: x_Z[z][..., picks_P], types_Z)
    target_ZBT = getattr(activations_Z, "target_ZBT", None)
    target_P = None if target_ZBT is None else target_ZBT[z].ravel()[picks_P]
    return Sample(
        _clouds(resid_LBTD, picks_P),
        heads,
        places,
        types,
        getattr(activations_Z, "readout", None),
        target_P,
    )


def _clouds(resid_LBTD: Array, picks_P: Array) -> Array:
    """The picked vectors of every layer, (N, P, D)."""
    return resid_LBTD.reshape(resid_LBTD.shape[0], -1, resid_LBTD.shape[-1])[:, picks_P]
