"""Read the residual stream of a packaged decoder on texts cut into windows of several lengths.

    cat "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')"/*.py > stdlib.txt
    .venv-pretrained/bin/python -m findings.scripts.read_states FOLDER NAME=MODEL TOKENS \
        enwik8:32,128,512,2048=enwik8-first-4154399-bytes.xz pydoc:128= stdlib:128=stdlib.txt

Writes FOLDER/NAME/<text>_<length>.npy, float32 (layers, windows, length, width), and scale.npy, the
gain of the final norm. Every length cuts the first TOKENS tokens of a text's validation split; each
window begins with the special tokens that the tokenizer begins a text with.
pydoc is the language reference inside of Python, stdlib the source of its library.
"""

import pathlib
import sys

import numpy as np

from anisoscope.sources.hf.extract import read_activations
from anisoscope.sources.hf.logits import make_unembedding
from anisoscope.sources.hf.token_windows import encode_text, special_frame
from findings.scripts.packaged_model import open_packaged, read_text

AT_ONCE = 1024  # tokens in a forward pass, or one window


def cut(ids_N: np.ndarray, before: list[int], tokens: int, length: int) -> np.ndarray:
    """Return windows (W, T) of `tokens` in all that begin with the tokens of `before`."""
    windows, inner = tokens // length, length - len(before)
    rows_WT = np.empty((windows, length), np.int32)
    rows_WT[:, : len(before)] = before
    rows_WT[:, len(before) :] = ids_N[: windows * inner].reshape(windows, inner)
    return rows_WT


def main(root: str, entry: str, tokens: str, *texts: str) -> None:
    name, file = entry.split("=")
    model, folder, total = open_packaged(file), pathlib.Path(root) / name, int(tokens)
    folder.mkdir(parents=True, exist_ok=True)
    np.save(folder / "scale.npy", np.asarray(make_unembedding(model.loaded).scale_D))
    before = special_frame(model.tokenizer)[0]
    for text, lengths, path in (words.replace("=", ":").split(":") for words in texts):
        ids_N = encode_text(read_text(path or None), model.tokenizer)[0]
        for length in map(int, lengths.split(",")):
            tokens_WT = cut(ids_N, before, total, length)
            read = read_activations(model.loaded, tokens_WT[None], max(1, AT_ONCE // length))
            np.save(folder / f"{text}_{length}.npy", read.resid_ZLBTD[0])
            print(name, text, tokens_WT.shape, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
