"""Measure a list of pretrained models, each into its own folder; skip models that fail."""

import contextlib
import functools
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import transformers

from anisoscope.config.pretrained_config import (
    TABLE,
    ModelsConfig,
    PretrainedConfig,
    model_labels,
    select_model,
)
from anisoscope.data import corpus as texts
from anisoscope.sources.hf import guards, load_model, revision_sweep
from anisoscope.utils import folder, memory
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json, write_json
from anisoscope.utils.processes import Stop
from anisoscope.utils.settings import replace

TEXT_MODALITIES = ("text", "characters")
CHARACTER_MODELS = (
    "canine",
    "character_bert",
    "manta",
)  # model types; ByT5 is known by its tokenizer
# modality by the model's main input
MODALITY_OF_INPUT = {"pixel_values": "vision", "input_values": "speech", "input_features": "speech"}
# Settings that may change at any time: models may be added, and each keeps its own record.
FREE_OF_MODELS = revision_sweep.FREE | {"models": (), "listed": {}, "audio": None, "images": None}


def measure_models(
    config: ModelsConfig,
    root: pathlib.Path,
    stop: Stop,
    finish: Callable[[str, pathlib.Path], None],
) -> None:
    """Measure each model into ROOT/LABEL, and write models.json of the measured models."""
    models: dict[str, dict[str, str]] = {}
    left: dict[str, str] = {}
    for label, name in model_labels(config.models).items():  # all before the long part begins
        with _leave_out(label, left):
            models[label] = describe_listed(config, label, name)
    if models:
        reads_text = any(about["modality"] in TEXT_MODALITIES for about in models.values())
        # loaded once for all models of text
        corpus = texts.load_corpus(config.data, config.window) if reads_text else None
        folder.claim_folder(root, replace(config, FREE_OF_MODELS), new=True)
        with folder.locked_folder(root):
            path, advice = root / TABLE, "move it away to name the models again"
            known = read_json(path, advice) if path.exists() else {}
            known = {label: x for label, x in known.items() if label not in {*left, *models}}
            for label, about in models.items():
                stop.check(f"stopped before {label}")
                with _leave_out(label, left):
                    model = modality_config(config, label, about["modality"])
                    source = revision_sweep.open_revisions(model, root / label, label, corpus)
                    correlate = functools.partial(finish, label, root / label)
                    revision_sweep.measure_revisions(source, stop, correlate)
                    known[label] = about
                write_json(path, known)
    if len(left) == len(config.models):
        label, reason = next(iter(left.items()))
        raise UserError(f"none of {len(left)} models can be measured; {label}: {reason}")


@contextlib.contextmanager
def _leave_out(label: str, left: dict[str, str]) -> Iterator[None]:
    """Print in one line why a model is skipped, and continue with the others."""
    try:
        yield
    except UserError as error:
        left[label] = " ".join(str(error).split())
        print(f"left out: {label}: {left[label]}", flush=True)


def modality_config(models: ModelsConfig, label: str, modality: str) -> PretrainedConfig:
    """Return the settings of a model; UserError where no folder is named that it could read."""
    config = select_model(models, label)
    if modality in TEXT_MODALITIES:
        return config
    setting = "audio" if modality == "speech" else "images"
    if (path := getattr(models, setting)) is None:
        raise UserError(f"it reads {setting}; name a folder of them with --config.{setting}=FOLDER")
    changes = {"data.path": path, "data.clean": False, "characters": None, "special_tokens": False}
    return replace(config, changes)


def describe_listed(config: ModelsConfig, label: str, name: str) -> dict[str, str]:
    """Return name, modality and kind: as listed, or else from its settings.

    UserError where the model cannot be loaded, or is larger than the memory.
    """
    model, listed = select_model(config, label), config.listed.get(name, {})
    location, traits = revision_sweep.last_location(model), {"modality": "text", "kind": "decoder"}
    if not location.is_gguf:  # reading its settings takes long
        settings = load_model.read_settings(location)
        tasks = map(guards.head_task, settings.architectures or ())
        traits = {"kind": "decoder" if guards.NEXT_TOKEN in tasks else "encoder"}
        traits["modality"] = MODALITY_OF_INPUT.get(load_model.main_input(settings), "text")
        tokenizer = getattr(settings, "tokenizer_class", None) or ""
        if settings.model_type in CHARACTER_MODELS or "ByT5" in tokenizer:
            traits["modality"] = "characters"
        if model.pretrained.device_map is None:
            _check_memory(name, settings, model.pretrained.dtype)
    return {"name": name} | {key: listed.get(key) or traits[key] for key in ("modality", "kind")}


def _check_memory(name: str, settings: Any, dtype: str) -> None:
    """Raise UserError where the weights of the base model are larger than the memory."""
    try:
        with torch.device("meta"):
            skeleton = transformers.AutoModel.from_config(settings)
    except Exception:  # models of any class, with any settings
        return
    number_size = getattr(torch, dtype).itemsize
    size = sum(parameter.numel() * number_size for parameter in skeleton.parameters())
    available = memory.machine_memory()
    if available is not None and size > available:
        sizes = (
            f"{memory.format_bytes(size)} of weights, {memory.format_bytes(available)} of memory"
        )
        advice = "set pretrained.dtype=bfloat16, or pretrained.device_map=auto"
        raise UserError(f"{name} has {sizes} are available; {advice}")
