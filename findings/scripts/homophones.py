"""Write a text with homophones: several symbols for a frequent character, drawn anew at each place.

    .venv/bin/python -m findings.scripts.homophones enwik8-first-4154399-bytes.xz SYMBOLS

It writes SYMBOLS/few_natural.xz, few_flattened.xz, many_natural.xz and many_flattened.xz, each of
the text's length, and findings/tables/symbol_frequencies/texts.csv. Characters are bytes: the most
frequent 27 (few) or 100 (many), and one for all others. Natural: a symbol for each. Flattened: 60
or 250 symbols, each next one for the character whose symbols are the most frequent until then. A
symbol is drawn uniformly among those of its character, so it costs log2(their number) bits at best,
whatever is known of the text: bits per symbol minus the mean of these are bits per character.
"""

import lzma
import pathlib
import sys

import numpy as np
import pandas as pd

from anisoscope.results import joined_files

TEXTS = {  # most frequent characters, and symbols
    "few_natural": (27, 28),
    "few_flattened": (27, 60),
    "many_natural": (100, 101),
    "many_flattened": (100, 250),
}
TABLE = pathlib.Path("findings/tables/symbol_frequencies/texts.csv")


def coarsen(text: bytes, kept: int) -> np.ndarray:
    """Return the number of each byte, the most frequent first; `kept` for all rarer ones; (N,)."""
    bytes_N = np.frombuffer(text, np.uint8)
    order = np.argsort(-np.bincount(bytes_N, minlength=256), kind="stable")
    numbers = np.full(256, kept, np.uint8)
    numbers[order[:kept]] = np.arange(kept)
    return numbers[bytes_N]


def share_symbols(counts_C: np.ndarray, symbols: int) -> np.ndarray:
    """Return how many symbols each character has, all together `symbols`; (C,)."""
    share_C = np.ones(len(counts_C), int)
    for _ in range(symbols - len(counts_C)):
        share_C[np.argmax(counts_C / share_C)] += 1
    return share_C


def write_symbols(character_N: np.ndarray, share_C: np.ndarray, seed: int = 0) -> np.ndarray:
    """Draw a symbol of each character, symbols numbered from 1; (N,)."""
    draw_N = np.random.default_rng(seed).random(len(character_N))
    first_C = 1 + np.cumsum(share_C) - share_C
    return (first_C[character_N] + draw_N * share_C[character_N]).astype(np.uint8)


def homophone_bits(character_N: np.ndarray, share_C: np.ndarray) -> float:
    """Return the mean bits of the choice among homophones, which no text foretells."""
    return float(np.log2(share_C)[character_N].mean())


def entropy_bits(tokens_N: np.ndarray) -> float:
    share = np.bincount(tokens_N) / len(tokens_N)
    return float(-(share[share > 0] * np.log2(share[share > 0])).sum())


def main(source: str, folder: str) -> None:
    text, rows = lzma.decompress(pathlib.Path(source).read_bytes()), []
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    for name, (kept, symbols) in TEXTS.items():
        character_N = coarsen(text, kept)
        share_C = share_symbols(np.bincount(character_N), symbols)
        symbol_N = write_symbols(character_N, share_C)
        pathlib.Path(folder, f"{name}.xz").write_bytes(lzma.compress(symbol_N.tobytes()))
        test = slice(len(text) * 95 // 100, None)
        rows.append(
            {
                "text": name,
                "characters": kept + 1,
                "symbols": symbols,
                "largest_share": np.bincount(symbol_N).max() / len(text),
                "character_bits": entropy_bits(character_N),
                "symbol_bits": entropy_bits(symbol_N),
                "perplexity_over_symbols": 2 ** entropy_bits(symbol_N) / symbols,
                "test_homophone_bits": homophone_bits(character_N[test], share_C),
            }
        )
    TABLE.parent.mkdir(exist_ok=True)
    joined_files.write_csv(pd.DataFrame(rows), TABLE)
    print(pd.DataFrame(rows).round(3).to_string(index=False))


if __name__ == "__main__":
    main(*sys.argv[1:])
