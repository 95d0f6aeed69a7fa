"""Measure one revision: load the weights, check them, read the windows, and make its table.

Letters: G batches, S sets of positions, Z inputs of a batch: its windows, and shuffled ones.
"""

import functools
import json
from collections.abc import Callable
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.config.pretrained_config import PretrainedConfig, revision_steps
from anisoscope.results import kept_vectors, replicates_table
from anisoscope.sources import extracted
from anisoscope.sources.activations import Measured
from anisoscope.sources.hf import load_model
from anisoscope.sources.hf.adapters import UNKNOWN
from anisoscope.sources.hf.load_model import PretrainedModel
from anisoscope.sources.hf.media import feature_maps
from anisoscope.sources.hf.media.media_inputs import NO_LOSS
from anisoscope.sources.hf.pretrained_weights import Place
from anisoscope.sources.hf.reading import guards, inside_names, logits
from anisoscope.sources.hf.reading.clamp import clamp_coordinates
from anisoscope.sources.hf.reading.extract import Activations, read_activations
from anisoscope.sources.hf.reading.token_windows import Windows, tokens_at_positions
from anisoscope.sources.hf.reading_plan import Plan, find_revision, measure_batches
from anisoscope.sources.hf.residuals import Residuals, compared_with, previous_step
from anisoscope.sources.hook_points import number_blocks
from anisoscope.utils.errors import UserError

PREVIOUS = (
    "step of the revision that cka_previous and neighbor_overlap_previous compare with; -1: none"
)
Attributes = dict[str, Any]


def open_model(plan: Plan, place: Place) -> PretrainedModel:
    """Load the model of a revision, with clamped coordinates if that is set."""
    weights = plan.config.pretrained
    loaded = check_model(plan, load_model.load_model(place, weights))
    if weights.clamp is not None:
        if loaded.adapter.maps:
            raise UserError("pretrained.clamp needs blocks of one width; leave it out")
        last = place == find_revision(plan.config, max(revision_steps(weights)))
        tokens_WT = plan.windows.probe.tokens_GWT[0]
        loaded.about["clamped"] = clamp_coordinates(
            loaded, weights.clamp, tokens_WT, weights.batch_size, last
        )
    return loaded


def check_model(plan: Plan, loaded: PretrainedModel) -> PretrainedModel:
    """Check the model against the settings before it reads a window, and return it."""
    name, measure = type(loaded.model).__name__, plan.config.measure
    if loaded.reads_text:
        guards.check_vocabulary(loaded, plan.windows)
    if plan.heads or loaded.reads_text:
        guards.check_window(loaded, plan.config.window, measure.projected_head)
    if plan.unembedding and (reason := logits.missing_head(loaded.adapter, name)):
        raise UserError(f"measure.families: {reason}; leave {logits.FAMILY} out")
    inside_names.check_hook_points(loaded.adapter, name, measure.hook_points)
    if plan.reported and loaded.adapter.maps:
        raise UserError("hidden_states=reported needs blocks of one width; leave it out")
    return loaded


def read_residuals(plan: Plan, loaded: PretrainedModel) -> list[np.ndarray]:
    """Read the residual stream of each batch, without measuring."""
    if loaded.adapter.maps:
        return feature_maps.read_map_residuals(plan, loaded)
    size, streams = plan.config.pretrained.batch_size, []
    for tokens_WT in plan.windows.probe.tokens_GWT:
        read = read_activations(loaded, tokens_WT[None], size, False, reported=plan.reported)
        streams.append(read.resid_ZNWTD[0])
    return streams


def measure_stream(
    plan: Plan,
    loaded: PretrainedModel,
    step: int,
    last: bool,
    residuals: Residuals,
    attributes: Attributes,
) -> xr.Dataset:
    """Measure the residual stream, queries and keys of a revision."""
    windows, measure = plan.windows, plan.config.measure
    pattern, unembedding, about = check_numbers(plan, loaded, last)
    if last and plan.name:
        print_summary(plan, loaded, about)
    if loaded.adapter.maps:
        measured, noise = feature_maps.measure_maps(plan, loaded, step, last, residuals)
    else:
        visible = visible_sets(pattern.visible_NTT, windows)
        extras = extracted.ModelExtras(pattern.bias_NHTT, unembedding)
        measured, noise = measure_batches(
            plan,
            last,
            functools.partial(_measure_windows, plan, loaded, step, residuals, visible, extras),
        )
    about |= {"noise_floor": json.dumps(noise)} if noise else {}
    table = replicates_table.table(
        residuals.mark_missing(step, measured.values),
        step,
        windows.positions,
        as_attributes(about) | {"model": describe_model(loaded, plan.config, windows)} | attributes,
    )
    picks_P, context = windows.probe.picks_SGP[0, 0], windows.places_GWT.shape[2]
    table = table.assign(
        kept_vectors.labeled(measured.vectors, picks_P, context, measure.projected_head)
    )
    if residuals.compare:
        table.attrs["compared_with"] = compared_with(residuals.steps, step)
        previous = previous_step(residuals.steps, step)
        table["previous_step"] = xr.DataArray(previous, attrs={"long_name": PREVIOUS})
    return table


def check_numbers(
    plan: Plan, loaded: PretrainedModel, last: bool
) -> tuple[guards.AttentionPattern, logits.Unembedding | None, Attributes]:
    """Check the captured activations against the model's hidden states, attention and logits.

    Returns:
        The attention pattern, the unembedding, and the findings, for tables.
    """
    windows, weights = plan.windows, plan.config.pretrained
    tokens_T, context = windows.probe.tokens_GWT[0, 0], windows.places_GWT.shape[2]
    pattern, unembedding = guards.AttentionPattern(np.ones((1, context, context), bool), None), None
    check = feature_maps.check_maps if loaded.adapter.maps else guards.check_final_norm
    about = loaded.about | {"residual_stream": check(loaded, tokens_T)}
    if plan.reported:
        about["residual_stream"] = guards.check_reported(loaded, tokens_T)
    if plan.heads:
        pattern, about["attention"] = guards.check_attention(
            loaded, windows.probe.tokens_GWT[0, :2]
        )
    if plan.unembedding:
        unembedding = logits.make_unembedding(loaded)
        about["logit_lens"] = logits.check_logits(loaded, unembedding, tokens_T)
    if not loaded.reads_text:
        return pattern, unembedding, about | NO_LOSS
    most = weights.max_bits_per_byte if last else np.inf  # early revisions have not learned yet
    return (
        pattern,
        unembedding,
        about | guards.check_bits_per_byte(loaded, windows, weights.batch_size, most),
    )


def as_attributes(about: Attributes) -> Attributes:
    """Convert values to types that attributes of a table can hold."""
    return {
        name: value if isinstance(value, str | int | float) else "none"
        for name, value in about.items()
    }


def _measure_windows(
    plan: Plan,
    loaded: PretrainedModel,
    step: int,
    residuals: Residuals,
    visible: np.ndarray,
    extras: extracted.ModelExtras,
    g: int,
    size: int,
    again: bool,
) -> Measured:
    """Read and measure a batch of windows; `again` as in `measure_batches`."""
    inputs_ZWT, sets = plan.inputs(g, again), slice(1 if again else None)
    read = read_activations(loaded, inputs_ZWT, size, plan.heads, again, plan.reported)
    if not again:
        residuals.keep(step, g, read.resid_ZNWTD[0])
    if extras.unembedding is not None:
        target_ZWT = logits.next_tokens(inputs_ZWT, plan.windows.fixed_T)
        extras = extras._replace(target_ZWT=target_ZWT)
    picks_SP, settings = plan.windows.probe.picks_SGP[sets, g], plan.settings(again)
    others = residuals.compared(step, g)
    return extracted.measure_batch(g, read, others, picks_SP, visible[sets], settings, extras)


def measure_hook_point(
    plan: Plan, loaded: PretrainedModel, step: int, last: bool, name: str, attributes: Attributes
) -> xr.Dataset:
    """Measure a hook point of the blocks; for the last revision the noise floor too."""

    def read(inputs_ZWT: np.ndarray, size: int, plain: bool) -> np.ndarray:
        return inside_names.read_hook_point(loaded, inputs_ZWT, size, name, plain)

    return number_blocks(measure_clouds(plan, read, step, last, attributes))


def measure_clouds(
    plan: Plan,
    read: Callable[[np.ndarray, int, bool], np.ndarray],
    step: int,
    last: bool,
    attributes: Attributes,
) -> xr.Dataset:
    """Measure the vectors (Z, N, W, T, D) of read(inputs_ZWT, windows in a pass, plain)."""
    context = plan.windows.places_GWT.shape[2]
    visible = visible_sets(np.ones((1, context, context), bool), plan.windows)

    def measure(g: int, size: int, again: bool) -> Measured:
        x_ZNWTD, sets = read(plan.inputs(g, again), size, again), slice(1 if again else None)
        none = np.zeros((len(x_ZNWTD), 1, 1, 1, 1, 1), np.float32)
        picks_SP, settings = plan.windows.probe.picks_SGP[sets, g], plan.settings(again)
        inputs = Activations(x_ZNWTD, none, none)
        return extracted.measure_batch(g, inputs, {}, picks_SP, visible[sets], settings)

    measured, noise = measure_batches(plan, last, measure)
    attributes = attributes | ({"noise_floor": json.dumps(noise)} if last else {})
    return replicates_table.table(measured.values, step, plan.windows.positions, attributes)


def visible_sets(visible_NTT: np.ndarray, windows: Windows) -> np.ndarray:
    """Return which key each query sees, for each set of positions.

    A position that every window leaves out of a set is neither query nor key. The shape is (S, T,
    T), or (S, N, T, T) where blocks see different keys.
    """
    visible = visible_NTT if (visible_NTT != visible_NTT[0]).any() else visible_NTT[0]
    fixed_T = tokens_at_positions(windows.fixed_T, windows.rate).any(-1)
    without_first_token, without_special = visible.copy(), visible.copy()
    without_first_token[..., 0, :] = without_first_token[..., 0] = False
    without_special[..., fixed_T, :] = without_special[..., fixed_T] = False
    return np.stack([visible, without_first_token, without_special][: len(windows.positions)])


def describe_model(loaded: PretrainedModel, config: PretrainedConfig, windows: Windows) -> str:
    """Describe model and windows, for tables and figures."""
    own, adapter = loaded.model.config, loaded.adapter
    if adapter.maps:
        cells = windows.places_GWT.shape[2]
        size = f"D={min(windows.widths)} to {max(windows.widths)}, windows of {cells} cells of the coarsest map"
    else:
        heads = f", H={own.num_attention_heads}" if adapter != UNKNOWN else ""
        joined = f" ({getattr(own, adapter.rate)} at a position)" if adapter.rate else ""
        unit = "tokens" if loaded.reads_text else "positions"
        size = f"D={own.hidden_size}{heads}, windows of {config.window} {unit}{joined}"
    about = loaded.about
    return f"{about['model_class']}, {loaded.blocks} layers, {size}, {about['weights_file']}"


def print_summary(plan: Plan, loaded: PretrainedModel, about: Attributes) -> None:
    """Print a summary for the reader, before the long part begins."""
    bits = about["bits_per_byte"]
    loss = bits if isinstance(bits, str) else f"{bits:.2f}, {about['bits_of']}"
    loss += f"; at most {about['bits_bound']:.2f}" if "bits_bound" in about else ""
    for line in (
        f"{describe_model(loaded, plan.config, plan.windows)}, computed in {about['computed_in']}",
        *plan.windows.in_words(),
        *([f"clamped: {about['clamped']}"] if "clamped" in about else []),
        f"residual stream: {about['residual_stream']}",
        f"attention: {about.get('attention', 'not asked for')}",
        *([f"unembedding: {about['logit_lens']}"] if "logit_lens" in about else []),
        f"{'bits per byte of the text' if loaded.reads_text else 'loss'}: {loss}",
    ):
        print(f"{plan.name}: {line}")
