"""How the height of a decoder's bell depends on the length of the window, beside what norms and lengths tell.

    .venv-pretrained/bin/python -m dev.bell_by_window MODEL TEXT [--windows 32 256 1024] [--layers 12 20 28]

All vectors of the windows are measured, which hold the same text however it is cut. A table in Markdown, and
docs/results/real_models/bell_by_window.csv.
"""

import argparse

import numpy as np
import pandas as pd

from anisoscope.config.data import DataConfig
from anisoscope.config.pretrained import WeightsConfig
from anisoscope.data import corpus
from anisoscope.measurement.api import measure
from anisoscope.measurement.sources.hub import load
from anisoscope.measurement.sources.hub.reading import guards
from anisoscope.measurement.sources.hub.reading.extract import activations
from anisoscope.measurement.sources.hub.reading.windows import text_of
from anisoscope.measurement.tables import files
from dev.real_models import RESULTS

TABLE = RESULTS / "real_models" / "bell_by_window.csv"
ENDS = ("mean", "low", "high")
COLUMNS = {  # heading -> quantity, and which vectors are left out
    "anisotropy": ("anisotropy", None),
    "token 0 against the rest": ("first_share", None),
    "expected from norms": ("first_share_by_norm", None),
    "without the longest of each window": ("anisotropy_without", "longest of each window"),
    "without the longest 1 %": ("anisotropy_without", "longest 1 %"),
    "kurtosis": ("leading_kurtosis", None),
    "entropy of a window": ("window_entropy", None),
}


def main() -> None:
    given = arguments()
    place = load.place_of(given.model, None)
    loaded, tokenizer = load.load(place, WeightsConfig(name=given.model)), load.tokenizer_of(place)
    text = text_of(corpus.load(DataConfig(path=given.text), max(given.windows)))
    tokens_P = np.asarray(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])[: given.tokens]
    print("| window | layer |", " | ".join(COLUMNS), "|")
    print("| --- | --- |", " | ".join(["---"] * len(COLUMNS)), "|")
    rows = []
    for length in given.windows:
        guards.shape(loaded, length, 0)
        rows += measured(loaded, tokens_P[: len(tokens_P) // length * length].reshape(-1, length), given.layers)
    files.write_csv(pd.DataFrame(rows), TABLE)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", help="a folder, a .gguf file, or a name of the hub")
    parser.add_argument("text", help="a text file, as --config.data.path takes it")
    parser.add_argument("--windows", nargs="+", type=int, default=[32, 256, 1024], help="tokens of a window")
    parser.add_argument("--layers", nargs="+", type=int, default=[12, 20, 28])
    parser.add_argument("--tokens", type=int, default=4096, help="of the validation split")
    return parser.parse_args()


def measured(loaded: load.Loaded, tokens_WT: np.ndarray, layers: list[int]) -> list[dict[str, float]]:
    """A row for each layer, which is printed too."""
    windows, length = tokens_WT.shape
    streams = activations(loaded, tokens_WT[None], max(1, 2048 // length), heads=False).resid_ZNWTD[0]
    window_P, position_P = np.divmod(np.arange(windows * length), length)
    table = measure(
        [streams[layer].reshape(windows * length, -1) for layer in layers],
        window_P,
        positions=position_P,
        families=("spectrum", "leading", "windows"),
        nulls=(),
        names=[str(layer) for layer in layers],
    )
    rows = []
    for layer in layers:
        row = {"window": length, "layer": layer}
        for words, (name, without) in COLUMNS.items():
            values = table[name].sel(layer=str(layer), **({} if without is None else {"without": without}))
            row |= {f"{words}, {end}": float(values.sel(statistic=end)) for end in ENDS}
        print(f"| {length} | {layer} |", " | ".join(cell(row, words) for words in COLUMNS), "|", flush=True)
        rows.append(row)
    return rows


def cell(row: dict[str, float], words: str) -> str:
    """A value with its interval."""
    mean, low, high = (row[f"{words}, {end}"] for end in ENDS)
    digits = ".0f" if mean > 10 else ".3f"
    return f"{mean:{digits}} [{low:{digits}}, {high:{digits}}]"


if __name__ == "__main__":
    main()
