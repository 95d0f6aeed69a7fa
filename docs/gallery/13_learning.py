"""
Equal loss, unequal length
==========================

Bits of the validation text against characters read, of three recipes, one seed each. A loss-matched
contrast reads each run where it first reaches the level that all of them reach, in place of its
last step.
"""

import pathlib

import matplotlib.pyplot as plt
import pandas as pd

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
table = pd.read_csv(root / "findings" / "tables" / "learning" / "learning.csv")
table = table[table.characters >= 1e5]
level = table.groupby("recipe").valid_bits.min().max()

ax = plt.subplots()[1]
names = {"muon": "Muon, rotary", "rotary": "AdamW, rotary", "nanogpt": "nanoGPT's recipe"}
looks = zip(
    table.groupby("recipe", sort=False), ("#0072B2", "#D55E00", "#009E73"), "os^", strict=True
)
for (recipe, rows), color, marker in looks:
    there = rows[rows.valid_bits <= level].iloc[0]
    ax.plot(rows.characters, rows.valid_bits, color=color, label=names[recipe])
    ax.plot(there.characters, there.valid_bits, color=color, marker=marker, markersize=7)
    ax.plot([there.characters] * 2, [1.5, there.valid_bits], color=color, linestyle=":")
ax.axhline(level, color="0.5", linewidth=0.8)
ax.text(1.1e5, level + 0.05, f"the level: {level:.2f} bits", color="0.3")
ax.set_xscale("log")
ax.set(xlabel="characters read", ylabel="validation bits per character", ylim=(1.5, None))
ax.set_title("Equal loss comes after two, four and ten million characters")
ax.legend()
