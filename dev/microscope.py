"""The published notebook of The Shape of Learning, rewritten, beside what `shape_of_learning.py:paper` gives.

    .venv-pretrained/bin/python -m dev.microscope MODEL TEXT [--pieces 128] [--config.measure.points=4096 …]

The notebook (AIRI-Institute/LLM-Microscope) reads 128 pieces of 512 characters, each by itself and with the tokenizer's
special tokens, and takes the share of the largest eigenvalue of all their hidden states together, in NumPy here.
"""

import argparse
import pathlib
import random
import sys
import tempfile

import numpy as np
import torch

from anisoscope.config.data import DataConfig
from anisoscope.config.pretrained import WeightsConfig
from anisoscope.data import corpus
from anisoscope.measurement.sources.hub import load
from anisoscope.measurement.sources.hub.reading.extract import forward
from anisoscope.measurement.sources.hub.reading.windows import text_of
from anisoscope.measurement.tables import files

PIECES, CHARACTERS = 128, 512


def published(loaded: load.Loaded, tokenizer, text: str, pieces: int = PIECES, characters: int = CHARACTERS) -> list:
    """Anisotropy of each of `hidden_states`, float64."""
    places = range(len(text) // characters)
    gathered: dict[int, list[np.ndarray]] = {}
    for place in random.Random(0).sample(places, min(pieces, len(places))):
        ids = tokenizer(text[place * characters : (place + 1) * characters])["input_ids"]
        states = forward(loaded, np.asarray([ids]), output_hidden_states=True).hidden_states
        for layer, state in enumerate(states):
            gathered.setdefault(layer, []).append(state[0].to(torch.float64).numpy())
    return [share(np.concatenate(parts)) for parts in gathered.values()]


def share(cloud_PD: np.ndarray) -> float:
    eigenvalues = np.linalg.eigvalsh(np.cov(cloud_PD.T))
    return float(eigenvalues[-1] / eigenvalues.sum())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder, a .gguf file, or a name of the hub")
    parser.add_argument("text", help="a text file, as --config.data.path takes it")
    parser.add_argument("--pieces", type=int, default=PIECES, help="that the notebook reads")
    given, more = parser.parse_known_args()
    ours = measured(given.model, given.text, more)  # first: it says how many devices there are
    place = load.place_of(given.model, None)
    loaded, tokenizer = load.load(place, WeightsConfig(name=given.model)), load.tokenizer_of(place)
    text = text_of(corpus.load(DataConfig(path=given.text, clean=True), CHARACTERS))
    theirs = published(loaded, tokenizer, text, given.pieces)
    print("| layer | notebook | shape_of_learning.py:paper | deviation over batches | difference |")
    print("| --- | --- | --- | --- | --- |")
    for layer, (one, (mean, deviation)) in enumerate(zip(theirs, ours, strict=True)):
        print(f"| {layer} | {one:.3f} | {mean:.3f} | {deviation:.3f} | {mean - one:+.3f} |")


def measured(name: str, path: str, more: list[str]) -> list[tuple[float, float]]:
    """Mean and deviation over batches of each layer, by the program itself."""
    from anisoscope.cli import process as program

    with tempfile.TemporaryDirectory() as folder:
        run = pathlib.Path(folder) / "run"
        flags = ("--config=experiments/shape_of_learning.py:paper", f"--config.models=model={name}")
        flags += (f"--config.data.path={path}", "--config.measure.families=('spectrum',)", "--stages=measure")
        if program.main(["main.py", *flags, f"--workdir={run}", *more]):
            sys.exit(1)
        found = files.read_table(run / "model" / "results.nc").anisotropy.sel(positions="all").isel(step=-1)
    return list(zip(*(found.sel(statistic=one).values.tolist() for one in ("mean", "std")), strict=True))


if __name__ == "__main__":
    main()
