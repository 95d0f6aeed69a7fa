"""Measure loss, sinks and bell of a pretrained decoder with massive coordinates set or clamped.

    .venv-pretrained/bin/python -m findings.scripts.ablated_coordinates TEXT ablated NAME=MODEL:COORDINATES …
    .venv-pretrained/bin/python -m findings.scripts.ablated_coordinates TEXT clamped NAME=MODEL:1200,600,200

Tables: ablated.csv and clamped.csv in findings/tables/real_models. COORDINATES of massive.csv, as 507 or
163,400, are set after every block to 0 or to their mean over the vectors behind the first token, with
as many random coordinates as controls. 8 windows of 256 tokens: one sample, no intervals. Rows of models
named here are replaced.
"""

import sys
from typing import Any

import numpy as np
import pandas as pd
import torch

from anisoscope.metrics.attention import SINK_FROM
from anisoscope.sources.hf import guards
from anisoscope.sources.hf.extract import clamp_coordinates
from anisoscope.sources.hf.layer_capture import first_output
from findings.scripts.packaged_model import Packaged, anisotropy, open_packaged, read_text
from findings.scripts.shared_tables import RESULTS, replace_models

CONTROLS = 2  # draws of other coordinates


def measure(packaged: Packaged, windows: Any, **labels: Any) -> pd.DataFrame:
    """Return anisotropy by layer, sinks and weight on the first token by block, and the loss."""
    resid_NWTD, weight_NH = packaged.read(windows.probe.tokens_GWT[0])
    bits = guards.check_bits_per_byte(packaged.loaded, windows, 2, np.inf)
    columns = {
        "layer": range(len(resid_NWTD)),
        "anisotropy": [anisotropy(x_WTD.reshape(-1, x_WTD.shape[-1])) for x_WTD in resid_NWTD],
        "sinks": [np.nan, *(weight_NH > SINK_FROM).mean(1)],
        "weight": [np.nan, *weight_NH.mean(1)],
    }
    return pd.DataFrame(columns).assign(bits_per_byte=bits["bits_per_byte"], **labels)


def ablate(model: Packaged, coordinates: list[int], value_ND: np.ndarray, tokens: slice) -> list:
    """Set coordinates of the residual stream after every block from now on; return the hooks."""

    def make_hook(value_D: torch.Tensor) -> Any:
        def after(_: Any, args: tuple, output: Any) -> Any:
            x_BTD = first_output(output).clone()
            x_BTD[:, tokens, coordinates] = value_D[coordinates]
            return (x_BTD, *output[1:]) if isinstance(output, tuple) else x_BTD

        return after

    pairs = zip(model.loaded.block_modules, torch.as_tensor(value_ND), strict=True)
    return [module.register_forward_hook(make_hook(value_D)) for module, value_D in pairs]


def ablations(mean_ND: np.ndarray, coordinates: list[int]) -> dict[str, tuple]:
    """List the arguments of `ablate` by the words of the table."""
    rng, every = np.random.default_rng(0), slice(None)
    others = np.setdiff1d(np.arange(mean_ND.shape[1]), coordinates)
    cases = {"nothing": ([], mean_ND, every), "to 0": (coordinates, 0 * mean_ND, every)}
    cases["to the mean"] = coordinates, mean_ND, every
    cases["of the first token to the mean"] = coordinates, mean_ND, slice(1)
    for draw in range(CONTROLS):
        chosen = rng.choice(others, len(coordinates), replace=False).tolist()
        cases[f"others to 0, draw {draw}"] = chosen, 0 * mean_ND, every
        cases[f"others to the mean, draw {draw}"] = chosen, mean_ND, every
    return cases


def main(path: str, table: str, *models: str) -> None:
    text, frames = read_text(path), []
    for name, file, words in (entry.replace("=", ":").split(":") for entry in models):
        model = open_packaged(file)
        windows = model.windows(text, True)
        if table == "clamped":
            for most in (np.inf, *sorted(map(float, words.split(",")), reverse=True)):
                if np.isfinite(most):  # within the larger ones before it, which stay
                    clamp_coordinates(model.loaded, most, windows.probe.tokens_GWT[0], 8)
                frames.append(measure(model, windows, model=name, clamp=most))
            continue
        mean_ND = model.read(windows.probe.tokens_GWT[0])[0][1:, :, 1:].mean((1, 2))
        for case, settings in ablations(mean_ND, [*map(int, words.split(","))]).items():
            hooks = ablate(model, *settings)
            frames.append(measure(model, windows, model=name, ablated=case))
            for hook in hooks:
                hook.remove()
    replace_models(RESULTS / "real_models" / f"{table}.csv", pd.concat(frames))


if __name__ == "__main__":
    main(*sys.argv[1:])
