"""One revision: its weights guarded, its windows read, and everything measured of them in one table."""

import json
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope.config.pretrained import PretrainedConfig, steps
from anisoscope.measurement.sources import extracted
from anisoscope.measurement.sources.activations import Measured, inputs_of
from anisoscope.measurement.sources.hub import load
from anisoscope.measurement.sources.hub.adapters import UNKNOWN
from anisoscope.measurement.sources.hub.reading import guards, hidden_states, inside
from anisoscope.measurement.sources.hub.reading.clamp import clamp
from anisoscope.measurement.sources.hub.reading.extract import activations
from anisoscope.measurement.sources.hub.reading.windows import Windows, at_positions
from anisoscope.measurement.sources.hub.residuals import Residuals, before, compared_with
from anisoscope.measurement.sources.hub.senses import maps, of_maps
from anisoscope.measurement.sources.hub.senses.inputs import NO_LOSS
from anisoscope.measurement.tables import leading_vectors, projection, raw
from anisoscope.measurement.tables.measurements import Standing
from anisoscope.utils.errors import UserError

WORK, BASE = 3, 2e9  # memory of measuring: in multiples of the vectors of a batch, and bytes of the programs
OF_HEADS = ("attention", "projection")  # families that read queries and keys
PREVIOUS = "step of the revision that cka_previous and overlap_previous compare with; -1: none"


class Plan(NamedTuple):
    """What all revisions have in common. Without a name nothing is printed."""

    config: PretrainedConfig  # with the families and null models to be measured
    windows: Windows  # of a text, or of pictures or sound (measurement/sources/hub/senses/inputs.py)
    name: str

    @property
    def heads(self) -> bool:
        return any(family in self.config.measure.families for family in OF_HEADS)

    @property
    def reported(self) -> bool:
        return self.config.hidden_states == "reported"


def place_of(config: PretrainedConfig, step: int) -> load.Place:
    return load.place_of(config.pretrained.name, steps(config.pretrained)[step])


def named(config: PretrainedConfig) -> dict[str, Any]:
    """What a table of another model has otherwise."""
    return {"pretrained.name": config.pretrained.name}


def changed(config: PretrainedConfig, found: dict[int, Standing]) -> list[int]:
    """Steps whose table holds no longer, since local weights have changed; a hub is not asked."""
    tables = {step: one.table for step, one in found.items() if one.table is not None}
    places = {step: place_of(config, step) for step in tables}
    return [
        step
        for step, place in places.items()
        if place.local and load.digest_of(place) != tables[step].attrs["weights_sha256"]
    ]


def opened(plan: Plan, place: load.Place) -> load.Loaded:
    """The model, with its coordinates clamped where that is asked for."""
    loaded, weights = guarded(plan, load.load(place, plan.config.pretrained)), plan.config.pretrained
    if weights.clamp is not None and loaded.adapter.maps:
        raise UserError("pretrained.clamp is for models whose blocks all have one width: leave it out")
    if weights.clamp is not None:
        last = place == place_of(plan.config, max(steps(weights)))
        tokens_WT = plan.windows.probe.tokens_GWT[0]
        loaded.about["clamped"] = clamp(loaded, weights.clamp, tokens_WT, weights.batch_size, last)
    return loaded


def guarded(plan: Plan, loaded: load.Loaded) -> load.Loaded:
    """The same model, with what has to be true of it before it reads a window."""
    if loaded.reads_text:
        guards.vocabulary(loaded, plan.windows)
    if plan.heads or loaded.reads_text:
        guards.shape(loaded, plan.config.window, plan.config.measure.projected_head)
    inside.known(loaded.adapter, type(loaded.model).__name__, plan.config.measure.hook_points)
    if plan.reported and loaded.adapter.maps:
        raise UserError("hidden_states=reported is for models whose blocks all have one width: leave it out")
    return loaded


def residuals_of(plan: Plan, loaded: load.Loaded) -> list[np.ndarray]:
    """Of each batch the residual stream alone."""
    size = plan.config.pretrained.batch_size
    tokens_GWT = plan.windows.probe.tokens_GWT
    if loaded.adapter.maps:
        return of_maps.residuals(loaded, plan.windows, plan.config)
    return [
        activations(loaded, tokens_WT[None], size, heads=False, reported=plan.reported).resid_ZNWTD[0]
        for tokens_WT in tokens_GWT
    ]


def table(plan: Plan, loaded: load.Loaded, step: int, last: bool, beside: Residuals, made: dict) -> xr.Dataset:
    """Every value of a revision; of the `last` one the loss has a bound, and the noise floor is measured."""
    weights, windows, measure = plan.config.pretrained, plan.windows, plan.config.measure
    tokens_T = windows.probe.tokens_GWT[0, 0]
    stream = maps.same_as_own if loaded.adapter.maps else guards.final_norm
    about = loaded.about | {"residual_stream": stream(loaded, tokens_T)}
    if plan.reported:
        about["residual_stream"] = hidden_states.reported(loaded, tokens_T)
    context = windows.places_GWT.shape[2]
    seen = guards.Seen(np.ones((1, context, context), bool), None)
    if plan.heads:
        seen, about["attention"] = guards.attention(loaded, windows.probe.tokens_GWT[0, :2])
    most = weights.most_bits if last else np.inf  # early revisions of a training know nothing yet
    about |= guards.bits_per_byte(loaded, windows, weights.batch_size, most) if loaded.reads_text else NO_LOSS
    if last and plan.name:
        tell(plan, loaded, seen, about)
    if loaded.adapter.maps:
        measured, noise = of_maps.measured(loaded, windows, plan.config, step, last, beside)
    else:
        measured, noise = _measured(plan, loaded, step, seen, last, beside)
    about |= {"noise_floor": json.dumps(noise)} if noise else {}
    values = beside.without_itself(step, measured.values)
    found = raw.table(
        values, step, windows.positions, recorded(about) | {"model": words(loaded, plan.config, windows)} | made
    )
    vectors = projection.labelled(measured.vectors, windows.probe.picks_SGP[0, 0], context, measure.projected_head)
    vectors |= leading_vectors.labelled(measured.vectors, windows.places_GWT[0])
    if not beside.wanted:
        return found.assign(**vectors)
    found.attrs["compared_with"] = compared_with(beside.steps, step)
    return found.assign(
        **vectors, previous_step=xr.DataArray(before(beside.steps, step), attrs={"long_name": PREVIOUS})
    )


def recorded(about: dict[str, Any]) -> dict[str, Any]:
    """As a table can hold it."""
    return {name: value if isinstance(value, str | int | float) else "none" for name, value in about.items()}


def _measured(
    plan: Plan, loaded: load.Loaded, step: int, seen: guards.Seen, last: bool, beside: Residuals
) -> tuple[Measured, dict[str, float]]:
    """Batch by batch; the first one of the last revision once more, a window at a time and without a fused kernel."""
    settings, probe, size = plan.config.measure, plan.windows.probe, plan.config.pretrained.batch_size
    found: list[Measured] = []
    noise: dict[str, float] = {}

    for g in range(settings.batches):
        tokens_ZWT = inputs_of_batch(plan, g)
        inputs = activations(loaded, tokens_ZWT, size, plan.heads, reported=plan.reported)
        beside.keep(step, g, inputs.resid_ZNWTD[0])
        visible = visible_sets(seen.visible_NTT, plan.windows)
        given = beside.beside(step, g), probe.picks_SGP[:, g], visible, settings, seen.bias_NHTT
        found.append(extracted.measure_batch(g, inputs, *given))
        if last and g == 0:
            other = 1 if size > 1 else 2
            inputs = activations(loaded, tokens_ZWT, other, plan.heads, plain=True, reported=plan.reported)
            noise = guards.noise_floor(found[0].values, extracted.measure_batch(g, inputs, *given).values)
    return extracted.joined(found), noise


def inputs_of_batch(plan: Plan, g: int) -> np.ndarray:
    """The windows of a batch, and shuffled ones where they are a null model, (Z, W, T)."""
    probe = plan.windows.probe
    return np.stack([probe.tokens_GWT[g], probe.shuffled_GWT[g]][: len(inputs_of(plan.config.measure))])


def visible_sets(visible_NTT: np.ndarray, windows: Windows) -> np.ndarray:
    """For each set of positions which key each query sees: what every window leaves out is neither.

    (S, T, T), or (S, N, T, T) where blocks see different keys.
    """
    visible = visible_NTT if (visible_NTT != visible_NTT[0]).any() else visible_NTT[0]
    fixed_T = at_positions(windows.fixed_T, windows.rate).any(-1)
    without_first, without_special = visible.copy(), visible.copy()
    without_first[..., 0, :] = without_first[..., 0] = False
    without_special[..., fixed_T, :] = without_special[..., fixed_T] = False
    return np.stack([visible, without_first, without_special][: len(windows.positions)])


def words(loaded: load.Loaded, config: PretrainedConfig, windows: Windows) -> str:
    own, adapter = loaded.model.config, loaded.adapter
    if adapter.maps:
        size = of_maps.words(windows)
    else:
        heads = f", H={own.num_attention_heads}" if adapter != UNKNOWN else ""
        joined = f" ({getattr(own, adapter.rate)} at a position)" if adapter.rate else ""
        unit = "tokens" if loaded.reads_text else "positions"
        size = f"D={own.hidden_size}{heads}, windows of {config.window} {unit}{joined}"
    return f"{loaded.about['model_class']}, {loaded.blocks} layers, {size}, {loaded.about['weights_file']}"


def tell(plan: Plan, loaded: load.Loaded, seen: guards.Seen, about: dict[str, Any]) -> None:
    """What a reader should know before the long part begins."""
    bits = about["bits_per_byte"]
    said = bits if isinstance(bits, str) else f"{bits:.2f}, {about['bits_of']}"
    said += f"; at most {about['bits_bound']:.2f}" if "bits_bound" in about else ""
    weights, vectors = load.bytes_of(loaded.model), vectors_of_batch(plan, loaded)
    if seen.bias_NHTT is not None:
        vectors += len(inputs_of(plan.config.measure)) * seen.bias_NHTT.nbytes
    for line in (
        f"{words(loaded, plan.config, plan.windows)}, computed in {about['computed_in']}",
        *plan.windows.told(),
        *([f"clamped: {about['clamped']}"] if "clamped" in about else []),
        f"residual stream: {about['residual_stream']}",
        f"attention: {about.get('attention', 'not asked for')}",
        f"{'bits per byte of the text' if loaded.reads_text else 'loss'}: {said}",
        f"memory: weights {weights / 1e9:.2f} GB, vectors of a batch {vectors / 1e9:.2f} GB, "
        f"about {(weights + (1 + WORK) * vectors + BASE) / 1e9:.0f} GB in all",
    ):
        print(f"{plan.name}: {line}")


def vectors_of_batch(plan: Plan, loaded: load.Loaded) -> int:
    """Bytes."""
    if loaded.adapter.maps:
        return of_maps.bytes_of(plan.windows, plan.config)
    places = plan.windows.places_GWT[0].size * len(inputs_of(plan.config.measure))
    return places * loaded.model.config.hidden_size * 4 * (loaded.blocks + 1 + 2 * loaded.blocks * plan.heads)
