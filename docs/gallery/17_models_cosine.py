"""
Cosine over depth of pretrained models
======================================

Mean cosine of pairs of token vectors in packaged models, as Godey et al. drew it. Each table is
one of `measure` (`findings/scripts/model_profiles.py`, 8 windows of 256 tokens of enwik8).
"""

import pathlib

import xarray as xr

import anisoscope

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
folder = root / "findings" / "tables" / "real_models"
names = {"SmolLM2 135M": "SmolLM2-135M-Instruct", "Qwen2.5 0.5B": "Qwen2.5-Coder-0.5B-Instruct"}
names |= {"Gemma 3 270M": "Gemma-3-270M", "MPNet": "MPNet-base", "MiniLM": "MiniLM"}
tables = {name: xr.load_dataset(folder / f"{file}.nc") for name, file in names.items()}

ax = anisoscope.plot.by_layer(tables, "mean_cosine")
ax.set(ylim=(0, 1), title="At the end higher in decoders than in encoders")
