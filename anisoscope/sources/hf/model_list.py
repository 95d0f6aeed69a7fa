"""A list of pretrained models, one after another, each in a folder of its own; what cannot be had
is left out.
"""

import contextlib
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

from anisoscope.config.pretrained_config import PretrainedConfig, revision_steps
from anisoscope.config.pretrained_models import TABLE, ModelsConfig, model_config, model_labels
from anisoscope.data import corpus as texts
from anisoscope.sources.hf import load_model, revision_sweep
from anisoscope.sources.hf.adapters import find_adapter, model_kind
from anisoscope.sources.hf.reading import guards
from anisoscope.sources.hf.reading_plan import place_of
from anisoscope.utils import folder, memory
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json, write_json
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop

OF_TEXT = ("text", "characters")
CHARACTERS = ("canine", "character_bert", "manta")  # model types; ByT5 is known by its tokenizer
CONVOLUTIONAL = ("convnext", "convnextv2", "cvt", "efficientnet", "resnet", "van")
# by what a model is given
READS = {"pixel_values": "vision", "input_values": "speech", "input_features": "speech"}
# At any time models may be added, and each keeps a record of its own.
FREE = revision_sweep.FREE | {"models": (), "listed": {}, "sounds": None, "pictures": None}


def measure_models(
    config: ModelsConfig,
    root: pathlib.Path,
    stop: Stop,
    finish: Callable[[str, pathlib.Path], None],
) -> None:
    """Write ROOT/<what it is called>/ for each model as of one alone, and models.json of those that
    are measured.

    `finish` is called with the name and the folder of each.

    UserError where there is none.
    """
    models: dict[str, dict[str, str]] = {}
    left: dict[str, str] = {}
    for label, name in model_labels(
        config.models
    ).items():  # all of them before the long part begins
        with _leaving_out(label, left):
            models[label] = _about(config, label, name)
    if models:
        of_text = any(about["modality"] in OF_TEXT for about in models.values())
        # once for all models of text
        corpus = texts.load(config.data, config.window) if of_text else None
        folder.claim(root, replace(config, FREE), new=True)
        with folder.locked(root):
            path = root / TABLE
            known = (
                read_json(path, "move it away to name the models again") if path.exists() else {}
            )
            known = {label: about for label, about in known.items() if label not in left}
            for label, about in models.items():
                stop.check(f"stopped before {label}")
                known.pop(label, None)
                with _leaving_out(label, left):
                    own = own_config(config, label, about["modality"])
                    text = corpus if about["modality"] in OF_TEXT else None
                    revision_sweep.measure_revisions(
                        revision_sweep.open_revisions(own, root / label, label, text), stop
                    )
                    finish(label, root / label)
                    known[label] = about
                write_json(path, known)
    if len(left) == len(config.models):
        first, why = next(iter(left.items()))
        raise UserError(f"no model can be measured, of {len(left)}; {first}: {why}")


@contextlib.contextmanager
def _leaving_out(label: str, left: dict[str, str]) -> Iterator[None]:
    """Whatever is wrong with one model, in one line; the others are measured."""
    try:
        yield
    except UserError as error:
        left[label] = " ".join(str(error).split())
        print(f"left out: {label}: {left[label]}", flush=True)


def own_config(config: ModelsConfig, label: str, modality: str) -> PretrainedConfig:
    """How the model that is called so is measured; UserError where nothing is named that it could
    read.
    """
    own = model_config(config, label)
    if modality in OF_TEXT:
        return own
    setting = "sounds" if modality == "speech" else "pictures"
    if (path := getattr(config, setting)) is None:
        raise UserError(
            f"it reads {setting}, and no folder of them is named: --config.{setting}=FOLDER"
        )
    # of what only texts have, nothing is asked; nor of maps how transformers reports them, one for
    # a stage
    changes = {"data.path": path, "data.clean": False, "characters": None, "special_tokens": False}
    if find_adapter(
        model_kind(load_model.read_settings(place_of(own, max(revision_steps(own.pretrained)))))
    ).maps:
        changes["hidden_states"] = "blocks"
    return replace(own, changes)


def _about(config: ModelsConfig, label: str, name: str) -> dict[str, str]:
    """Name, modality and kind: as listed, or else as its settings say. UserError where it cannot be
    had, or not fit.
    """
    own = model_config(config, label)
    weights = own.pretrained
    place = place_of(own, max(revision_steps(weights)))
    listed = {key: config.listed.get(name, {}).get(key) for key in ("modality", "kind")}
    if "gguf_file" in place.given:  # whose settings take long to read
        traits = {"modality": "text", "kind": "decoder"}
    else:
        settings = load_model.read_settings(place)
        shape = _shape(settings)
        if shape is not None and weights.device_map is None:
            _refuse_too_large(name, shape, weights.dtype)
        traits = {"modality": _modality(settings, shape), "kind": _kind(settings)}
    return {"name": name} | traits | {key: value for key, value in listed.items() if value}


def _shape(settings: Any) -> Any:
    """The base model without its weights; None where transformers has no class for it."""
    try:
        with torch.device("meta"):
            return transformers.AutoModel.from_config(settings)
    except Exception:  # of any class, with settings of any kind
        return None


def _refuse_too_large(name: str, shape: Any, dtype: str) -> None:
    size, there = load_model.weight_bytes(shape.to(getattr(torch, dtype))), memory.of_machine()
    if there is not None and size > there:
        advice = "--config.pretrained.dtype=bfloat16 halves it, --config.pretrained.device_map=auto uses the disk too"
        raise UserError(
            f"{name} has {memory.format_bytes(size)} of weights, and {memory.format_bytes(there)} of memory are "
            f"available; {advice}"
        )


def _modality(settings: Any, shape: Any) -> str:
    if settings.model_type in CHARACTERS or "ByT5" in (
        getattr(settings, "tokenizer_class", None) or ""
    ):
        return "characters"
    if settings.model_type in CONVOLUTIONAL:
        return "vision, convolutional"
    return READS.get(getattr(shape, "main_input_name", ""), "text")


def _kind(settings: Any) -> str:
    return (
        "decoder"
        if guards.NEXT_TOKEN in map(guards.head_task, settings.architectures or ())
        else "encoder"
    )
