"""
Attention sinks of a pretrained decoder, head by head
=====================================================

Mean weight of each head of SmolLM2-135M on the first token of its window. A head is commonly said
to have a sink above 0.3.
"""

import pathlib

import matplotlib.pyplot as plt
import pandas as pd

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
rows = pd.read_csv(root / "findings" / "tables" / "real_models" / "heads.csv")
rows = rows[rows.model == "SmolLM2-135M-Instruct"]
weight = rows.pivot(index="block", columns="head", values="weight")

figure, ax = plt.subplots()
heads = weight.shape[1]
extent = (-0.5, heads - 0.5, 0.5, len(weight) + 0.5)  # blocks count from 1
image = ax.imshow(weight, origin="lower", aspect="auto", vmin=0, vmax=1, extent=extent)
ax.grid(False)
ax.set(xlabel="head", ylabel="block", title="Sinks begin in the middle of the depth")
figure.colorbar(image, label="mean weight on the first token")
