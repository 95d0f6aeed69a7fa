"""Measure loss, sinks and bell of a pretrained decoder without its massive coordinates.

It writes docs/results/real_models/ablated.csv.

    .venv-pretrained/bin/python -m dev.ablated_coordinates TEXT NAME=MODEL:COORDINATES …

COORDINATES are those that docs/results/real_models/massive.csv names, as 507 or 163,400. They are
set after every block to 0, or to their mean over the vectors behind the first token: of all vectors, or of
the first token alone. Controls are as many coordinates drawn at random. 8 windows of 256 tokens that begin
as the tokenizer begins a text: one sample, without intervals.
"""

import sys
from typing import Any

import numpy as np
import pandas as pd
import torch

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import WeightsConfig
from anisoscope.config.run_config import DataConfig
from anisoscope.data import corpus
from anisoscope.results import joined_files
from anisoscope.sources.hf import load_model
from anisoscope.sources.hf.extract import first_output, read_activations
from anisoscope.sources.hf.pretrained_weights import find_weights
from anisoscope.sources.hf.token_windows import make_windows, validation_text
from dev.clamped import LENGTH, WINDOWS, found
from dev.real_models import RESULTS

TABLE = RESULTS / "real_models" / "ablated.csv"
CONTROLS = 2  # draws of other coordinates


def main(path: str, *models: str) -> None:
    text = validation_text(corpus.load(DataConfig(path=path), LENGTH))
    probe = MeasureConfig(points=WINDOWS * (LENGTH - 1), batches=1, folds=1)
    frames = []
    for words in models:
        name, model, listed = words.replace(":", "=").split("=")
        coordinates = [int(word) for word in listed.split(",")]
        place = find_weights(model, None)
        loaded = load_model.load_model(place, WeightsConfig(name=model))
        windows = make_windows(text, load_model.read_tokenizer(place), LENGTH, True, probe)
        read = read_activations(loaded, windows.probe.tokens_GWT[:1], 2, heads=False)
        mean_ND = read.resid_ZLBTD[0][1:, :, 1:].mean((1, 2))  # after each block
        rng, width = np.random.default_rng(0), mean_ND.shape[1]
        others = np.setdiff1d(np.arange(width), coordinates)
        cases = {
            "nothing": ([], mean_ND, slice(None)),
            "to 0": (coordinates, 0 * mean_ND, slice(None)),
            "to the mean": (coordinates, mean_ND, slice(None)),
            "of the first token to the mean": (coordinates, mean_ND, slice(1)),
        }
        for draw in range(CONTROLS):
            chosen = rng.choice(others, len(coordinates), replace=False).tolist()
            cases |= {f"others to 0, draw {draw}": (chosen, 0 * mean_ND, slice(None))}
            cases |= {f"others to the mean, draw {draw}": (chosen, mean_ND, slice(None))}
        for case, settings in cases.items():
            hooks = ablate(loaded, *settings)
            frames.append(found(loaded, windows).assign(model=name, ablated=case))
            for hook in hooks:
                hook.remove()
    joined_files.write_csv(pd.concat(frames), TABLE)


def ablate(loaded: Any, coordinates: list[int], value_ND: np.ndarray, tokens: slice) -> list[Any]:
    """Set coordinates of the residual stream after every block from now on; return the hooks."""

    def make_hook(value_D: torch.Tensor) -> Any:
        def after(_: Any, args: tuple, output: Any) -> Any:
            x_BTD = first_output(output).clone()
            x_BTD[:, tokens, coordinates] = value_D[coordinates]
            return (x_BTD, *output[1:]) if isinstance(output, tuple) else x_BTD

        return after

    return [
        module.register_forward_hook(make_hook(torch.as_tensor(value_D, dtype=loaded.model.dtype)))
        for module, value_D in zip(loaded.block_modules, value_ND, strict=True)
    ]


if __name__ == "__main__":
    main(*sys.argv[1:])
