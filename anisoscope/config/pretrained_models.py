"""Several pretrained models in one experiment: which they are, and what each is called."""

import pathlib
import re
from dataclasses import dataclass, field, fields
from typing import Any

from anisoscope.config.pretrained_config import PretrainedConfig, check_pretrained, revision_step
from anisoscope.utils.errors import UserError, did_you_mean
from anisoscope.utils.settings import replace, setting

MODALITIES = ("text", "characters", "speech", "vision", "vision, convolutional")
KINDS = ("encoder", "decoder")
TABLE = "models.json"  # of an experiment: what is measured, by its label
PAPERS = ("shape_of_learning", "inherent")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig(PretrainedConfig):
    """Each model is measured as a `PretrainedConfig` says, in a folder of its own."""

    models: tuple[str, ...] = setting((), "names as pretrained.name; NAME=FOLDER sets a label")
    paper: str = setting("shape_of_learning", "whose figures are drawn", choices=PAPERS)
    audio: str | None = setting(None, "folder of audio files that models of speech read")
    images: str | None = setting(None, "folder of pictures that models of vision read")
    listed: dict[str, dict[str, Any]] = field(
        default_factory=dict, metadata={"help": "by model: modality, kind and revisions"}
    )


def check_models(config: ModelsConfig) -> None:
    """Raise UserError, one line, where no model could be measured like this."""
    if config.pretrained.name:
        raise UserError("pretrained.name is of one model; name several with --config.models=")
    if config.tangents.enabled:
        advice = "pass --config=experiments/pretrained.py:NAME"
        raise UserError(f"tangents.enabled is for one model; {advice}")
    if not config.models:
        raise UserError("no model is named; pass --config.models=EleutherAI/pythia-160m,FOLDER")
    for label in model_labels(config.models):
        check_pretrained(model_config(config, label))


def model_labels(models: tuple[str, ...]) -> dict[str, str]:
    """Label each model by the last part of its name, or by what stands before a "="."""
    names: dict[str, str] = {}
    for entry in models:
        label, equals, name = entry.partition("=")
        if not equals:
            label, name = pathlib.PurePath(entry).name.removesuffix(".gguf"), entry
        if not re.fullmatch(r"[\w.][\w.+-]*", label) or not label.strip(".") or not name:
            advice = "say what to call it, as in NAME=FOLDER"
            raise UserError(f"models: {entry!r} cannot be the name of a folder; {advice}")
        if label == "figures":
            why = "would be called figures, as is the folder of figures"
            raise UserError(f"models: {entry} {why}; pass NAME=FOLDER")
        if label in names:
            what = f"{names[label]} and {name} would both be called {label}"
            raise UserError(f"models: {what}; say what to call one of them, as in other={name}")
        names[label] = name
    return names


def model_config(config: ModelsConfig, label: str) -> PretrainedConfig:
    """Make the config of one of the models."""
    name = model_labels(config.models)[label]
    shared = {known.name: getattr(config, known.name) for known in fields(PretrainedConfig)}
    listed = config.listed.get(name, {}).get("revisions")
    revisions = config.pretrained.revisions or listed or find_revisions(name)
    changes = {"pretrained.name": name, "pretrained.revisions": revisions}
    return replace(PretrainedConfig(**shared), changes)


def find_revisions(name: str) -> tuple[str, ...]:
    """Find the models inside a local folder that is none itself, whose names hold a step."""
    folder = pathlib.Path(name).expanduser()
    if not folder.is_dir() or (folder / "config.json").exists():
        return ()
    inner = (path.parent.name for path in folder.glob("*/config.json"))
    named = (name for name in inner if len(re.findall(r"\d+", name)) == 1)
    return tuple(sorted(named, key=revision_step))


def sized(argument: str, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Collect what the words after FILE: change, as in shape_of_learning.py:small,paper."""
    changes: dict[str, Any] = {}
    for word in filter(None, argument.split(",")):
        if word not in kinds:
            hint = did_you_mean(word, kinds)
            known = " or ".join(kinds)
            raise UserError(f"experiment size {word!r} is unknown; choose {known}{hint}")
        changes |= kinds[word]
    return changes
