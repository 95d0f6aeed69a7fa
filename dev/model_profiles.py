"""Measure packaged pretrained models by layer, for the figures of docs/findings/pretrained.md.

    .venv-pretrained/bin/python -m dev.model_profiles TEXT NAME=KIND=MODEL …

KIND is decoder or encoder, MODEL a folder or a .gguf file. All vectors of 8 windows of 256 tokens.
It writes in docs/results/real_models NAME.nc (the table of `measure`, with intervals over windows
and null models), and replaces rows of models named here in heads.csv (attention on the first
token), spectra.csv (eigenvalues) and points.csv (principal components of the layer of largest
anisotropy).
"""

import sys

import numpy as np
import pandas as pd
import xarray as xr

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import WeightsConfig
from anisoscope.config.run_config import DataConfig
from anisoscope.data import corpus
from anisoscope.results import joined_files
from anisoscope.sources.hf import guards, load_model
from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.pretrained_weights import find_weights
from anisoscope.sources.hf.token_windows import make_windows, validation_text
from dev.clamped import LENGTH, WINDOWS, weight_on_first
from dev.real_models import RESULTS

QUANTITIES = ("anisotropy", "participation_ratio", "mean_cosine", "drift", "twonn")
SHOWN = 4  # each so-many-th point is kept for the scatter plot, and the first tokens


def main(path: str, *models: str) -> None:
    text = validation_text(corpus.load(DataConfig(path=path), LENGTH))
    probe = MeasureConfig(points=WINDOWS * (LENGTH - 2), batches=1, folds=1)
    for name, kind, model in (words.split("=") for words in models):
        place = find_weights(model, None)
        windows = make_windows(text, load_model.read_tokenizer(place), LENGTH, True, probe)
        tokens_WT = windows.probe.tokens_GWT[0]
        loaded = load_model.load_model(place, WeightsConfig(name=model))
        read = read_activations(loaded, tokens_WT[None], 2, heads=True)
        pattern, _ = guards.check_attention(loaded, tokens_WT[:2])
        bias_N = np.zeros(loaded.blocks) if pattern.bias_NHTT is None else pattern.bias_NHTT
        blocks = zip(read.q_ZNBTHK[0], read.k_ZNBTHK[0], pattern.visible_NTT, bias_N, strict=True)
        weight_NH = np.array([weight_on_first(*block) for block in blocks])
        layers = read.resid_ZLBTD[0]
        table = measure(layers, name)
        coding = {quantity: {"zlib": True, "complevel": 9} for quantity in table}
        table.to_netcdf(RESULTS / "real_models" / f"{name}.nc", encoding=coding)
        clouds = [x.reshape(-1, x.shape[-1]).astype(float) for x in layers]
        spectra = [np.linalg.eigh(np.cov(x_PD.T)) for x_PD in clouds]
        shares = np.array([values[::-1] / values.sum() for values, _ in spectra])
        ranks = np.unique(np.geomspace(1, shares.shape[1], 40).round().astype(int))
        peak = int(shares[:, 0].argmax())
        plane_P2 = (clouds[peak] - clouds[peak].mean(0)) @ spectra[peak][1][:, :-3:-1]
        points = pd.DataFrame(plane_P2, columns=["first", "second"])
        points = points.assign(layer=peak, position=np.tile(np.arange(LENGTH), WINDOWS))
        frames = {
            "heads": to_rows(pd.DataFrame(weight_NH), "block", "head", "weight"),
            "spectra": to_rows(
                pd.DataFrame(shares[:, ranks - 1], columns=ranks), "layer", "rank", "share"
            ),
            "points": points[points.position % SHOWN == 0],
        }
        for file, frame in frames.items():
            joined = RESULTS / "real_models" / f"{file}.csv"
            kept = [pd.read_csv(joined).query("model != @name")] if joined.exists() else []
            new = frame.assign(model=name, kind=kind).round(6)
            joined_files.write_csv(pd.concat([*kept, new]), joined)


def measure(layers_NWTD: np.ndarray, name: str) -> xr.Dataset:
    """Measure the default families, with the first token of each window and without it."""
    sides = {}
    for side, first in {"all": 0, "without_first_token": 1}.items():
        x_NWTD = layers_NWTD[:, :, first:]
        window_P = np.repeat(np.arange(WINDOWS), x_NWTD.shape[2])
        sides[side] = anisoscope.measure(x_NWTD.reshape(len(x_NWTD), len(window_P), -1), window_P)
    index = xr.IndexVariable("positions", [*sides])
    table = xr.concat([*sides.values()], index, combine_attrs="override")
    kept = [name for name in table if name.removesuffix("_excess") in QUANTITIES]
    return table[kept].astype("f4").assign_attrs(title=name)


def to_rows(wide: pd.DataFrame, rows: str, columns: str, values: str) -> pd.DataFrame:
    return wide.stack().rename_axis([rows, columns]).rename(values).reset_index()


if __name__ == "__main__":
    main(*sys.argv[1:])
