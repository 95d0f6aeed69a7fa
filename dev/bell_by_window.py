"""Measure how the height of a decoder's bell depends on the window length and on norms.

    .venv-pretrained/bin/python -m dev.bell_by_window MODEL TEXT

All vectors of the windows are measured, which hold the same text however it is cut. Writes
docs/results/real_models/bell_by_window.csv.
"""

import sys

import numpy as np
import pandas as pd

from anisoscope import measure
from anisoscope.config.pretrained_config import WeightsConfig
from anisoscope.config.run_config import DataConfig
from anisoscope.data import corpus
from anisoscope.results import joined_files
from anisoscope.sources.hf import guards, load_model
from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.pretrained_weights import find_weights
from anisoscope.sources.hf.token_windows import validation_text
from dev.real_models import RESULTS

TABLE = RESULTS / "real_models" / "bell_by_window.csv"
LENGTHS, LAYERS = (32, 64, 128, 256, 512, 1024), (12, 20, 28)  # tokens of a window; of SmolLM2
TOKENS = 4096  # of the validation split
ENDS = ("mean", "low", "high")
COLUMNS = {  # heading -> quantity, and which vectors are left out
    "anisotropy": ("anisotropy", None),
    "the first token against the rest": ("first_token_variance_share", None),
    "expected from norms": ("first_token_variance_share_by_norm", None),
    "without the longest of each window": ("anisotropy_without_longest", "longest of each window"),
    "without the longest 1 %": ("anisotropy_without_longest", "longest 1 %"),
    "kurtosis": ("first_pc_kurtosis", None),
    "entropy of a window": ("prompt_entropy", None),
}


def main(model: str, path: str) -> None:
    place = find_weights(model, None)
    loaded = load_model.load_model(place, WeightsConfig(name=model))
    text = validation_text(corpus.load(DataConfig(path=path), max(LENGTHS)))
    tokenizer = load_model.read_tokenizer(place)
    ids = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    tokens_P, rows = np.asarray(ids)[:TOKENS], []
    for length in LENGTHS:
        guards.check_window(loaded, length, 0)
        rows += measured(loaded, tokens_P[: len(tokens_P) // length * length].reshape(-1, length))
    joined_files.write_csv(pd.DataFrame(rows), TABLE)
    print(pd.DataFrame(rows).round(3).to_string(index=False))


def measured(loaded: load_model.PretrainedModel, tokens_WT: np.ndarray) -> list[dict[str, float]]:
    """Return a row for each layer."""
    windows, length = tokens_WT.shape
    read = read_activations(loaded, tokens_WT[None], max(1, 2048 // length), heads=False)
    window_P, position_P = np.divmod(np.arange(windows * length), length)
    table = measure(
        [read.resid_ZLBTD[0][layer].reshape(windows * length, -1) for layer in LAYERS],
        window_P,
        token_positions=position_P,
        families=("spectrum", "leading", "windows"),
        nulls=(),
        layer_names=[str(layer) for layer in LAYERS],
    )
    rows = []
    for layer in LAYERS:
        row = {"window": length, "layer": layer}
        for words, (name, without) in COLUMNS.items():
            values = table[name].sel(layer=str(layer))
            values = values if without is None else values.sel(without=without)
            row |= {f"{words}, {end}": float(values.sel(statistic=end)) for end in ENDS}
        rows.append(row)
    return rows


if __name__ == "__main__":
    main(*sys.argv[1:])
