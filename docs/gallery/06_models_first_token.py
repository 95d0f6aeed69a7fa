"""
One component tells the first token from all others
===================================================

Vectors of 8 windows on the first two components of a layer: SmolLM2 135M, a decoder, and MiniLM, an
encoder. The eight first tokens make the first component of the decoder.
"""

import pathlib

import matplotlib.pyplot as plt
import pandas as pd

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
rows = pd.read_csv(root / "findings" / "tables" / "real_models" / "points.csv")

figure, axes = plt.subplots(1, 2)
for ax, model in zip(axes, ("SmolLM2-135M-Instruct", "MiniLM"), strict=True):
    own = rows[rows.model == model]
    for name, which in {"other tokens": own.position > 0, "first token": own.position == 0}.items():
        ax.plot(own["first"][which], own["second"][which], "o", markersize=2.5, label=name)
    ax.set(title=f"{model.partition('-')[0]}, layer {own.layer.iloc[0]}", xlabel="component 1")
    ax.locator_params(axis="x", nbins=4)
axes[0].set_ylabel("component 2")
axes[1].legend()
figure.suptitle("One component holds the first tokens of the decoder")
