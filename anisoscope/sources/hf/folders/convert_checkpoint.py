"""Convert our models to Hugging Face folders and back, without torch or transformers.

A folder holds safetensors, the settings and a byte-level tokenizer; folder_classes.py lists the
supported models.
"""

import os
import pathlib
from typing import Any

import numpy as np
import safetensors.numpy

from anisoscope.config.model_config import ModelConfig
from anisoscope.sources.hf.folders.folder_classes import (
    ACTIVATIONS,
    CLASSES,
    ROPE_SETTINGS,
    SUPPORTED,
    HfClass,
)
from anisoscope.utils.errors import UserError
from anisoscope.utils.files import read_json, temporary_path, write_json

WEIGHTS, SETTINGS = "model.safetensors", "config.json"
TOKENIZER = ("tokenizer.json", "tokenizer_config.json")
FILES = (WEIGHTS, *TOKENIZER, SETTINGS)
PARTS = {"scale": "weight", "kernel": "weight", "bias": "bias"}
MASK = "[MASK]"


def find_class(model: ModelConfig) -> HfClass:
    """Return the class of transformers with this model's block.

    Raises:
        UserError: no class has this block.
    """
    if other := [name for name, value in SUPPORTED.items() if getattr(model, name) != value]:
        listed = ", ".join(f"model.{name}={getattr(model, name)}" for name in other)
        raise UserError(
            f"no class of transformers has the block of this model ({listed}); "
            "leave the stage export out"
        )
    return next(hf for hf in CLASSES.values() if hf.positions == model.position_encoding)


def write_folder(
    folder: pathlib.Path, model: ModelConfig, params: dict, vocabulary: bytes, about: dict[str, Any]
) -> None:
    """Write the model in its class, with `about` among its settings: completely or not at all.

    Biases that our model lacks are written as 0.

    Raises:
        UserError: the folder is not empty.
    """
    hf = find_class(model)
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; move it elsewhere")
    settings = {theirs: getattr(model, ours) for ours, (theirs, _) in hf.fields.items()}
    settings[hf.inner[0]] = model.expansion * model.width
    settings[hf.activation[0]] = ACTIVATIONS[model.activation]
    settings |= {name: value for name, (value, _) in hf.fixed.items()}
    settings |= dict.fromkeys(hf.dropouts, 0.0)
    settings |= dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"))
    settings |= {
        "model_type": next(kind for kind, other in CLASSES.items() if other is hf),
        "architectures": [hf.name],
        "vocab_size": len(vocabulary) + 1,
        "dtype": "float32",
        "anisoscope": about,
    }
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(folder)
    temporary.mkdir()
    weights = _export_weights(hf, model, params)
    safetensors.numpy.save_file(weights, temporary / WEIGHTS, {"format": "pt"})
    for name, content in zip(TOKENIZER, _byte_tokenizer(vocabulary, model.context), strict=True):
        write_json(temporary / name, content)
    write_json(temporary / SETTINGS, settings)
    os.replace(temporary, folder)


def _export_weights(hf: HfClass, model: ModelConfig, params: dict) -> dict[str, np.ndarray]:
    weights, layers = {}, {}
    for ours, theirs in hf.whole.items():
        if isinstance(params[ours], dict):
            layers[theirs] = ours, params[ours]
        else:
            weights[hf.prefix + theirs] = np.asarray(params[ours], np.float32)
    for ours, theirs in hf.block.items():
        for i in range(model.layers):
            leaves = {leaf: value[i] for leaf, value in params["blocks"][ours].items()}
            layers[f"{hf.blocks}.{i}.{theirs}"] = ours, leaves
    for name, (ours, leaves) in layers.items():
        parts = {PARTS[leaf]: np.asarray(value, np.float32) for leaf, value in leaves.items()}
        parts.setdefault("bias", np.zeros(parts["weight"].shape[-1], np.float32))
        for part, value in parts.items():
            weights[f"{hf.prefix}{name}.{part}"] = hf.to_theirs(ours, value, model.heads)
    if not model.tied:
        weights[hf.head] = np.asarray(params["head"], np.float32).T
    return {name: np.ascontiguousarray(value) for name, value in weights.items()}


def read_folder(folder: str | pathlib.Path) -> tuple[ModelConfig, dict, dict[str, Any]]:
    """Read a folder of one of CLASSES as model, parameters and settings.

    Raises:
        UserError: the folder holds no such model.
    """
    from safetensors import flax  # also reads bfloat16

    folder = pathlib.Path(folder)
    paths = sorted(folder.glob("*.safetensors"))
    if not paths or not (folder / SETTINGS).is_file():
        raise UserError(f"{folder} holds no model; name a folder with {SETTINGS} and *.safetensors")
    settings = read_json(folder / SETTINGS, "name another folder")
    if (hf := CLASSES.get(settings.get("model_type"))) is None:
        kind = settings.get("model_type")
        raise UserError(f"{folder}: model_type is {kind!r}; only {', '.join(CLASSES)} can be read")
    model = _read_config(hf, settings, folder)
    weights = {
        name.removeprefix(hf.prefix): np.asarray(x, np.float32)
        for path in paths
        for name, x in flax.load_file(path).items()
    }
    try:
        return model, _import_params(hf, model, weights), settings
    except KeyError as error:
        raise UserError(
            f"{folder} lacks the weight {error}; export or download it again"
        ) from error


def _read_config(hf: HfClass, settings: dict[str, Any], folder: pathlib.Path) -> ModelConfig:
    """Translate the settings; UserError where the block differs from ours."""
    fields = {ours: settings.get(theirs, default) for ours, (theirs, default) in hf.fields.items()}
    rope = settings.get("rope_parameters") or {}
    values = {name: default for name, (_, default) in hf.fixed.items()} | settings
    values |= {ROPE_SETTINGS[name]: rope[name] for name in ROPE_SETTINGS.keys() & rope.keys()}
    values["rope_type"] = rope.get("rope_type", "default")
    values[hf.activation[0]] = values.get(*hf.activation)
    expected = {name: value for name, (value, _) in hf.fixed.items()} | {"rope_type": "default"}
    other = [f"{name}={values[name]}" for name, value in expected.items() if values[name] != value]
    activations = {theirs: ours for ours, theirs in ACTIVATIONS.items()}
    expansion, rest = divmod(settings.get(*hf.inner) or 4 * fields["width"], fields["width"])
    if values[hf.activation[0]] not in activations:
        other.append(f"{hf.activation[0]}={values[hf.activation[0]]}")
    if rest:
        other.append(f"{hf.inner[0]}={settings.get(hf.inner[0])}")
    if other:
        raise UserError(
            f"{folder}: its block differs from ours in {', '.join(other)}; name another folder"
        )
    return ModelConfig(
        **fields,
        activation=activations[values[hf.activation[0]]],
        expansion=expansion,
        position_encoding=hf.positions,
    )


def _import_params(
    hf: HfClass, model: ModelConfig, weights: dict[str, np.ndarray]
) -> dict[str, Any]:
    def leaves(name: str, layer: str) -> dict[str, np.ndarray]:
        kind = "scale" if layer.startswith("norm") else "kernel"
        parts = {kind: weights[f"{name}.weight"], "bias": weights[f"{name}.bias"]}
        return {leaf: hf.to_ours(layer, value, model.heads) for leaf, value in parts.items()}

    params: dict[str, Any] = {
        ours: leaves(theirs, ours) if ours.startswith("norm") else weights[theirs]
        for ours, theirs in hf.whole.items()
    }
    params["blocks"] = {}
    for layer, theirs in hf.block.items():
        rows = [leaves(f"{hf.blocks}.{i}.{theirs}", layer) for i in range(model.layers)]
        params["blocks"][layer] = {leaf: np.stack([row[leaf] for row in rows]) for leaf in rows[0]}
    if not model.tied:
        params["head"] = weights[hf.head].T
    return params


def _byte_tokenizer(vocabulary: bytes, context: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the contents of the files in `TOKENIZER`.

    Token i is the i-th byte of the vocabulary. The last token is [MASK], which also encodes bytes
    outside the vocabulary.
    """
    # byte-level tokenizers write a visible byte as itself, any other as a letter from 256 on
    visible = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("ÿ") + 1)]
    visible.remove(0xAD)  # the soft hyphen
    hidden = [byte for byte in range(256) if byte not in visible]
    letters = [chr(byte if byte in visible else 256 + hidden.index(byte)) for byte in range(256)]
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    split = {"type": "ByteLevel"}
    split |= dict.fromkeys(("add_prefix_space", "trim_offsets", "use_regex"), False)
    pairs = {  # byte-pair encoding without merges
        "type": "BPE",
        "dropout": None,
        "unk_token": MASK,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
        "vocab": {letters[byte]: i for i, byte in enumerate(vocabulary)} | {MASK: len(vocabulary)},
        "merges": [],
    }
    whole = {"version": "1.0", "model": pairs, "pre_tokenizer": split, "decoder": split}
    whole |= dict.fromkeys(("truncation", "padding", "normalizer", "post_processor"))
    mask = {"id": len(vocabulary), "content": MASK, "special": True}
    whole["added_tokens"] = [mask | flags]
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        "mask_token": MASK,
        "unk_token": MASK,
    }
    return whole, about
