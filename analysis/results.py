"""Labelled tables: one NetCDF file per checkpoint, joined into results.nc and a tidy results.csv."""

import io
import os
import pathlib
import warnings

import numpy as np
import pandas as pd
import xarray as xr

from analysis.probe import POSITION_SETS
from analysis.quantities import QUANTITIES
from errors import RunError

Arrays = dict[str, np.ndarray]


def table(arrays: Arrays, step: int, attributes: dict) -> xr.Dataset:
    """The Dataset of one checkpoint: per-batch values, and over batches `_mean` and `_std` (ddof = 1; NaN for one)."""
    variables = {}
    for name, values in arrays.items():
        quantity = QUANTITIES[name]
        dims = ("positions", "batch", *quantity.dims)
        about = {"long_name": quantity.long_name, "units": quantity.units}
        about |= {"formula": quantity.formula, "source": quantity.source, "family": quantity.family}
        values = np.asarray(values)
        variables[name] = (dims, values, about)
        rest = (dims[0], *dims[2:])
        batches = values.shape[1]
        mean = values.mean(1, dtype=np.float64)
        std = values.std(1, ddof=1, dtype=np.float64) if batches > 1 else np.full_like(mean, np.nan)
        for suffix, words, data in (("mean", "mean", mean), ("std", "standard deviation", std)):
            long_name = f"{quantity.long_name}, {words} over {batches} batches"
            variables[f"{name}_{suffix}"] = (rest, data, about | {"long_name": long_name})
    dataset = xr.Dataset(variables, attrs=attributes).expand_dims(step=[step])
    dataset = dataset.assign_coords(positions=list(POSITION_SETS), batch=np.arange(dataset.sizes["batch"]))
    if "layer" in dataset.sizes:
        layers = np.arange(dataset.sizes["layer"])
        dataset = dataset.assign_coords(layer=layers, depth=("layer", layers / max(layers[-1], 1)))
    if "block" in dataset.sizes:
        dataset = dataset.assign_coords(
            block=np.arange(1, dataset.sizes["block"] + 1), head=np.arange(dataset.sizes["head"])
        )
    return dataset


def write(dataset: xr.Dataset, path: pathlib.Path) -> None:
    """Write NetCDF, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    dataset.to_netcdf(temporary, engine="scipy", format="NETCDF3_64BIT")
    os.replace(temporary, path)


def read(path: pathlib.Path) -> xr.Dataset:
    content = io.BytesIO(path.read_bytes())  # scipy leaves a damaged file open and mapped
    try:
        with warnings.catch_warnings(action="ignore"), xr.open_dataset(content, engine="scipy") as dataset:
            return dataset.load()
    except (TypeError, ValueError, IndexError, KeyError) as error:
        reason = str(error).splitlines()[0]
        raise RunError(f"table {path} is damaged ({reason}); move it away and run --stages=measure again") from error


def tidy(dataset: xr.Dataset) -> pd.DataFrame:
    """One row per number: run, corpus, step, positions, metric, layer (or block), head, mean and std over batches."""
    parts = []
    for name in (n for n in dataset.data_vars if n in QUANTITIES):
        frame = dataset[[f"{name}_mean", f"{name}_std"]].to_dataframe().reset_index()
        frame = frame.rename(columns={f"{name}_mean": "mean", f"{name}_std": "std", "block": "layer"})
        parts.append(frame.assign(metric=name, units=dataset[name].attrs["units"], batches=dataset.sizes["batch"]))
    columns = ["step", "positions", "metric", "layer", "head", "mean", "std", "batches", "units"]
    frame = pd.concat(parts, ignore_index=True)
    if "head" not in frame:
        frame["head"] = np.nan
    frame = frame[columns].astype({"head": "Int64"})
    frame.insert(0, "run", dataset.attrs["run"])
    frame.insert(1, "corpus", dataset.attrs["corpus"])
    return frame
