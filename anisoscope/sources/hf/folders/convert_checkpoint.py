"""A model of ours as a Hugging Face folder, and such a folder as a model of ours; without torch or
transformers.

A folder holds safetensors, the settings and a byte-level tokenizer. classes.py says which models
have one.
"""

import os
import pathlib
from typing import Any

import numpy as np
import safetensors.numpy

from anisoscope.config.model_config import ModelConfig
from anisoscope.sources.hf.folders import byte_tokenizer
from anisoscope.sources.hf.folders.folder_classes import ACTIVATIONS, CLASSES, NEWER, PLAIN, Class
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import begun, read_json, write_json

WEIGHTS, SETTINGS = "model.safetensors", "config.json"
FILES = (WEIGHTS, *byte_tokenizer.FILES, SETTINGS)
NAMES = {"scale": "weight", "kernel": "weight", "bias": "bias"}


def class_of(model: ModelConfig) -> Class:
    """UserError, one line, where no class has this model's block."""
    if other := [name for name, value in PLAIN.items() if getattr(model, name) != value]:
        said = ", ".join(f"model.{name}={getattr(model, name)}" for name in other)
        raise UserError(
            f"no class of transformers has the block of this model ({said}): it cannot be exported"
        )
    return next(one for one in CLASSES.values() if one.positions == model.positions)


def write(
    folder: pathlib.Path, model: ModelConfig, params: dict, vocabulary: bytes, about: dict[str, Any]
) -> None:
    """The model in its class, with `about` among its settings: whole or not at all. Biases that
    ours lacks are 0 there.

    UserError, one line, where the folder holds anything.
    """
    of = class_of(model)
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; move it elsewhere")
    settings = {theirs: getattr(model, ours) for ours, (theirs, _) in of.fields.items()}
    settings |= {
        of.inner[0]: model.expansion * model.width,
        of.activation[0]: ACTIVATIONS[model.activation],
    }
    settings |= {name: value for name, (value, _) in of.plain.items()} | dict.fromkeys(
        of.dropouts, 0.0
    )
    settings |= {
        "model_type": next(kind for kind, one in CLASSES.items() if one is of),
        "architectures": [of.name],
        "vocab_size": len(vocabulary) + 1,
        "dtype": "float32",
        "anisoscope": about,
    } | dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = begun(folder)
    temporary.mkdir()
    safetensors.numpy.save_file(_weights(of, model, params), temporary / WEIGHTS, {"format": "pt"})
    for name, content in byte_tokenizer.files(vocabulary, model.context).items():
        write_json(temporary / name, content)
    write_json(temporary / SETTINGS, settings)
    os.replace(temporary, folder)


def _weights(of: Class, model: ModelConfig, params: dict) -> dict[str, np.ndarray]:
    weights = {}

    def put(name: str, layer: str, leaves: dict) -> None:
        parts = {NAMES[leaf]: np.asarray(value, np.float32) for leaf, value in leaves.items()}
        parts.setdefault("bias", np.zeros(parts["weight"].shape[-1], np.float32))
        weights.update(
            {
                f"{of.prefix}{name}.{part}": of.out(layer, value, model.heads)
                for part, value in parts.items()
            }
        )

    for ours, theirs in of.whole.items():
        if isinstance(params[ours], dict):
            put(theirs, ours, params[ours])
        else:
            weights[of.prefix + theirs] = np.asarray(params[ours], np.float32)
    for layer, theirs in of.block.items():
        for i in range(model.layers):
            leaves = {leaf: value[i] for leaf, value in params["blocks"][layer].items()}
            put(f"{of.of_block}.{i}.{theirs}", layer, leaves)
    if not model.tied:
        weights[of.head] = np.asarray(params["head"], np.float32).T
    return {name: np.ascontiguousarray(value) for name, value in weights.items()}


def read_folder(folder: str | pathlib.Path) -> tuple[ModelConfig, dict, dict[str, Any]]:
    """Model, parameters and settings of a folder of one of CLASSES; UserError, one line, where it
    is none.
    """
    folder = pathlib.Path(folder)
    paths = sorted(folder.glob("*.safetensors"))
    if not paths or not (folder / SETTINGS).is_file():
        raise UserError(f"{folder} holds no model: {SETTINGS} and *.safetensors are needed")
    settings = read_json(folder / SETTINGS, "name another folder")
    if (of := CLASSES.get(settings.get("model_type"))) is None:
        raise UserError(
            f"{folder}: model_type {settings.get('model_type')!r} is none of {', '.join(CLASSES)}"
        )
    model = _model(of, settings, folder)
    from safetensors import flax  # which reads bfloat16 too

    weights = {
        name: np.asarray(x, np.float32)
        for path in paths
        for name, x in flax.load_file(path).items()
    }
    try:
        params = _params(
            of, model, {name.removeprefix(of.prefix): x for name, x in weights.items()}
        )
    except KeyError as error:
        raise UserError(f"{folder} lacks the weight {error}") from error
    return model, params, settings


def _model(of: Class, settings: dict[str, Any], folder: pathlib.Path) -> ModelConfig:
    fields = {ours: settings.get(theirs, default) for ours, (theirs, default) in of.fields.items()}
    rope = settings.get("rope_parameters") or {}
    there = {name: default for name, (_, default) in of.plain.items()} | settings
    there |= {NEWER[name]: value for name, value in rope.items() if name in NEWER}
    other = [
        f"{name}={there[name]}" for name, (value, _) in of.plain.items() if there[name] != value
    ]
    turned = rope.get("rope_type", "default")
    other += [f"rope_type={turned}"] * (turned != "default")
    activation = there.get(*of.activation)
    other += [f"{of.activation[0]}={activation}"] * (activation not in ACTIVATIONS.values())
    expansion, rest = divmod(settings.get(*of.inner) or 4 * fields["width"], fields["width"])
    other += [f"{of.inner[0]}={settings.get(of.inner[0])}"] * (rest != 0)
    if other:
        raise UserError(f"{folder}: our block has no {', no '.join(other)}")
    ours = next(one for one, theirs in ACTIVATIONS.items() if theirs == activation)
    return ModelConfig(**fields, activation=ours, expansion=expansion, positions=of.positions)


def _params(of: Class, model: ModelConfig, weights: dict[str, np.ndarray]) -> dict[str, Any]:
    def leaves(name: str, layer: str) -> dict[str, np.ndarray]:
        kind = "scale" if layer.startswith("norm") else "kernel"
        parts = {kind: weights[f"{name}.weight"], "bias": weights[f"{name}.bias"]}
        return {leaf: of.back(layer, value, model.heads) for leaf, value in parts.items()}

    params: dict[str, Any] = {
        ours: leaves(theirs, ours) if ours.startswith("norm") else weights[theirs]
        for ours, theirs in of.whole.items()
    }
    blocks = {
        layer: [leaves(f"{of.of_block}.{i}.{theirs}", layer) for i in range(model.layers)]
        for layer, theirs in of.block.items()
    }
    params["blocks"] = {
        layer: {leaf: np.stack([one[leaf] for one in each]) for leaf in each[0]}
        for layer, each in blocks.items()
    }
    if not model.tied:
        params["head"] = weights[of.head].T
    return params
