"""
What a recipe learns
====================

Bits of the validation text against characters read, of three recipes on as many characters. One seed each.
"""

import pathlib

import matplotlib.pyplot as plt
import pandas as pd

results = next(one for one in pathlib.Path.cwd().parents if (one / "docs").is_dir()) / "docs" / "results"
table = pd.read_csv(results / "learning" / "learning.csv")

ax = plt.subplots()[1]
for (recipe, rows), color in zip(table.groupby("recipe", sort=False), ("#0072B2", "#D55E00", "#009E73"), strict=False):
    late = rows[rows.characters >= 1e5]
    ax.plot(late.characters, late.valid_bits, color=color, label=recipe)
ax.set_xscale("log")
ax.set(xlabel="characters read", ylabel="validation bits per character", title="Muon learns most of a character")
ax.legend()
