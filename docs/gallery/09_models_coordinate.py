"""
One coordinate carries the variance
===================================

Share of the variance in the coordinate that has most of it, by layer of two decoders, and their
anisotropy as it is and without that coordinate. Windows of enwik8.
"""

import pathlib

import matplotlib.pyplot as plt
import pandas as pd

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
rows = pd.read_csv(root / "findings" / "tables" / "real_models" / "massive.csv")
rows = rows[
    (rows.text == "enwik8") & ~rows.special_first.astype(bool) & rows.as_trained.astype(bool)
]
lines = {"top_coordinate_variance_share": "share of the top coordinate", "anisotropy": "anisotropy"}
lines |= {"without_coordinate": "anisotropy without it"}

figure, axes = plt.subplots(1, 2, sharey=True)
models = {"SmolLM2 135M": "SmolLM2-135M-Instruct", "Qwen2.5 0.5B": "Qwen2.5-Coder-0.5B-Instruct"}
for ax, (title, model) in zip(axes, models.items(), strict=True):
    own = rows[rows.model == model].sort_values("layer")
    for column, label in lines.items():
        ax.plot(own.layer, own[column], label=label)
    ax.set(title=title, xlabel="layer", ylim=(0, 1.02))
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
figure.suptitle("One coordinate carries most of a decoder's variance")
