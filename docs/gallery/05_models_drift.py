"""
Mean cosine and drift of pretrained models
==========================================

A point is a layer of a model. Drift is the norm of the mean vector, here over its largest in the
model. Right: the same cosines over depth. The first token of each window is left out.
"""

import pathlib

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
folder = root / "findings" / "tables" / "real_models"
names = {"SmolLM2 135M": "SmolLM2-135M-Instruct", "Qwen2.5 0.5B": "Qwen2.5-Coder-0.5B-Instruct"}
names |= {"Gemma 3 270M": "Gemma-3-270M", "MPNet": "MPNet-base", "MiniLM": "MiniLM"}

figure, axes = plt.subplots(1, 2, sharey=True)
for name, file in names.items():
    table = xr.load_dataset(folder / f"{file}.nc").sel(
        positions="without_first_token", statistic="mean"
    )
    drift = table.drift / table.drift.max()
    axes[0].plot(drift, table.mean_cosine, "o", markersize=3, label=name)
    axes[1].plot(np.linspace(0, 1, table.sizes["layer"]), table.mean_cosine)
axes[0].set(xlabel="drift over its largest", ylabel="mean cosine", ylim=(0, 1))
axes[1].set(xlabel="relative depth")
figure.suptitle("Mean cosine rises with drift, hardly in Gemma 3")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
