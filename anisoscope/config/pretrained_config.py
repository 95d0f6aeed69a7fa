"""Settings of a pretrained model and its measurement."""

import re
from dataclasses import dataclass, field

from anisoscope.config.measure_config import (
    DEFAULT,
    FAMILIES,
    TEXT_FAMILIES,
    MeasureConfig,
    check_measure,
)
from anisoscope.config.run_config import DataConfig
from anisoscope.config.tangents_config import TangentsConfig, check_settings
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import check_fields, setting

DTYPES = ("float32", "bfloat16", "float16")
HIDDEN_STATES = ("blocks", "reported")
MODEL_FAMILIES = tuple(
    name for name in FAMILIES if name not in TEXT_FAMILIES
)  # measured of any model
DEFAULT_MODEL_FAMILIES = tuple(name for name in MODEL_FAMILIES if name in DEFAULT)
ALONE = 1  # step of a model without revisions; step 0 is the untrained null model


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsConfig:
    name: str = setting("", "name on the Hugging Face Hub, local folder, or local .gguf file")
    revisions: tuple[str, ...] = setting(
        (), "checkpoints to measure: branches on the hub, or subfolders"
    )
    dtype: str = setting(
        "float32", "computation dtype, whatever the dtype of the weights", choices=DTYPES
    )
    device_map: str | None = setting(
        None, 'device map of accelerate; "auto": spread the weights over all devices'
    )
    batch_size: int = setting(8, "windows per forward pass", low=1)
    clamp: float | None = setting(None, "clip each block's outputs to ±clamp; None: no clipping")
    max_bits_per_byte: float | None = setting(
        None, "reject a model whose loss is above this; None: the unigram entropy of its tokens"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainedConfig:
    pretrained: WeightsConfig = field(default_factory=WeightsConfig)
    data: DataConfig = field(default_factory=DataConfig)
    measure: MeasureConfig = field(
        default_factory=lambda: MeasureConfig(batches=2, families=DEFAULT_MODEL_FAMILIES)
    )
    tangents: TangentsConfig = field(default_factory=TangentsConfig)
    window: int = setting(256, "window length in tokens, or in frames of speech", low=2)
    characters: int | None = setting(
        None, "mean characters per window, which sets its length in tokens; None: `window`", low=8
    )
    hidden_states: str = setting(
        "blocks",
        "blocks: every block's output; reported: the last layer after the final norm",
        choices=HIDDEN_STATES,
    )
    special_tokens: bool = setting(
        False, "add the tokenizer's begin and end tokens to every window"
    )


def check_pretrained(config: PretrainedConfig) -> None:
    """Raise UserError if no model can be measured with these settings."""
    weights, measure = config.pretrained, config.measure
    if not weights.name:
        example = "--config=experiments/pretrained.py:EleutherAI/pythia-160m"
        raise UserError(f"no model is named; pass {example}, say")
    check_fields(config)
    if weights.clamp is not None and not weights.clamp > 0:
        raise UserError(f"pretrained.clamp is {weights.clamp}; it must be above 0")
    if measure.masked:
        raise UserError("measure.masked is for models trained here; omit it")
    if measure.hook_points:
        raise UserError("measure.hook_points is for models trained here; omit it")
    if unknown := [name for name in measure.families if name in TEXT_FAMILIES]:
        why = "counts characters in the training text, which is unknown for pretrained models"
        raise UserError(f"measure.families: {unknown[0]} {why}; omit it")
    if config.tangents.enabled:
        check_settings(config.tangents)
    for reads, name in (
        ("logit_lens" in measure.families, "measure.families: logit_lens"),
        (config.tangents.enabled, "tangents.enabled"),
    ):
        if reads and config.hidden_states != "blocks":
            raise UserError(f"{name} reads block outputs; omit hidden_states")
    # The number of heads is checked when the model is loaded.
    check_measure(measure, measure.projected_head + 1)
    revision_steps(weights)


def revision_steps(weights: WeightsConfig) -> dict[int, str | None]:
    """Map training steps to revisions, ascending; a model without revisions has step 1."""
    revisions: dict[int, str | None] = {}
    for revision in weights.revisions:
        step = revision_step(revision)
        if step in revisions:
            both = f"{revisions[step]} and {revision}"
            raise UserError(f"pretrained.revisions: {both} both have step {step}; omit either")
        revisions[step] = revision
    return dict(sorted(revisions.items())) or {ALONE: None}


def revision_step(revision: str) -> int:
    """Read the step in a revision's name: step1000, checkpoint-1000, stage1-step1000-tokens4B."""
    numbers = re.findall(r"step[_-]?(\d+)", revision) or re.findall(r"\d+", revision)
    if len(numbers) != 1:
        what = f"has the numbers {', '.join(numbers)}" if numbers else "has no number"
        advice = "name a training step, as in step1000"
        raise UserError(f"pretrained.revisions: {revision} {what}; {advice}")
    return int(numbers[0])
