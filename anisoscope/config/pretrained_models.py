"""Several pretrained models in one experiment: every setting, which models they are, and what each
is called.
"""

import pathlib
import re
from dataclasses import dataclass, field, fields
from typing import Any

from anisoscope.config import pretrained_config as of_one
from anisoscope.config.pretrained_config import PretrainedConfig, step_of
from anisoscope.utils.errors import UserError, did_you_mean
from anisoscope.utils.settings import replace, setting

MODALITIES = ("text", "characters", "speech", "vision", "vision, convolutional")
KINDS = ("encoder", "decoder")
TABLE = "models.json"  # of an experiment: what is measured, by what it is called
PAPERS = ("shape_of_learning", "inherent")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelsConfig(PretrainedConfig):
    """Each model is measured as a `PretrainedConfig` says, in a folder of its own."""

    models: tuple[str, ...] = setting((), "names as pretrained.name; NAME=FOLDER sets a label")
    paper: str = setting("shape_of_learning", "whose figures are drawn", choices=PAPERS)
    sounds: str | None = setting(None, "folder of audio files that models of speech read")
    pictures: str | None = setting(None, "folder of pictures that models of vision read")
    listed: dict[str, dict[str, Any]] = field(
        default_factory=dict, metadata={"help": "by model: modality, kind and revisions"}
    )


def check_models(config: ModelsConfig) -> None:
    """Raise UserError, one line, where no model could be measured like this."""
    if config.pretrained.name:
        raise UserError(
            "pretrained.name is of one model; name those of this experiment with --config.models="
        )
    if config.tangents.enabled:
        raise UserError(
            "tangents.enabled is for one model; pass --config=experiments/pretrained.py:NAME"
        )
    if not config.models:
        raise UserError("no model is named; pass --config.models=EleutherAI/pythia-160m,FOLDER")
    for label in called(config.models):
        of_one.check_pretrained(of_model(config, label))


def called(models: tuple[str, ...]) -> dict[str, str]:
    """What each model is called -> its name: the last part of it, or what stands before a "=" ; a
    folder bears it.
    """
    by_label: dict[str, str] = {}
    for given in models:
        label_given, equals, name = given.partition("=")
        label = label_given if equals else pathlib.PurePath(given).name.removesuffix(".gguf")
        if (
            not re.fullmatch(r"[\w.][\w.+-]*", label)
            or not label.strip(".")
            or (equals and not name)
        ):
            raise UserError(
                f"models: {given!r} cannot be the name of a folder; say what to call it, as in NAME=FOLDER"
            )
        if label == "figures":
            raise UserError(
                f"models: {given} would be called figures, as is the folder of figures; pass NAME=FOLDER"
            )
        if label in by_label:
            advice = f"say what to call one of them, as in other={name or given}"
            raise UserError(
                f"models: {by_label[label]} and {name or given} would both be called {label}; {advice}"
            )
        by_label[label] = name or given
    return by_label


def of_model(config: ModelsConfig, label: str) -> PretrainedConfig:
    name = called(config.models)[label]
    plain = PretrainedConfig(
        **{one.name: getattr(config, one.name) for one in fields(PretrainedConfig)}
    )
    known = config.listed.get(name, {})
    named = config.pretrained.revisions or known.get("revisions") or inside(name)
    return replace(plain, {"pretrained.name": name, "pretrained.revisions": named})


def inside(name: str) -> tuple[str, ...]:
    """Revisions in a local folder that is no model itself: folders of models whose names hold a
    step.
    """
    folder = pathlib.Path(name).expanduser()
    if not folder.is_dir() or (folder / "config.json").exists():
        return ()
    inner = (path.parent.name for path in folder.glob("*/config.json"))
    return tuple(sorted((one for one in inner if len(re.findall(r"\d+", one)) == 1), key=step_of))


def sized(argument: str, kinds: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """What the words after FILE: change, as in shape_of_learning.py:small,paper."""
    changes: dict[str, Any] = {}
    for word in filter(None, argument.split(",")):
        if word not in kinds:
            hint = did_you_mean(word, kinds)
            raise UserError(
                f"experiment size {word!r} is unknown; choose {' or '.join(kinds)}{hint}"
            )
        changes |= kinds[word]
    return changes
