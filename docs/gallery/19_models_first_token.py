"""
The first token makes the bell of a pretrained decoder
======================================================

Anisotropy of SmolLM2-135M by layer, with the first token of each window and without it. In these
eight windows nothing of the plateau from layer 12 on remains without it.
"""

import pathlib

import matplotlib.pyplot as plt
import xarray as xr

import anisoscope

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
table = xr.load_dataset(root / "findings" / "tables" / "real_models" / "SmolLM2-135M-Instruct.nc")

ax = plt.subplots()[1]
anisoscope.plot.by_layer(table, "anisotropy", ax=ax)  # a line for each set of positions
ax.set(ylim=(0, 1), title="One token makes the plateau from layer 12 on")
