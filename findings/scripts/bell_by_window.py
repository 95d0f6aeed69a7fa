"""Measure how the height of a decoder's bell depends on the window length and on norms.

    .venv-pretrained/bin/python -m findings.scripts.bell_by_window MODEL TEXT

All vectors of the windows are measured, which hold the same text however it is cut. Writes
findings/tables/real_models/bell_by_window.csv.
"""

import sys

import numpy as np
import pandas as pd

from anisoscope import measure
from anisoscope.results import joined_files
from anisoscope.sources.hf.extract import read_activations
from findings.scripts.packaged_model import open_packaged, read_text
from findings.scripts.shared_tables import RESULTS

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


def main(name: str, path: str) -> None:
    model, rows = open_packaged(name), []
    ids = model.tokenizer(read_text(path), add_special_tokens=False, verbose=False)["input_ids"]
    for length in LENGTHS:
        tokens_WT = np.asarray(ids)[: TOKENS // length * length].reshape(-1, length)
        read = read_activations(model.loaded, tokens_WT[None], max(1, 2048 // length))
        window_P, position_P = np.divmod(np.arange(tokens_WT.size), length)
        table = measure(
            [read.resid_ZLBTD[0][layer].reshape(tokens_WT.size, -1) for layer in LAYERS],
            window_P,
            token_positions=position_P,
            families=("spectrum", "leading", "windows"),
            nulls=(),
            layer_names=[str(layer) for layer in LAYERS],
        )
        for layer in LAYERS:
            row = {"window": length, "layer": layer}
            for words, (quantity, without) in COLUMNS.items():
                values = table[quantity].sel(layer=str(layer))
                values = values if without is None else values.sel(without=without)
                row |= {f"{words}, {end}": float(values.sel(statistic=end)) for end in ENDS}
            rows.append(row)
    joined_files.write_csv(pd.DataFrame(rows), RESULTS / "real_models" / "bell_by_window.csv")


if __name__ == "__main__":
    main(*sys.argv[1:])
