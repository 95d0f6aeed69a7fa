"""
Neighborhoods beside the whole cloud
====================================

Anisotropy of five pretrained models, means over blocks: of all vectors, and of small
neighborhoods. Bars: 95 % intervals, windows resampled.
"""

import pathlib

import matplotlib.pyplot as plt
import pandas as pd

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
rows = pd.read_csv(root / "findings" / "tables" / "real_models" / "local.csv")
rows = rows[rows.positions == "all"]
words = {"anisotropy": "whole cloud", "local_anisotropy": "neighborhoods"}

figure, ax = plt.subplots()
for shift, (quantity, label) in zip((-0.1, 0.1), words.items(), strict=True):
    own = rows[rows.quantity == quantity].reset_index(drop=True)
    ends = (own["mean"] - own.low, own.high - own["mean"])
    ax.errorbar(own["mean"], own.index + shift, xerr=ends, fmt="o", label=label)
ax.set_yticks(own.index, [model.rpartition("-Instruct")[0] or model for model in own.model])
ax.set(xlim=(0, 1), xlabel="anisotropy", title="Whole clouds differ more than neighborhoods do")
ax.legend()
