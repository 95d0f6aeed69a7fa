"""Settings of experiments with several pretrained models, and their labels."""

import pathlib
import re
from dataclasses import dataclass, field, fields
from typing import Any

from anisoscope.config.pretrained_config import PretrainedConfig, check_pretrained, revision_step
from anisoscope.config.variants import chosen
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace, setting

MODALITIES = ("text", "characters", "speech", "vision")
KINDS = ("encoder", "decoder")
TABLE = "models.json"  # the experiment's models by label
PAPERS = ("shape_of_learning", "inherent")


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
    if not config.models:
        raise UserError("no model is named; pass --config.models=EleutherAI/pythia-160m,FOLDER")
    for label in model_labels(config.models):
        check_pretrained(model_config(config, label))


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


def model_config(config: ModelsConfig, label: str) -> PretrainedConfig:
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
    named = (name for name in inner if len(re.findall(r"\d+", name)) == 1)
    return tuple(sorted(named, key=revision_step))


def sized(argument: str, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Collect the changes of the words after FILE:, as in shape_of_learning.py:small,paper."""
    changes: dict[str, Any] = {}
    for word in filter(None, argument.split(",")):
        changes |= chosen(word, kinds)
    return changes
