"""Settings of a pretrained model and its measurement, and of several models."""

import pathlib
import re
from dataclasses import dataclass, field, fields
from typing import Any

from anisoscope.config.measure_config import (
    DEFAULT_FAMILIES,
    FAMILY_NAMES,
    TEXT_FAMILIES,
    MeasureConfig,
    check_measure,
)
from anisoscope.config.run_config import DataConfig
from anisoscope.config.tangents_config import TangentsConfig, check_settings
from anisoscope.config.variants import select_size
from anisoscope.utils.errors import SettingError, UserError
from anisoscope.utils.settings import check_fields, replace, setting

DTYPES = ("float32", "bfloat16", "float16")
HIDDEN_STATES = ("blocks", "reported")
MODEL_FAMILIES = tuple(
    name for name in FAMILY_NAMES if name not in TEXT_FAMILIES
)  # measured of any model
DEFAULT_MODEL_FAMILIES = tuple(name for name in MODEL_FAMILIES if name in DEFAULT_FAMILIES)
MODALITIES = ("text", "characters", "speech", "vision")
MODEL_KINDS = ("encoder", "decoder")
TABLE = "models.json"  # the experiment's models by label
PAPERS = ("shape_of_learning", "inherent")
STAGE_NAME = re.compile(r"stage[_-]?\d+(-ingredient\d+)?")  # of a training, in a revision's name
REVISIONS = "pretrained.revisions"
SINGLE_STEP = 1  # step of a model without revisions; step 0 is the untrained null model


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
    window: int = setting(256, "window length in tokens, or in frames of speech", low=2, high=2**20)
    characters: int | None = setting(
        None, "mean characters per window, which sets its length in tokens; None: `window`", low=8
    )
    layers: tuple[int, ...] = setting(
        (), "layers to read: 0 is the embedding, -1 the last; empty: all"
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
    for name in ("masked", "hook_points"):
        if getattr(measure, name):
            raise UserError(f"measure.{name} is for models trained here; omit it")
    if unknown := [name for name in measure.families if name in TEXT_FAMILIES]:
        why = "counts characters in the training text, which is unknown for pretrained models"
        raise UserError(f"measure.families: {unknown[0]} {why}; omit it")
    if config.tangents.enabled:
        check_settings(config.tangents)
        if config.layers:
            raise UserError("tangents.enabled reads every layer; omit layers")
    for reads, name in (
        ("logit_lens" in measure.families, "measure.families: logit_lens"),
        (config.tangents.enabled, "tangents.enabled"),
    ):
        if reads and config.hidden_states != "blocks":
            raise UserError(f"{name} reads block outputs; omit hidden_states")
    # The number of heads is checked when the model is loaded.
    check_measure(measure)
    revision_steps(weights)


def revision_steps(weights: WeightsConfig) -> dict[int, str | None]:
    """Map training steps to revisions, ascending; a model without revisions has step 1."""
    revisions: dict[int, str | None] = {}
    stages = {stage[0]: name for name in weights.revisions if (stage := STAGE_NAME.search(name))}
    if len(stages) > 1:
        both = " and ".join([*stages.values()][:2])
        why = "belong to two stages, which may count steps anew"
        names = f"pretrained.revisions: {both}"
        raise SettingError(f"{names} {why}; name those of one stage", REVISIONS)
    for revision in weights.revisions:
        step = revision_step(revision)
        if step in revisions:
            both = f"{revisions[step]} and {revision}"
            what = f"pretrained.revisions: {both} both have step {step}"
            raise SettingError(f"{what}; omit either", REVISIONS)
        revisions[step] = revision
    return dict(sorted(revisions.items())) or {SINGLE_STEP: None}


def revision_step(revision: str) -> int:
    """Read the step in a revision's name: step1000, checkpoint-1000, stage1-step1000-tokens4B."""
    numbers = re.findall(r"step[_-]?(\d+[a-zA-Z]*)", revision) or re.findall(
        r"\d+[a-zA-Z]*", revision
    )
    if len(numbers) != 1 or not numbers[0].isdecimal():
        what = f"has the numbers {', '.join(numbers)}" if numbers else "has no number"
        advice = "name a training step, as in step1000"
        raise SettingError(f"pretrained.revisions: {revision} {what}; {advice}", REVISIONS)
    return int(numbers[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig(PretrainedConfig):
    """Several pretrained models, each measured as a `PretrainedConfig` in its own folder."""

    models: tuple[str, ...] = setting(
        (), "models to measure, named as in pretrained.name; LABEL=FOLDER sets a label"
    )
    paper: str = setting("shape_of_learning", "paper whose figures are drawn", choices=PAPERS)
    audio: str | None = setting(None, "folder of audio files for speech models")
    images: str | None = setting(None, "folder of images for vision models")
    listed: dict[str, dict[str, Any]] = field(
        default_factory=dict, metadata={"help": "modality, kind and revisions of each model"}
    )


def check_models(config: ModelsConfig) -> None:
    """Raise UserError if a model cannot be measured with these settings."""
    if config.pretrained.name:
        raise UserError("pretrained.name is for a single model; name models in --config.models=")
    if config.tangents.enabled:
        advice = "pass --config=experiments/pretrained.py:NAME"
        raise UserError(f"tangents.enabled is for a single model; {advice}")
    if config.layers:
        raise UserError("layers is for a single model: models are averaged over the same layers")
    if not config.models:
        raise UserError("no model is named; pass --config.models=EleutherAI/pythia-160m,FOLDER")
    for label in model_labels(config.models):
        check_pretrained(select_model(config, label))


def short_name(name: str) -> str:
    """Return the name of a model on a hub, or the last two parts of a path."""
    return "/".join(pathlib.PurePath(name).parts[-2:])


def model_labels(models: tuple[str, ...]) -> dict[str, str]:
    """Label each model by the last part of its name, or by the text before "="."""
    names: dict[str, str] = {}
    for entry in models:
        label, equals, name = entry.partition("=")
        if not equals:
            label, name = pathlib.PurePath(entry).name.removesuffix(".gguf"), entry
        if not re.fullmatch(r"[\w.][\w.+-]*", label) or not label.strip(".") or not name:
            advice = "pass a label, as in LABEL=FOLDER"
            raise UserError(f"models: {entry!r} cannot be the name of a folder; {advice}")
        if label == "figures":
            why = "has the label figures, the name of the folder of figures"
            raise UserError(f"models: {entry} {why}; pass LABEL=FOLDER")
        if label in names:
            what = f"{names[label]} and {name} have the same label {label}"
            raise UserError(f"models: {what}; pass a label, as in other={name}")
        names[label] = name
    return names


def select_model(config: ModelsConfig, label: str) -> PretrainedConfig:
    """Make the config of the model with this label."""
    name = model_labels(config.models)[label]
    shared = {known.name: getattr(config, known.name) for known in fields(PretrainedConfig)}
    listed = config.listed.get(name, {}).get("revisions")
    revisions = config.pretrained.revisions or listed or find_revisions(name)
    changes = {"pretrained.name": name, "pretrained.revisions": revisions}
    return replace(PretrainedConfig(**shared), changes)


def find_revisions(name: str) -> tuple[str, ...]:
    """Find checkpoints in a local folder: subfolders with a config.json and a step in the name."""
    folder = pathlib.Path(name).expanduser()
    if not folder.is_dir() or (folder / "config.json").exists():
        return ()
    inner = (path.parent.name for path in folder.glob("*/config.json"))
    named = (
        name
        for name in inner
        if re.search(r"step[_-]?\d", name) or len(re.findall(r"\d+", name)) == 1
    )
    return tuple(sorted(named, key=revision_step))


def collect_changes(argument: str, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Collect the changes of the words after FILE:, as in shape_of_learning.py:small,paper."""
    changes: dict[str, Any] = {}
    for word in filter(None, argument.split(",")):
        changes |= select_size(word, kinds)
    return changes
