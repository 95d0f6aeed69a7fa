"""Measure packaged pretrained models by layer, for the figures of findings/bell.md.

    .venv-pretrained/bin/python -m findings.scripts.model_profiles TEXT NAME=KIND=MODEL …

KIND is decoder or encoder, MODEL a folder or a .gguf file. All vectors of 8 windows of 256 tokens.
It writes in findings/tables/real_models NAME.nc (the table of `measure`, with intervals over windows
and null models), and replaces rows of models named here in heads.csv (attention on the first
token), spectra.csv (eigenvalues) and points.csv (principal components of the layer of largest
anisotropy).
"""

import sys

import numpy as np
import pandas as pd
import xarray as xr

import anisoscope
from findings.scripts.packaged_model import LENGTH, WINDOWS, open_packaged, read_text
from findings.scripts.shared_tables import RESULTS, replace_models

QUANTITIES = ("anisotropy", "participation_ratio", "mean_cosine", "drift", "twonn")
SHOWN = 4  # each so-many-th point is kept for the scatter plot, and the first tokens


def main(path: str, *models: str) -> None:
    text = read_text(path)
    for name, kind, file in (words.split("=") for words in models):
        model = open_packaged(file)
        layers, weight_NH = model.read(model.windows(text, True).probe.tokens_GWT[0])
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
        spectra = pd.DataFrame(shares[:, ranks - 1], columns=ranks)
        frames = {
            "heads": to_rows(pd.DataFrame(weight_NH), "block", "head", "weight"),
            "spectra": to_rows(spectra, "layer", "rank", "share"),
            "points": points[points.position % SHOWN == 0],
        }
        for file, frame in frames.items():
            new = frame.assign(model=name, kind=kind).round(6)
            replace_models(RESULTS / "real_models" / f"{file}.csv", new)


def measure(layers_NWTD: np.ndarray, name: str) -> xr.Dataset:
    """Measure the default families, with the first token of each window and without it."""
    sides = {}
    for side, first in {"all": 0, "without_first_token": 1}.items():
        x_NWTD = layers_NWTD[:, :, first:]
        window_P = np.repeat(np.arange(WINDOWS), x_NWTD.shape[2])
        sides[side] = anisoscope.measure(
            [*x_NWTD.reshape(len(x_NWTD), len(window_P), -1)], window_P
        )
    index = xr.IndexVariable("positions", [*sides])
    table = xr.concat([*sides.values()], index, combine_attrs="override")
    kept = [name for name in table if name.removesuffix("_excess") in QUANTITIES]
    return table[kept].astype("f4").assign_attrs(title=name)


def to_rows(wide: pd.DataFrame, rows: str, columns: str, values: str) -> pd.DataFrame:
    return wide.stack().rename_axis([rows, columns]).rename(values).reset_index()


if __name__ == "__main__":
    main(*sys.argv[1:])
