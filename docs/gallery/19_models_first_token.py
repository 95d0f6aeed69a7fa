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
for positions, label in {"all": "all tokens", "without_first_token": "without the first"}.items():
    anisoscope.plot.by_layer(table, "anisotropy", positions=positions, label=label, ax=ax)
ax.set(ylim=(0, 1), title="Never quote one without the other")
