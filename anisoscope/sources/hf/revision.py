"""One revision: its weights guarded, its windows read, and everything measured of them in one
table.

Letters: G probe batches, S sets of positions, Z inputs of a batch: its windows, and shuffled ones.
"""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.config.pretrained_config import PretrainedConfig, revision_steps
from anisoscope.results import kept_vectors, replicates_table
from anisoscope.sources import extracted
from anisoscope.sources.activations import Measured, input_names
from anisoscope.sources.hf import load_model
from anisoscope.sources.hf.adapters import UNKNOWN
from anisoscope.sources.hf.media import feature_maps
from anisoscope.sources.hf.media.media_inputs import NO_LOSS
from anisoscope.sources.hf.pretrained_weights import Place
from anisoscope.sources.hf.reading import guards, inside_names, logits
from anisoscope.sources.hf.reading.clamp import clamp_coordinates
from anisoscope.sources.hf.reading.extract import Activations, read_activations
from anisoscope.sources.hf.reading.token_windows import Windows, tokens_at_positions
from anisoscope.sources.hf.reading_plan import Plan, measure_batches, place_of
from anisoscope.sources.hf.residuals import Residuals, before, compared_with
from anisoscope.sources.hook_points import of_blocks
from anisoscope.utils.errors import UserError

# memory of measuring: in multiples of the vectors of a batch, and bytes of the programs
WORK, BASE = 3, 2e9
SHARE = "of the tokens of the text that windows are drawn from; NaN: the text has none, or several share a position"
PREVIOUS = "step of the revision that cka_previous and overlap_previous compare with; -1: none"
Tokens = Callable[[np.ndarray], list[str]]  # what tokens of these numbers are called


def open_model(plan: Plan, place: Place) -> load_model.PretrainedModel:
    """The model, with its coordinates clamped where that is asked for."""
    loaded, weights = (
        check_model(plan, load_model.load_model(place, plan.config.pretrained)),
        plan.config.pretrained,
    )
    if weights.clamp is not None and loaded.adapter.maps:
        raise UserError(
            "pretrained.clamp is for models whose blocks all have one width: leave it out"
        )
    if weights.clamp is not None:
        last = place == place_of(plan.config, max(revision_steps(weights)))
        tokens_WT = plan.windows.probe.tokens_GWT[0]
        loaded.about["clamped"] = clamp_coordinates(
            loaded, weights.clamp, tokens_WT, weights.batch_size, last
        )
    return loaded


def check_model(plan: Plan, loaded: load_model.PretrainedModel) -> load_model.PretrainedModel:
    """The same model, with what has to be true of it before it reads a window."""
    if loaded.reads_text:
        guards.check_vocabulary(loaded, plan.windows)
    if plan.heads or loaded.reads_text:
        guards.check_window(loaded, plan.config.window, plan.config.measure.projected_head)
    name = type(loaded.model).__name__
    if plan.readout and (why := logits.missing_head(loaded.adapter, name)):
        raise UserError(f"measure.families: {why}; leave {logits.FAMILY} out")
    inside_names.check_hook_points(loaded.adapter, name, plan.config.measure.hook_points)
    if plan.reported and loaded.adapter.maps:
        raise UserError(
            "hidden_states=reported is for models whose blocks all have one width: leave it out"
        )
    return loaded


def read_residuals(plan: Plan, loaded: load_model.PretrainedModel) -> list[np.ndarray]:
    """Of each batch the residual stream alone."""
    if loaded.adapter.maps:
        return feature_maps.read_map_residuals(plan, loaded)
    size = plan.config.pretrained.batch_size
    return [
        read_activations(
            loaded, tokens_WT[None], size, heads=False, reported=plan.reported
        ).resid_ZNWTD[0]
        for tokens_WT in plan.windows.probe.tokens_GWT
    ]


def measure_stream(
    plan: Plan,
    loaded: load_model.PretrainedModel,
    step: int,
    last: bool,
    beside: Residuals,
    made: dict,
) -> xr.Dataset:
    """Every value of a revision; of the `last` one the loss has a bound, and the noise floor is
    measured.
    """
    weights, windows, measure = plan.config.pretrained, plan.windows, plan.config.measure
    tokens_T = windows.probe.tokens_GWT[0, 0]
    same = feature_maps.check_maps if loaded.adapter.maps else guards.check_final_norm
    about = loaded.about | {"residual_stream": same(loaded, tokens_T)}
    if plan.reported:
        about["residual_stream"] = guards.check_reported(loaded, tokens_T)
    context = windows.places_GWT.shape[2]
    seen = guards.AttentionPattern(np.ones((1, context, context), bool), None)
    if plan.heads:
        seen, about["attention"] = guards.check_attention(loaded, windows.probe.tokens_GWT[0, :2])
    most = weights.most_bits if last else np.inf  # early revisions of a training know nothing yet
    readout = None
    if plan.readout:
        readout = logits.make_readout(loaded)
        about["readout"] = logits.check_logits(loaded, readout, tokens_T)
    about |= (
        guards.check_bits_per_byte(loaded, windows, weights.batch_size, most)
        if loaded.reads_text
        else NO_LOSS
    )
    if last and plan.name:
        print_summary(plan, loaded, seen, about)
    visible, model = (
        visible_sets(seen.visible_NTT, windows),
        extracted.Beside(seen.bias_NHTT, readout),
    )
    if loaded.adapter.maps:
        measured, noise = feature_maps.measure_maps(plan, loaded, step, last, beside)
    else:
        measured, noise = _of_stream(plan, loaded, step, visible, model, last, beside)
    about |= {"noise_floor": json.dumps(noise)} if noise else {}
    values = beside.without_itself(step, measured.values)
    table = replicates_table.table(
        values,
        step,
        windows.positions,
        as_attributes(about) | {"model": describe(loaded, plan.config, windows)} | made,
    )
    vectors = kept_vectors.labelled(
        measured.vectors, windows.probe.picks_SGP[0, 0], context, measure.projected_head
    )
    if not beside.wanted:
        return table.assign(**vectors)
    table.attrs["compared_with"] = compared_with(beside.steps, step)
    return table.assign(
        **vectors,
        previous_step=xr.DataArray(before(beside.steps, step), attrs={"long_name": PREVIOUS}),
    )


def as_attributes(about: dict[str, Any]) -> dict[str, Any]:
    """As a table can hold it."""
    return {
        name: value if isinstance(value, str | int | float) else "none"
        for name, value in about.items()
    }


def _of_stream(
    plan: Plan,
    loaded: load_model.PretrainedModel,
    step: int,
    visible: np.ndarray,
    model: extracted.Beside,
    last: bool,
    beside: Residuals,
) -> tuple[Measured, dict[str, float]]:
    def read(g: int, size: int, again: bool) -> Activations:
        inputs = read_activations(
            loaded, plan.inputs(g, again), size, plan.heads, again, plan.reported
        )
        if not again:
            beside.keep(step, g, inputs.resid_ZNWTD[0])
        return inputs

    def compute(g: int, inputs: Activations, again: bool) -> Measured:
        others, sets = beside.beside(step, g), slice(1 if again else None)
        of = model
        if model.readout is not None:
            of = model._replace(
                target_ZWT=logits.next_tokens(plan.inputs(g, again), plan.windows.fixed_T)
            )
        picks_SP, settings = plan.windows.probe.picks_SGP[sets, g], plan.settings(again)
        return extracted.measure_batch(g, inputs, others, picks_SP, visible[sets], settings, of)

    return measure_batches(plan, last, read, compute)


def measure_hook_point(
    plan: Plan,
    loaded: load_model.PretrainedModel,
    step: int,
    last: bool,
    name: str,
    attributes: dict[str, Any],
) -> xr.Dataset:
    """Every value of one hook point of the blocks; of the `last` revision the noise floor too."""

    def clouds(inputs_ZWT: np.ndarray, size: int, plain: bool) -> np.ndarray:
        return inside_names.read_hook_point(loaded, inputs_ZWT, size, name, plain)

    return of_blocks(measure_clouds(plan, clouds, step, last, attributes))


def measure_clouds(
    plan: Plan,
    clouds: Callable[[np.ndarray, int, bool], np.ndarray],
    step: int,
    last: bool,
    attributes: dict[str, Any],
) -> xr.Dataset:
    """Every value of clouds(inputs_ZWT, windows at a time, plain), (Z, N, W, T, D)."""
    context = plan.windows.places_GWT.shape[2]
    visible = visible_sets(np.ones((1, context, context), bool), plan.windows)

    def read(g: int, size: int, again: bool) -> Activations:
        x_ZNWTD = clouds(plan.inputs(g, again), size, again)
        none = np.zeros((len(x_ZNWTD), 1, 1, 1, 1, 1), np.float32)
        return Activations(x_ZNWTD, none, none)

    def compute(g: int, inputs: Activations, again: bool) -> Measured:
        sets = slice(1 if again else None)
        picks_SP = plan.windows.probe.picks_SGP[sets, g]
        return extracted.measure_batch(g, inputs, {}, picks_SP, visible[sets], plan.settings(again))

    measured, noise = measure_batches(plan, last, read, compute)
    attributes = attributes | ({"noise_floor": json.dumps(noise)} if last else {})
    return replicates_table.table(measured.values, step, plan.windows.positions, attributes)


def visible_sets(visible_NTT: np.ndarray, windows: Windows) -> np.ndarray:
    """For each set of positions which key each query sees: what every window leaves out is neither.

    (S, T, T), or (S, N, T, T) where blocks see different keys.
    """
    visible = visible_NTT if (visible_NTT != visible_NTT[0]).any() else visible_NTT[0]
    fixed_T = tokens_at_positions(windows.fixed_T, windows.rate).any(-1)
    without_first, without_special = visible.copy(), visible.copy()
    without_first[..., 0, :] = without_first[..., 0] = False
    without_special[..., fixed_T, :] = without_special[..., fixed_T] = False
    return np.stack([visible, without_first, without_special][: len(windows.positions)])


def describe(loaded: load_model.PretrainedModel, config: PretrainedConfig, windows: Windows) -> str:
    own, adapter = loaded.model.config, loaded.adapter
    if adapter.maps:
        cells = windows.places_GWT.shape[2]
        size = f"D={min(windows.widths)} to {max(windows.widths)}, windows of {cells} cells of the coarsest map"
    else:
        heads = f", H={own.num_attention_heads}" if adapter != UNKNOWN else ""
        joined = f" ({getattr(own, adapter.rate)} at a position)" if adapter.rate else ""
        unit = "tokens" if loaded.reads_text else "positions"
        size = f"D={own.hidden_size}{heads}, windows of {config.window} {unit}{joined}"
    return f"{loaded.about['model_class']}, {loaded.blocks} layers, {size}, {loaded.about['weights_file']}"


def print_summary(
    plan: Plan,
    loaded: load_model.PretrainedModel,
    seen: guards.AttentionPattern,
    about: dict[str, Any],
) -> None:
    """What a reader should know before the long part begins."""
    bits = about["bits_per_byte"]
    said = bits if isinstance(bits, str) else f"{bits:.2f}, {about['bits_of']}"
    said += f"; at most {about['bits_bound']:.2f}" if "bits_bound" in about else ""
    weights, vectors = load_model.weight_bytes(loaded.model), vectors_of_batch(plan, loaded)
    if seen.bias_NHTT is not None:
        vectors += len(input_names(plan.config.measure)) * seen.bias_NHTT.nbytes
    for line in (
        f"{describe(loaded, plan.config, plan.windows)}, computed in {about['computed_in']}",
        *plan.windows.in_words(),
        *([f"clamped: {about['clamped']}"] if "clamped" in about else []),
        f"residual stream: {about['residual_stream']}",
        f"attention: {about.get('attention', 'not asked for')}",
        *([f"readout: {about['readout']}"] if "readout" in about else []),
        f"{'bits per byte of the text' if loaded.reads_text else 'loss'}: {said}",
        f"memory: weights {weights / 1e9:.2f} GB, vectors of a batch {vectors / 1e9:.2f} GB, "
        f"about {(weights + (1 + WORK) * vectors + BASE) / 1e9:.0f} GB in all",
    ):
        print(f"{plan.name}: {line}")


def vectors_of_batch(plan: Plan, loaded: load_model.PretrainedModel) -> int:
    """Bytes."""
    windows, inputs = plan.windows, len(input_names(plan.config.measure))
    if loaded.adapter.maps:  # the inputs themselves, and the points of all layers
        return windows.probe.tokens_GWT[0].nbytes * inputs + 4 * plan.config.measure.points * sum(
            windows.widths
        )
    places = windows.places_GWT[0].size * inputs
    return (
        places
        * loaded.model.config.hidden_size
        * 4
        * (loaded.blocks + 1 + 2 * loaded.blocks * plan.heads)
    )
