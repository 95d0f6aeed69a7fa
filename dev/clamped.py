"""Measure bell, sinks and loss of a pretrained decoder with and without clamped coordinates.

    .venv-pretrained/bin/python -m dev.clamped MODEL TEXT 1200 600 200

All vectors of the windows, in float64: one sample, without intervals. `--config.pretrained.clamp`
of experiments/pretrained.py gives these and all other quantities, with intervals.
docs/results/real_models/clamped.csv.
"""

import sys

import numpy as np
import pandas as pd
import scipy.special

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import WeightsConfig
from anisoscope.config.run_config import DataConfig
from anisoscope.data import corpus
from anisoscope.measurement.families.attention_family import SINK_FROM
from anisoscope.results import joined_files
from anisoscope.sources.hf import guards, load_model
from anisoscope.sources.hf.clamp import clamp_coordinates
from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.pretrained_weights import find_weights
from anisoscope.sources.hf.token_windows import Windows, make_windows, validation_text
from dev.real_models import RESULTS

TABLE = RESULTS / "real_models" / "clamped.csv"
WINDOWS, LENGTH = 8, 256  # windows, and tokens of a window


def main(model: str, path: str, *clamps: str) -> None:
    place = find_weights(model, None)
    tokenizer = load_model.read_tokenizer(place)
    text = validation_text(corpus.load(DataConfig(path=path), LENGTH))
    probe = MeasureConfig(points=WINDOWS * (LENGTH - 1), batches=1, folds=1)
    windows = make_windows(text, tokenizer, LENGTH, False, probe)
    frames = []
    for most in (np.inf, *map(float, clamps)):
        loaded = load_model.load_model(place, WeightsConfig(name=model))
        if np.isfinite(most):
            print(clamp_coordinates(loaded, most, windows.probe.tokens_GWT[0], WINDOWS))
        frames.append(found(loaded, windows).assign(clamp=most))
    frame = pd.concat(frames)
    joined_files.write_csv(frame, TABLE)
    print(frame.to_string(index=False))


def found(loaded: load_model.PretrainedModel, windows: Windows) -> pd.DataFrame:
    """Return anisotropy by layer, sinks and weight on the first token by block, and the loss."""
    tokens_WT = windows.probe.tokens_GWT[0]
    read = read_activations(loaded, tokens_WT[None], len(tokens_WT), heads=True)
    pattern, _ = guards.check_attention(loaded, tokens_WT[:2])
    bias_N = np.zeros(loaded.blocks) if pattern.bias_NHTT is None else pattern.bias_NHTT
    blocks = zip(read.q_ZNBTHK[0], read.k_ZNBTHK[0], pattern.visible_NTT, bias_N, strict=True)
    weight_NH = [weight_on_first(*block) for block in blocks]
    bits = guards.check_bits_per_byte(loaded, windows, 2, np.inf)
    clouds = [x_WTD.reshape(-1, x_WTD.shape[-1]) for x_WTD in read.resid_ZLBTD[0]]
    columns = {
        "layer": range(loaded.blocks + 1),
        "anisotropy": [anisotropy(cloud_PD) for cloud_PD in clouds],
        "sinks": [np.nan, *((weight_H > SINK_FROM).mean() for weight_H in weight_NH)],
        "weight": [np.nan, *(weight_H.mean() for weight_H in weight_NH)],
    }
    return pd.DataFrame(columns).assign(bits_per_byte=bits["bits_per_byte"])


def anisotropy(cloud_PD: np.ndarray) -> float:
    value_D = np.linalg.eigvalsh(np.cov(cloud_PD.astype(np.float64).T))
    return value_D[-1] / value_D.sum()


def weight_on_first(
    q_WTHK: np.ndarray, k_WTHK: np.ndarray, visible_TT: np.ndarray, bias_HTT: np.ndarray
) -> np.ndarray:
    """Return each head's mean weight on the first token, over the rows of the others that see it."""
    product_WHTT = np.einsum("wqhk,wshk->whqs", q_WTHK, k_WTHK, optimize=True)
    scores_WHTT = product_WHTT / q_WTHK.shape[-1] ** 0.5 + bias_HTT
    weight_WHTT = scipy.special.softmax(np.where(visible_TT, scores_WHTT, -np.inf), axis=-1)
    return weight_WHTT[:, :, 1:, 0].mean(axis=(0, 2))


if __name__ == "__main__":
    main(*sys.argv[1:])
