"""Measure how a single long vector changes a pretrained decoder's anisotropy in each layer.

It also finds the coordinates of that vector, and writes findings/tables/real_models/massive.csv.

    .venv-pretrained/bin/python -m findings.scripts.massive_coordinates TEXT NAME=MODEL …

All vectors of 8 windows of 256 tokens, in float64: one sample, without intervals. Texts: the
validation splits of TEXT, of its shuffled tokens, and of the language reference of Python. Rows of
models named here are replaced. `bounds` of findings/scripts/one_vector.py is the closed form.
"""

import sys
from typing import Any

import numpy as np
import pandas as pd

from anisoscope.sources.hf.extract import read_activations
from findings.scripts.one_vector import CUTS, TABLE, bounds
from findings.scripts.packaged_model import Packaged, anisotropy, open_packaged, read_text
from findings.scripts.shared_tables import replace_models


def main(path: str, *models: str) -> None:
    for name, file in (words.split("=") for words in models):
        model, frames = open_packaged(file), []
        # as_trained are the windows that begin as the tokenizer begins a text
        for (text, special_first, as_trained), tokens_WT in read_windows(path, model):
            read = read_activations(model.loaded, tokens_WT[None], 2)
            cuts = CUTS if text == "enwik8" and as_trained else ()
            layers = read.resid_ZLBTD[0].astype(np.float64)
            rows = pd.DataFrame([describe_layer(x_WTD, cuts) for x_WTD in layers])
            labels = {"model": name, "text": text, "special_first": special_first}
            labels |= {"as_trained": as_trained, "layer": range(len(rows))}
            frames.append(pd.DataFrame(labels).join(rows))
        replace_models(TABLE, pd.concat(frames))


def read_windows(path: str, model: Packaged) -> list[tuple[tuple, np.ndarray]]:
    """Return the windows (W, T) of each text, with and without a special first token."""
    text, pydoc = read_text(path), read_text(None)
    own, reference = model.windows(text, True), model.windows(pydoc, True)
    special, other_WT = bool(own.fixed_T[0]), model.windows(text, False).probe.tokens_GWT[0]
    if not special:
        other_WT[:, 0] = model.tokenizer.bos_token_id
    return [
        (("enwik8", special, True), own.probe.tokens_GWT[0]),
        (("enwik8, shuffled", special, True), own.probe.shuffled_GWT[0]),
        (("enwik8", not special, False), other_WT),
        (("pydoc", special, True), reference.probe.tokens_GWT[0]),
    ]


def describe_layer(x_WTD: np.ndarray, cuts: tuple[int, ...]) -> dict[str, Any]:
    """Compare the cloud with and without the first token, and the largest coordinate."""
    first_D, rest_PD = x_WTD[:, 0].mean(0), x_WTD[:, 1:].reshape(-1, x_WTD.shape[-1])
    cloud_PD = x_WTD.reshape(-1, x_WTD.shape[-1])
    variance_D, square_D = rest_PD.var(0, ddof=1), (first_D - rest_PD.mean(0)) ** 2
    ratio, first, own = square_D.sum() / variance_D.sum(), square_D.argmax(), variance_D.argmax()
    low, high = bounds(ratio, rest := anisotropy(rest_PD), x_WTD.shape[1])
    columns = {
        "anisotropy": anisotropy(cloud_PD),
        "without_coordinate": anisotropy(cloud_PD, first),
    }
    columns |= {"squared_ratio": ratio, "low": low, "high": high, "coordinate": first}
    columns |= {"top_coordinate_variance_share": square_D[first] / square_D.sum()}
    columns |= {"without_first_token": rest}
    columns |= {"without_first_token_and_coordinate": anisotropy(rest_PD, own)}
    share = variance_D[own] / variance_D.sum()
    columns |= {"coordinate_of_rest": own, "coordinate_of_rest_share": share}
    return columns | {f"cut_{most}": anisotropy(cloud_PD.clip(-most, most)) for most in cuts}


if __name__ == "__main__":
    main(*sys.argv[1:])
