"""A pretrained model and how it is measured: every setting and its default."""

import re
from dataclasses import dataclass, field

from anisoscope.config.data_config import DataConfig, check_data
from anisoscope.config.measure_config import (
    DEFAULT,
    FAMILIES,
    OF_TEXT,
    MeasureConfig,
    check_measure,
)
from anisoscope.config.tangents_config import TangentsConfig, check_settings
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import check_fields, setting

DTYPES = ("float32", "bfloat16", "float16")
HIDDEN_STATES = ("blocks", "reported")
OF_MODELS = tuple(name for name in FAMILIES if name not in OF_TEXT)  # measured of any model
DEFAULT_OF_MODELS = tuple(name for name in OF_MODELS if name in DEFAULT)
ALONE = 1  # the step of a model whose name tells none; step 0 is the untrained null model


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsConfig:
    name: str = setting("", "of a model hub, a local folder, or a local .gguf file")
    revisions: tuple[str, ...] = setting((), "checkpoints: branches of the hub, or inner folders")
    dtype: str = setting("float32", "what is computed in, whatever the file holds", choices=DTYPES)
    device_map: str | None = setting(None, 'as accelerate has it: "auto" spreads weights')
    batch_size: int = setting(8, "windows in one pass of the model", low=1)
    clamp: float | None = setting(None, "largest |coordinate| that a block may put out")
    max_bits_per_byte: float | None = setting(
        None, "per byte, above which a model is refused; None: bits of token frequencies"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PretrainedConfig:
    pretrained: WeightsConfig = field(default_factory=WeightsConfig)
    data: DataConfig = field(default_factory=DataConfig)
    measure: MeasureConfig = field(
        default_factory=lambda: MeasureConfig(batches=2, families=DEFAULT_OF_MODELS)
    )
    tangents: TangentsConfig = field(default_factory=TangentsConfig)
    window: int = setting(256, "tokens, or frames of speech", low=2)
    characters: int | None = setting(
        None, "of a window's text, in the mean; sets the window", low=8
    )
    hidden_states: str = setting(
        "blocks", "outputs of blocks; or the last after a final norm", choices=HIDDEN_STATES
    )
    special_tokens: bool = setting(False, "begin and end windows as the tokenizer does a text")


def check_pretrained(config: PretrainedConfig) -> None:
    """Raise UserError, one line, where this cannot be measured of any model."""
    weights, measure = config.pretrained, config.measure
    if not weights.name:
        example = "--config=experiments/pretrained.py:EleutherAI/pythia-160m"
        raise UserError(f"no model is named; pass {example}, say")
    check_data(config.data)
    check_fields(config)
    if weights.clamp is not None and not weights.clamp > 0:
        raise UserError(f"pretrained.clamp is {weights.clamp}; it must be above 0")
    if measure.masked:
        raise UserError("measure.masked is for models trained here; leave it out")
    if measure.weighting != "none":
        what = f"measure.weighting={measure.weighting}"
        raise UserError(f"{what} is for models trained here; leave it out")
    if unknown := [name for name in measure.families if name in OF_TEXT]:
        why = "counts the characters that a model was trained on, which of this one are not known"
        raise UserError(f"measure.families: {unknown[0]} {why}; leave it out")
    if config.tangents.enabled:
        check_settings(config.tangents)
    for reads, name in (
        ("logit_lens" in measure.families, "measure.families: logit_lens"),
        (config.tangents.enabled, "tangents.enabled"),
    ):
        if reads and config.hidden_states != "blocks":
            raise UserError(f"{name} reads outputs of blocks; leave hidden_states out")
    # The heads are counted when it is loaded.
    check_measure(measure, measure.projected_head + 1)
    revision_steps(weights)


def revision_steps(weights: WeightsConfig) -> dict[int, str | None]:
    """Map training steps to revisions, ascending; a model without revisions stands at step 1."""
    revisions: dict[int, str | None] = {}
    for revision in weights.revisions:
        step = revision_step(revision)
        if step in revisions:
            both = f"{revisions[step]} and {revision}"
            raise UserError(f"pretrained.revisions: {both} are both of step {step}; leave one out")
        revisions[step] = revision
    return dict(sorted(revisions.items())) or {ALONE: None}


def revision_step(revision: str) -> int:
    """Read the step in a revision's name: step1000, checkpoint-1000, stage1-step1000-tokens4B."""
    numbers = re.findall(r"step[_-]?(\d+)", revision) or re.findall(r"\d+", revision)
    if len(numbers) != 1:
        what = f"has the numbers {', '.join(numbers)}" if numbers else "has no number"
        advice = "one training step is needed, as in step1000"
        raise UserError(f"pretrained.revisions: {revision} {what}; {advice}")
    return int(numbers[0])
