"""Measure one revision of a model: load and check it, read its windows, and make its table.

Letters: G batches, S sets of positions, M positions of a fold, Z inputs of a batch: its windows, and
shuffled ones.
"""

import dataclasses
import json
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope.config.measure_config import EVERY_LAYER, FAMILY_NAMES, MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig, revision_steps
from anisoscope.metrics.quantity import Values
from anisoscope.metrics.registry import select_kind
from anisoscope.results import replicates_table
from anisoscope.results.summary import CHOSEN
from anisoscope.sources import activations
from anisoscope.sources.activations import BatchActivations, input_names
from anisoscope.sources.array_checks import LENS_FAMILY
from anisoscope.sources.evaluation_windows import add_massive_set
from anisoscope.sources.hf import guards, logits
from anisoscope.sources.hf.adapters import UNKNOWN, adapter_name, find_adapter
from anisoscope.sources.hf.extract import choose_layers, clamp_coordinates, read_activations
from anisoscope.sources.hf.load_model import PretrainedModel, load_model, tokens_per_position
from anisoscope.sources.hf.pretrained_weights import find_weights
from anisoscope.sources.hf.residuals import Residuals
from anisoscope.sources.hf.token_windows import InputWindows, tokens_at_positions
from anisoscope.sources.massive_tokens import find_massive_tokens
from anisoscope.utils.errors import SettingError, UserError
from anisoscope.utils.progress import progress_bar, report_stage

AGAIN = 16  # of so many windows one is read again for the noise floor
# families that read queries and keys
HEAD_FAMILIES = select_kind(FAMILY_NAMES, "heads")


class Plan(NamedTuple):
    """What to read and measure of every revision of a model."""

    config: PretrainedConfig
    measure: MeasureConfig  # with the families and null models to measure now
    windows: InputWindows
    corpus: Any  # the text, or the folder of pictures or sound
    name: str
    printed: bool = True  # print what is found; else a progress bar is shown

    @property
    def heads(self) -> bool:
        return any(family in self.measure.families for family in HEAD_FAMILIES)

    @property
    def unembedding(self) -> bool:
        return LENS_FAMILY in self.measure.families

    @property
    def reported(self) -> bool:
        return self.config.hidden_states == "reported"

    @property
    def attributes(self) -> dict[str, Any]:
        """Attributes of every table: the origin of its numbers."""
        return {
            "run": self.name,
            "corpus": self.corpus.name,
            "corpus_sha256": self.corpus.sha256,
            "pretrained": self.config.pretrained.name,
            "points": self.measure.points,
            "batches": self.measure.batches,
            "folds": self.measure.folds,
            "config": json.dumps(dataclasses.asdict(self.config)),
            **self.windows.attributes,
        }


def unmeasurable_families(
    settings: Any, class_name: str, layers: tuple[int, ...]
) -> dict[str, str]:
    """Return the families that cannot be measured for a model's settings and class, and why.

    `layers` are those that were chosen; none: all.
    """
    adapter, entry, reasons = find_adapter(adapter_name(settings)), adapter_name(settings), {}
    scores = adapter.extra_scores and f"in models of type {entry!r} {adapter.extra_scores}"
    if adapter == UNKNOWN:
        scores = f"models of type {entry!r} have no entry (docs/howto/adding.md)"
    if scores:  # queries and keys do not determine them
        reasons |= dict.fromkeys(HEAD_FAMILIES, scores)
    if reason := logits.missing_head(adapter, class_name):
        reasons[LENS_FAMILY] = reason
    if getattr(settings, "is_causal", True) is False:
        reasons[LENS_FAMILY] = f"{class_name} sees the token that it is to predict"
    if layers:
        reasons |= {name: f"{name} reads {what} too" for name, what in EVERY_LAYER.items()}
    if set(layers) == {0}:
        reasons |= dict.fromkeys(HEAD_FAMILIES, "the embedding has no attention")
    return reasons


def open_revision(plan: Plan, step: int) -> PretrainedModel:
    """Load the model of a revision and check it; clamp coordinates if that is set."""
    weights = plan.config.pretrained
    revisions = revision_steps(weights)
    loaded = load_model(find_weights(weights.name, revisions[step]), weights)
    check_revision(plan, loaded)
    if weights.clamp is not None:
        tokens_WT, last = plan.windows.probe.tokens_GWT[0], step == max(revisions)
        loaded.attributes["clamped"] = clamp_coordinates(
            loaded, weights.clamp, tokens_WT, weights.batch_size, last
        )
    return loaded


def check_revision(plan: Plan, loaded: PretrainedModel) -> None:
    """Check the model against the settings before it reads a window."""
    if loaded.reads_text:
        guards.check_vocabulary(loaded, plan.windows.largest_token)
    if plan.heads or loaded.reads_text:
        guards.check_window(loaded, plan.config.window)
    if choose_layers(loaded, plan.config.layers) == (0,) and plan.heads:
        advice = "name a block, from 1 on, or leave the families of attention out"
        raise UserError(f"layers: the embedding has no attention; {advice}")
    if plan.unembedding and (reason := logits.missing_head(loaded.adapter, loaded.class_name)):
        raise UserError(f"{reason}; leave the family {LENS_FAMILY} out")


def check_distinct(digests: dict[int, str]) -> None:
    """Raise UserError if two steps have the same weights: a hub may list a file under two names."""
    steps: dict[str, int] = {}
    for step, digest in sorted(digests.items()):
        if (first := steps.setdefault(digest, step)) != step:
            what = f"steps {first} and {step} hold the same weights"
            advice = "remove the wrong step from pretrained.revisions"
            raise SettingError(f"{what}; {advice}", "pretrained.revisions")


def read_residuals(plan: Plan, loaded: PretrainedModel) -> list[np.ndarray]:
    """Read the residual stream of each batch of a revision, without measuring."""
    size = plan.config.pretrained.batch_size
    tokens_GWT = plan.windows.probe.tokens_GWT
    options = {"reported": plan.reported, "layers": choose_layers(loaded, plan.config.layers)}
    reads = (read_activations(loaded, x[None], size, **options) for x in tokens_GWT)
    return [read.resid_ZLBTD[0] for read in reads]


def measure_revision(
    plan: Plan,
    loaded: PretrainedModel,
    step: int,
    last: bool,
    residuals: Residuals | None = None,
) -> xr.Dataset:
    """Measure the residual stream, queries and keys; of the last revision the noise floor too."""
    windows, measure = plan.windows, plan.measure
    label = "" if plan.printed else "measure_model: "
    with report_stage(f"{label}checking the model"):
        pattern, unembedding, findings = check_numbers(plan, loaded, last)
        layers = choose_layers(loaded, plan.config.layers)
        pattern = pattern.choose(layers) if plan.heads else pattern
    findings["model"] = describe_revision(loaded, plan.config)
    if last and plan.printed:  # before the long part begins
        for key, value in (windows.attributes | findings).items():
            text = f"{value:.4g}" if isinstance(value, float) else value
            print(f"{plan.name}: {key.replace('_', ' ')}: {text}")
    visible = visible_sets(pattern.visible_NTT, windows)

    def measure_batch(g: int) -> tuple[dict[str, Values], BatchActivations]:
        inputs = [windows.probe.tokens_GWT[g], windows.probe.shuffled_GWT[g]]
        inputs_ZWT = np.stack(inputs[: len(input_names(measure))])
        with report_stage(f"{label}reading batch {g + 1} of {measure.batches}"):
            options = {"reported": plan.reported, "layers": layers}
            read = read_activations(loaded, inputs_ZWT, size, plan.heads, **options)
        if residuals:
            residuals.keep(step, g, read.resid_ZLBTD[0])
        read = read._replace(unembedding=unembedding, bias_NHTT=pattern.bias_NHTT)
        if unembedding is not None:
            read = read._replace(target_ZBT=logits.next_tokens(inputs_ZWT, windows.fixed_T))
        reference_clouds = residuals.compared(step, g) if residuals else {}
        picks_SP, massive = windows.probe.picks_SGP[:, g], None
        if measure.without_massive:
            massive = find_massive_tokens(read.resid_ZLBTD, windows.probe.order_GJM[g])
            marks.append(massive.massive_ZLP[0])
        with report_stage(f"{label}measuring batch {g + 1} of {measure.batches}"):
            values = activations.measure_batch(
                g, read, reference_clouds, picks_SP, visible, measure, massive
            )
        return values, read

    size, batches, marks = plan.config.pretrained.batch_size, [], []
    with progress_bar(None, label.rstrip(": "), "batch", total=measure.batches) as progress:
        for g in range(measure.batches):
            measured, read = measure_batch(g)
            batches.append(measured)
            progress.update()
            if last and g == 0:
                with report_stage(f"{label}reading some windows again, for the noise floor"):
                    reference_clouds = residuals.compared(step, g) if residuals else {}
                    again = read_again(plan, loaded, read)
                    findings["noise_floor"] = find_noise(
                        plan, measured, again, reference_clouds, visible[:1]
                    )
                    del again
            del read  # before the next batch is read
    values = activations.join_batches(batches)
    values = residuals.mark_missing(step, values) if residuals else values
    attributes = as_attributes(findings) | plan.attributes
    positions = add_massive_set(windows.positions, measure)
    table = replicates_table.build_table(values, step, positions, attributes)
    table = replicates_table.add_massive(table, marks) if marks else table
    table = label_layers(table, loaded, layers)
    return residuals.annotate(step, table) if residuals else table


def label_layers(
    table: xr.Dataset, loaded: PretrainedModel, layers: tuple[int, ...] | None
) -> xr.Dataset:
    """Give the layers of a table the numbers that they have in the model (None: all layers)."""
    if layers is None:
        return table
    labels = {"layer": layers, "other_layer": layers, "block": [n for n in layers if n]}
    coords = {dim: (dim, list(x)) for dim, x in labels.items() if dim in table.dims}
    if "layer" in table.dims:
        coords["depth"] = "layer", [layer / loaded.blocks for layer in layers]
    read = f"{', '.join(map(str, layers))} of 0 to {loaded.blocks}"
    return table.assign_coords(coords).assign_attrs(layers=read, layer_0=CHOSEN)


def read_again(plan: Plan, loaded: PretrainedModel, read: BatchActivations) -> BatchActivations:
    """Move the vectors of a batch as far as they move in another pass.

    Some windows are read again, in passes of another size and without a fused kernel. How far each
    of their vectors moves is added to the vector at its position in every window.
    """
    tokens_WT, size = plan.windows.probe.tokens_GWT[0], plan.config.pretrained.batch_size
    few = max(1, len(tokens_WT) // AGAIN)
    options = {"heads": plan.heads, "plain": True, "reported": plan.reported}
    options |= {"layers": read.layers}
    again = read_activations(loaded, tokens_WT[None, :few], 1 if size > 1 else 2, **options)
    which_W, moved = np.arange(len(tokens_WT)) % few, {}
    for name in ("resid_ZLBTD", "q_ZNBTHK", "k_ZNBTHK"):
        if (x := getattr(read, name)) is not None:
            move = getattr(again, name)[0] - x[0, :, :few]
            moved[name] = (x[0] + move[:, which_W])[None]
    if read.target_ZBT is not None:
        moved["target_ZBT"] = read.target_ZBT[:1]
    return read._replace(**moved)


def find_noise(
    plan: Plan,
    values: dict[str, Values],
    again: BatchActivations,
    reference_clouds: dict[str, Any],
    visible: np.ndarray,
) -> str:
    """Measure the moved vectors of the first batch; return how far each quantity moves, as JSON."""
    settings = dataclasses.replace(plan.measure, nulls=())
    picks_SP = plan.windows.probe.picks_SGP[:1, 0]
    moved = activations.measure_batch(0, again, reference_clouds, picks_SP, visible, settings)
    return json.dumps(guards.noise_floor(values, moved))


def check_numbers(
    plan: Plan, loaded: PretrainedModel, last: bool
) -> tuple[guards.AttentionPattern, logits.Unembedding | None, dict[str, Any]]:
    """Check the captured activations against the model's hidden states, attention and logits.

    Return the attention pattern, the unembedding, and the findings, for tables.
    """
    windows, weights = plan.windows, plan.config.pretrained
    tokens_T, context = windows.probe.tokens_GWT[0, 0], windows.context
    pattern, unembedding = guards.AttentionPattern(np.ones((1, context, context), bool)), None
    findings = loaded.attributes | {"residual_stream": guards.check_final_norm(loaded, tokens_T)}
    if plan.reported:
        findings["residual_stream"] = guards.check_reported(loaded, tokens_T)
    if plan.heads:
        tokens_WT = windows.probe.tokens_GWT[0, :2]
        pattern, findings["attention"] = guards.check_attention(loaded, tokens_WT)
    if plan.unembedding:
        unembedding = logits.make_unembedding(loaded)
        findings[LENS_FAMILY] = logits.check_logits(loaded, unembedding, tokens_T)
    if not loaded.reads_text:
        return pattern, unembedding, findings | {"bits_per_byte": "not checked: it reads no text"}
    most = weights.max_bits_per_byte if last else np.inf  # early revisions have not learned yet
    loss = guards.check_bits_per_byte(loaded, windows, weights.batch_size, most)
    return pattern, unembedding, findings | loss


def as_attributes(attributes: dict[str, Any]) -> dict[str, Any]:
    """Convert values to types that attributes of a table can hold."""
    return {
        name: value if isinstance(value, str | int | float) else "none"
        for name, value in attributes.items()
    }


def visible_sets(visible_NTT: np.ndarray, windows: InputWindows) -> np.ndarray:
    """Return which key each query sees, for each set of positions.

    A position that every window leaves out of a set is neither query nor key. The shape is (S, T,
    T), or (S, N, T, T) where blocks see different keys.
    """
    visible = visible_NTT if (visible_NTT != visible_NTT[0]).any() else visible_NTT[0]
    fixed_T = tokens_at_positions(windows.fixed_T, windows.tokens_per_position).any(-1)
    without_first_token, without_special = visible.copy(), visible.copy()
    without_first_token[..., 0, :] = without_first_token[..., 0] = False
    without_special[..., fixed_T, :] = without_special[..., fixed_T] = False
    return np.stack([visible, without_first_token, without_special][: len(windows.positions)])


def describe_revision(loaded: PretrainedModel, config: PretrainedConfig) -> str:
    """Describe model and windows, for tables and figures."""
    settings, attributes = loaded.model.config, loaded.attributes
    heads = f", H={settings.num_attention_heads}" if loaded.adapter != UNKNOWN else ""
    joined = tokens_per_position(settings)
    unit = "tokens" if loaded.reads_text else "positions"
    unit += f" ({joined} at a position)" if joined > 1 else ""
    size = f"{loaded.blocks} layers, D={settings.hidden_size}{heads}"
    windows = f"windows of {config.window} {unit}"
    return f"{attributes['model_class']}, {size}, {windows}, {attributes['weights_file']}"
