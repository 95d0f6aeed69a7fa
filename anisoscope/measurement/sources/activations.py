"""Models as a source: the activations of a network on the probe, fused with the panel in one program.

Arrays carry the letters of `models`, and W windows of a probe batch, G probe batches, S position sets, Z inputs.
"""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from anisoscope.config.measure import MeasureConfig
from anisoscope.measurement import nulls
from anisoscope.measurement.families import leading
from anisoscope.measurement.families.attention import Heads
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.nulls import PERMUTED
from anisoscope.measurement.panel import MEASURED, Found, Known, Over, Sample, panel_and_nearest
from anisoscope.measurement.quantity import Values
from anisoscope.measurement.resamples import Places, Searched, Types
from anisoscope.measurement.sources.probe import Probe

INPUTS = (MEASURED, "shuffled")  # the probe's windows, and their characters in random order


class Measured(NamedTuple):
    values: dict[str, Values]  # {sample: {quantity: (batch, positions, *dims, R)}}
    vectors: Values  # of the first batch, all positions: what is kept as it is
    nearest_GS: Searched | None = None  # of the measured clouds, (batch, positions, layer, …), where others' are known


def make_measure(
    apply: Callable[[Any, Array], tuple[Array, Any]],
    settings: MeasureConfig,
    over_units: Callable[[Callable], Callable] = lambda work: work,
    over_clouds: Over = jax.lax.map,
) -> Callable[..., Measured]:
    """measure(params, references, probe, visible_TT, known=None) -> Measured, pure and un-jitted.

    `apply(params, tokens_BT) -> (logits, Activations)` must compute in float32; `visible_TT` says which key (column)
    each query sees. `references` are the parameters to compare with, {"previous": …, "last": …}, or {} without the
    family comparison. What was `nearest_GS` when they were measured may be `known`, of the same names.

    Batches and position sets go one after another; `over_units(work)` may share those of work(params, references,
    batches, units_GS, visible_STT) out to devices. Of each, clouds go as `over_clouds` takes them. Without position 0
    the clouds leave out the first vector of each window, and attention leaves it out as query and as key: the softmax
    over the other keys tells what sharpness there is apart from a sink on the first character.
    """
    inputs = inputs_of(settings)

    def activate(params: Any, references: dict[str, Any], windows: tuple[Array, Array]) -> tuple[Any, dict[str, Array]]:
        tokens_ZWT = jnp.stack(windows[: len(inputs)])
        activations_Z = jax.lax.map(lambda tokens_WT: apply(params, tokens_WT)[1], tokens_ZWT)
        return activations_Z, {name: apply(other, windows[0])[1].resid_LBTD for name, other in references.items()}

    inner = make_reader(activate, settings, over_units, over_clouds)

    def measure(
        params: Any, references: dict[str, Any], probe: Probe, visible_TT: Array, known: Known | None = None
    ) -> Measured:
        visible_STT = jnp.stack([visible_TT, visible_TT.at[0].set(False).at[:, 0].set(False)])
        windows = (probe.tokens_GWT, probe.shuffled_GWT)
        return inner(params, references, windows, keys(settings), probe.picks_SGP, visible_STT, probe.types, known)

    return measure


def inputs_of(settings: MeasureConfig) -> tuple[str, ...]:
    """What a source reads of each batch of windows."""
    return INPUTS if "shuffled" in settings.nulls else INPUTS[:1]


def keys(settings: MeasureConfig) -> Array:
    """Of the Gaussian null model, one a batch."""
    return jax.random.split(jax.random.key(settings.seed), settings.batches)


def make_reader(
    activate: Callable[[Any, dict[str, Any], Any], tuple[Any, dict[str, Array]]],
    settings: MeasureConfig,
    over_units: Callable[[Callable], Callable],
    over_clouds: Over,
) -> Callable[..., Measured]:
    """read(params, references, windows_G, keys_G, picks_SGP, visible_STT, types_GZ) -> Measured, pure and un-jitted.

    `activate(params, references, windows)` gives the activations of each input of one batch, (Z, …), and the residual
    streams to compare with. The sets of positions are those of `picks_SGP`; the first of them is all positions.
    `types_GZ` are the types of all positions of each batch and input; None: they are not known. `known` has arrays
    (batch, positions, …).
    """
    inputs = inputs_of(settings)
    kept = [family for name in settings.families if (family := FAMILIES[name]).of == "vectors"]

    def of_batch(params: Any, references: dict[str, Any], visible_STT: Array, batch: tuple[Any, ...]) -> tuple:
        (windows, all_P, key, types_Z), units_S = batch
        activations_Z, resid = activate(params, references, windows)

        def of_positions(chosen: tuple[tuple[Array, Known | None], Array]) -> Found:
            (picks_P, known), visible_TT = chosen
            samples = {name: _sample(activations_Z, z, picks_P, visible_TT, types_Z) for z, name in enumerate(inputs)}
            others = {name: _clouds(resid_LBTD, picks_P) for name, resid_LBTD in resid.items()}
            permuted = functools.partial(nulls.permuted_clouds, activations_Z[0][0], picks_P, key)
            clouds = permuted if PERMUTED in settings.nulls else None
            return panel_and_nearest(samples, others, known, settings, key, over_clouds, clouds)

        found = jax.lax.map(of_positions, (units_S, visible_STT))
        vectors = leading.vectors(activations_Z[0][0]) if "leading" in settings.families else {}
        for family in kept:
            vectors |= family.measure(_sample(activations_Z, 0, all_P, visible_STT[0]).heads, settings.projected_head)
        return found, vectors

    # Accelerators round the factors of float32 products to TF32 or bfloat16 unless told not to.
    @jax.default_matmul_precision("highest")
    def of_batches(params: Any, references: dict[str, Any], batches: Any, units_GS: Any, visible_STT: Array) -> tuple:
        return jax.lax.map(lambda batch: of_batch(params, references, visible_STT, batch), (batches, units_GS))

    def read(
        params: Any,
        references: dict[str, Any],
        windows: Any,
        keys_G: Array,
        picks_SGP: Array,
        visible_STT: Array,
        types_GZ: Types | None = None,
        known: Known | None = None,
    ) -> Measured:
        batches = (windows, picks_SGP[0], keys_G, types_GZ)
        units_GS = jnp.swapaxes(picks_SGP, 0, 1), known
        found, vectors = over_units(of_batches)(params, references, batches, units_GS, visible_STT)
        return Measured(found.values, jax.tree.map(lambda x: x[0], vectors), None if known is None else found.nearest_N)

    return read


def _sample(activations_Z: Any, z: int, picks_P: Array, visible_TT: Array, types_Z: Types | None = None) -> Sample:
    """The clouds of one input, and its heads, if any; some models add a bias to all scores."""
    resid_LBTD, q_NBTHK, k_NBTHK = (None if x is None else x[z] for x in activations_Z[:3])
    heads = None
    if q_NBTHK is not None:
        heads = Heads(q_NBTHK, k_NBTHK, picks_P, visible_TT, getattr(activations_Z, "bias_NHTT", None))
    places = Places(*jnp.divmod(picks_P, resid_LBTD.shape[2]))
    types = jax.tree.map(lambda x_Z: x_Z[z][..., picks_P], types_Z)
    return Sample(_clouds(resid_LBTD, picks_P), heads, places, types)


def _clouds(resid_LBTD: Array, picks_P: Array) -> Array:
    """The picked vectors of every layer, (N, P, D)."""
    return resid_LBTD.reshape(resid_LBTD.shape[0], -1, resid_LBTD.shape[-1])[:, picks_P]
