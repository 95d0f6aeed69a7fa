"""
A bell without a sink
=====================

Anisotropy over depth of two runs of the sink search, with the first token of each window and without it.
One seed each.
"""

import pathlib

import matplotlib.pyplot as plt
import pandas as pd

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
table = pd.read_csv(root / "findings" / "tables" / "sink_search" / "together.csv", index_col="run")
runs = {
    "together_deep": ("12 blocks", "#0072B2", "o"),
    "together_longer": ("4 blocks, six times as long", "#D55E00", "s"),
}

ax = plt.subplots()[1]
for run, (words, color, marker) in runs.items():
    sink = table.loc[run, "largest_attention_first_token"]
    for prefix, style in (("anisotropy_", "-"), ("anisotropy_without_first_token_", "--")):
        values = [
            table.loc[run, f"{prefix}{layer}"] for layer in range(13) if f"{prefix}{layer}" in table
        ]
        values = pd.Series(values).dropna()
        label = (
            f"{words}; most weight on the first token: {sink:.2f}"
            if style == "-"
            else "  the same without the first token"
        )
        ax.plot(
            values.index / values.index[-1], values, style, color=color, marker=marker, label=label
        )
ax.set(xlabel="depth (0: the embedding, 1: the last block)", ylabel="anisotropy", ylim=(0, None))
ax.set_title("The deep run has the bell, the long run the sink")
ax.figure.legend(loc="outside lower center", ncols=1)
