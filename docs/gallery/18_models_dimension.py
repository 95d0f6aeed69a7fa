"""
Dimension of a pretrained model beside its null
===============================================

TwoNN's dimension of SmolLM2-135M by layer. Dashed: a Gaussian cloud of the same eigenvalues. The
vectors of 2,048 tokens lie on something of few dimensions in every layer.
"""

import pathlib

import xarray as xr

import anisoscope

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
table = xr.load_dataset(root / "findings" / "tables" / "real_models" / "SmolLM2-135M-Instruct.nc")

choice = {"positions": "all", "show_null": "gaussian", "label": "SmolLM2 135M"}
ax = anisoscope.plot.by_layer(table, "twonn", **choice)
ax.set(ylim=(0, None), title="Far fewer dimensions than the covariance allows")
