"""A pretrained model and how it is measured: every setting and its default."""

import re
from dataclasses import dataclass, field

from anisoscope.config import data_config as data_config
from anisoscope.config import measure_config as panel_config
from anisoscope.config.data_config import DataConfig
from anisoscope.config.measure_config import DEFAULT, FAMILIES, OF_TEXT, MeasureConfig
from anisoscope.config.tangents_config import TangentsConfig, check_settings
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import check_fields, setting

DTYPES = ("float32", "bfloat16", "float16")
HIDDEN_STATES = ("blocks", "reported")
# what is known of others' models
OF_MODELS = tuple(name for name in FAMILIES if name not in OF_TEXT)
DEFAULT_OF_MODELS = tuple(name for name in OF_MODELS if name in DEFAULT)
# the step of a model whose name tells none; step 0 is the untrained null model, and no model is its
# own
ALONE = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsConfig:
    name: str = setting("", "of a model hub, a local folder, or a local .gguf file")
    revisions: tuple[str, ...] = setting((), "checkpoints: branches of the hub, or inner folders")
    dtype: str = setting("float32", "what is computed in, whatever the file holds", choices=DTYPES)
    device_map: str | None = setting(None, 'as accelerate has it: "auto" spreads weights')
    batch_size: int = setting(8, "windows in one pass of the model", low=1)
    clamp: float | None = setting(None, "largest |coordinate| that a block may put out")
    most_bits: float | None = setting(
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
    if not config.pretrained.name:
        raise UserError(
            "no model is named; pass --config=experiments/pretrained.py:EleutherAI/pythia-160m, say"
        )
    data_config.check_data(config.data)
    check_fields(config)
    if config.pretrained.clamp is not None and not config.pretrained.clamp > 0:
        raise UserError(f"pretrained.clamp is {config.pretrained.clamp}; it must be above 0")
    if config.measure.masked:
        raise UserError("measure.masked is for models trained here; leave it out")
    if config.measure.weighting != "none":
        raise UserError(
            f"measure.weighting={config.measure.weighting} is for models trained here; leave it out"
        )
    for family in config.measure.families:
        if family in FAMILIES and family not in OF_MODELS:
            words = (
                "counts the characters that a model was trained on, which of this one are not known"
            )
            raise UserError(f"measure.families: {family} {words}; leave it out")
    if "readout" in config.measure.families and config.hidden_states != "blocks":
        raise UserError(
            "measure.families: readout reads outputs of blocks; leave hidden_states out"
        )
    if config.tangents.enabled:
        check_settings(config.tangents)
        if config.hidden_states != "blocks":
            raise UserError(
                "tangents.enabled: gradients are of the outputs of blocks; leave hidden_states out"
            )
    # The heads are counted when it is loaded.
    panel_config.check_measure(config.measure, config.measure.projected_head + 1)
    steps(config.pretrained)


def steps(weights: WeightsConfig) -> dict[int, str | None]:
    """Training step -> revision, ascending; a model without revisions stands at step 1."""
    by_step: dict[int, str | None] = {}
    for revision in weights.revisions:
        step = step_of(revision)
        if step in by_step:
            both = f"{by_step[step]} and {revision}"
            raise UserError(f"pretrained.revisions: {both} are both of step {step}; leave one out")
        by_step[step] = revision
    return dict(sorted(by_step.items())) or {ALONE: None}


def step_of(revision: str) -> int:
    """The training step in a revision's name: step1000, checkpoint-1000,
    stage1-step1000-tokens4B.
    """
    named = re.findall(r"step[_-]?(\d+)", revision) or re.findall(r"\d+", revision)
    if len(named) != 1:
        words = "has no number" if not named else f"has the numbers {', '.join(named)}"
        raise UserError(
            f"pretrained.revisions: {revision} {words}; one training step is needed, as in step1000"
        )
    return int(named[0])
