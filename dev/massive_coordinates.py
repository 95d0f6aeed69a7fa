"""Measure how a single long vector changes a pretrained decoder's anisotropy in each layer.

It also finds the coordinates of that vector, and writes docs/results/real_models/massive.csv.

    .venv-pretrained/bin/python -m dev.massive_coordinates TEXT NAME=MODEL …

All vectors of 8 windows of 256 tokens, in float64: one sample, without intervals. Texts: the
validation splits of TEXT, of its shuffled tokens, and of the language reference of Python. Rows of
models named here are replaced. `bounds` of dev/one_vector.py is the closed form.
"""

import sys
from typing import Any

import numpy as np
import pandas as pd

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import WeightsConfig
from anisoscope.config.run_config import DataConfig
from anisoscope.data import corpus
from anisoscope.results import joined_files
from anisoscope.sources.hf import load_model
from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.pretrained_weights import find_weights
from anisoscope.sources.hf.token_windows import make_windows, validation_text
from dev.clamped import LENGTH, WINDOWS
from dev.one_vector import CUTS, TABLE, bounds

LONG = 5  # times the median norm: a massive vector


def main(path: str, *models: str) -> None:
    frames = [pd.read_csv(TABLE)] if TABLE.exists() else []
    names = [words.split("=")[0] for words in models]
    frames = [frame[~frame.model.isin(names)] for frame in frames]
    for name, model in (words.split("=") for words in models):
        place = find_weights(model, None)
        loaded = load_model.load_model(place, WeightsConfig(name=model))
        tokenizer = load_model.read_tokenizer(place)
        for labels, tokens_WT in read_texts(path, tokenizer):
            read = read_activations(loaded, tokens_WT[None], 2, heads=False)
            words_P = np.array(tokenizer.convert_ids_to_tokens(tokens_WT[:, 1:].ravel().tolist()))
            cuts = CUTS if labels["text"] == "enwik8" and labels["as_trained"] else ()
            layers = read.resid_ZLBTD[0].astype(np.float64)
            rows = [describe_layer(x_WTD, words_P, cuts) for x_WTD in layers]
            labels = {"model": name, **labels, "layer": range(len(rows))}
            frames.append(pd.DataFrame(labels).join(pd.DataFrame(rows)))
        joined_files.write_csv(pd.concat(frames), TABLE)


def read_texts(path: str, tokenizer: Any) -> list[tuple[dict[str, Any], np.ndarray]]:
    """Return the windows (W, T) of each text, with and without a special first token.

    `as_trained` are the windows that begin as the tokenizer begins a text.
    """
    probe = MeasureConfig(points=WINDOWS * (LENGTH - 1), batches=1, folds=1)
    windows = []
    for name, data in {
        "enwik8": DataConfig(path=path),
        "pydoc": DataConfig(source="pydoc"),
    }.items():
        text = validation_text(corpus.load(data, LENGTH))
        read = make_windows(text, tokenizer, LENGTH, True, probe)
        special = bool(read.fixed_T[0])
        windows.append((name, special, True, read.probe.tokens_GWT[0]))
        if name == "enwik8":
            windows.append((f"{name}, shuffled", special, True, read.probe.shuffled_GWT[0]))
            other_WT = make_windows(text, tokenizer, LENGTH, False, probe).probe.tokens_GWT[0]
            if not special:
                other_WT[:, 0] = tokenizer.bos_token_id
            windows.append((name, not special, False, other_WT))
    names = "text", "special_first", "as_trained"
    return [(dict(zip(names, labels, strict=True)), tokens) for *labels, tokens in windows]


def describe_layer(x_WTD: np.ndarray, words_P: np.ndarray, cuts: tuple[int, ...]) -> dict[str, Any]:
    """Compare the cloud with and without the first token, massive vectors, and the largest coordinate."""
    first_D, rest_PD = x_WTD[:, 0].mean(0), x_WTD[:, 1:].reshape(-1, x_WTD.shape[-1])
    cloud_PD = x_WTD.reshape(-1, x_WTD.shape[-1])
    norm_P, rest = np.linalg.norm(rest_PD, axis=1), np.cov(rest_PD.T)
    long_P, variance_D = norm_P > LONG * np.median(norm_P), rest.diagonal()
    square_D = (first_D - rest_PD.mean(0)) ** 2
    ratio, first, own = square_D.sum() / variance_D.sum(), square_D.argmax(), variance_D.argmax()
    low, high = bounds(ratio, share(rest), x_WTD.shape[1])
    return {
        "anisotropy": share(np.cov(cloud_PD.T)),
        "without_coordinate": share(np.cov(cloud_PD.T), first),
        **{"squared_ratio": ratio, "low": low, "high": high, "coordinate": first},
        **{
            "top_coordinate_variance_share": square_D[first] / square_D.sum(),
            "massive": long_P.sum(),
        },
        "massive_tokens": " ".join(dict.fromkeys(words_P[long_P])),
        **{
            "without_first_token": share(rest),
            "without_first_token_and_coordinate": share(rest, own),
        },
        "without_first_token_and_massive": share(np.cov(rest_PD[~long_P].T)),
        **{"coordinate_of_rest": own, "coordinate_of_rest_share": variance_D[own] / rest.trace()},
    } | {f"cut_{most}": share(np.cov(cloud_PD.clip(-most, most).T)) for most in cuts}


def share(covariance_DD: np.ndarray, without: int | None = None) -> float:
    """Return the largest eigenvalue's share, of all coordinates but one."""
    if without is not None:
        covariance_DD = np.delete(np.delete(covariance_DD, without, 0), without, 1)
    return np.linalg.eigvalsh(covariance_DD)[-1] / covariance_DD.trace()


if __name__ == "__main__":
    main(*sys.argv[1:])
