"""
Anisotropy over depth of pretrained models
==========================================

Share of variance in one direction, of three decoders and two encoders, 8 windows of 256 tokens of enwik8. The
bands resample whole windows.
"""

import pathlib

import xarray as xr

import anisoscope

root = next(one for one in pathlib.Path.cwd().parents if (one / "findings").is_dir())
folder = root / "findings" / "tables" / "real_models"
names = {"SmolLM2 135M": "SmolLM2-135M-Instruct", "Qwen2.5 0.5B": "Qwen2.5-Coder-0.5B-Instruct"}
names |= {"Gemma 3 270M": "Gemma-3-270M", "MPNet": "MPNet-base", "MiniLM": "MiniLM"}
tables = {name: xr.load_dataset(folder / f"{file}.nc") for name, file in names.items()}

ax = anisoscope.plot.by_layer(tables, "anisotropy")
ax.set(ylim=(0, 1), title="One direction takes over inside decoders, not inside encoders")
