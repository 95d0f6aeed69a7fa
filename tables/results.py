"""Labelled tables: a NetCDF file of raw values per checkpoint, joined into results.nc and a tidy results.csv.

A file holds the sha256 of all its bytes, checked at each read: most flipped bits would else be read as other numbers.
"""

import hashlib
import io
import pathlib
import re
import warnings

import numpy as np
import pandas as pd
import xarray as xr

from panel.quantities import COORDINATES, QUANTITIES
from sources.probe import POSITION_SETS
from tables.summary import about_quantity
from workdir import files
from workdir.errors import RunError

Arrays = dict[str, np.ndarray]

UNKNOWN = b"0" * 64  # in the digest's place while it is taken
DIGEST = re.compile(rb"table_sha256.{8}(.{64})", re.DOTALL)  # NetCDF: name, type, length, text


def table(arrays: Arrays, step: int, attributes: dict) -> xr.Dataset:
    """The raw values of one checkpoint: every replicate of every batch, those of null models under _gaussian …"""
    variables = {}
    for name, values in arrays.items():
        base, null = name, ""
        if name not in QUANTITIES:
            base, _, null = name.rpartition("_")
        quantity = QUANTITIES[base]
        array = xr.DataArray(
            np.asarray(values), dims=quantity.raw_dims, attrs=about_quantity(quantity, null and f", {null}")
        )
        variables[name] = array.transpose("positions", "batch", ...)
    dataset = xr.Dataset(variables, attrs=attributes)
    coordinates = {"step": step, "positions": list(POSITION_SETS), "batch": np.arange(dataset.sizes["batch"])}
    coordinates |= {name: list(values) for name, values in COORDINATES.items()}
    if "layer" in dataset.sizes:
        layers = coordinates["layer"] = coordinates["other_layer"] = np.arange(dataset.sizes["layer"])
        coordinates["depth"] = "layer", layers / max(layers[-1], 1)
    if "block" in dataset.sizes:
        coordinates |= {"block": np.arange(1, dataset.sizes["block"] + 1), "head": np.arange(dataset.sizes["head"])}
    present = ("step", "depth", *dataset.sizes)
    return dataset.assign_coords({name: values for name, values in coordinates.items() if name in present})


def write(dataset: xr.Dataset, path: pathlib.Path) -> None:
    """Write NetCDF with its digest as first attribute, all or nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    labelled = dataset.copy()
    labelled.attrs = {"table_sha256": UNKNOWN.decode()} | dataset.attrs
    content = bytes(labelled.to_netcdf(engine="scipy", format="NETCDF3_64BIT"))
    files.write(path, content.replace(UNKNOWN, hashlib.sha256(content).hexdigest().encode(), 1))


def write_csv(frame: pd.DataFrame, path: pathlib.Path) -> None:
    """Write CSV, all or nothing."""
    files.write(path, frame.to_csv(index=False))


def read(path: pathlib.Path) -> xr.Dataset:
    """The Dataset that was written; RunError where it is damaged. A table of old, without digest, is not checked."""
    content = path.read_bytes()
    if found := DIGEST.search(content):
        blank = content[: found.start(1)] + UNKNOWN + content[found.end(1) :]
        if hashlib.sha256(blank).hexdigest().encode() != found[1]:
            raise _damaged(path, "its content has changed since it was written")
    try:  # from memory: scipy leaves a damaged file open and mapped
        with warnings.catch_warnings(action="ignore"), xr.open_dataset(io.BytesIO(content), engine="scipy") as dataset:
            table = dataset.load()
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise _damaged(path, (str(error).splitlines() or [repr(error)])[0]) from error
    table.attrs.pop("table_sha256", None)
    return table


def _damaged(path: pathlib.Path, why: str) -> RunError:
    return RunError(f"table {path} is damaged ({why}); move it away and run --stages=measure again")


def tidy(dataset: xr.Dataset) -> pd.DataFrame:
    """One row per number: run, corpus, step, positions, metric, layer (or block), head, further dimension, statistics.

    `axis` and `at` name a further dimension and the place on it: neighbours 8, top 3, other_layer 2. Statistics:
    mean, std, low, high over batches, and excess_<null>, excess_<null>_low, excess_<null>_high.
    """
    parts = []
    for name in (name for name in dataset.data_vars if name in QUANTITIES):
        quantity = QUANTITIES[name]
        columns = {suffix: dataset[f"{name}_{suffix}"] for suffix in ("mean", "std", "low", "high")}
        if f"{name}_excess" in dataset:
            for null in dataset["null"].values:
                for end in ("", "_low", "_high"):
                    columns[f"excess_{null}{end}"] = dataset[f"{name}_excess{end}"].sel(null=null, drop=True)
        frame = xr.Dataset(columns).to_dataframe().reset_index().rename(columns={"block": "layer"})
        for further in quantity.dims[1:]:
            if further != "head":
                frame = frame.rename(columns={further: "at"}).assign(axis=further)
        parts.append(frame.assign(metric=name, units=quantity.units, batches=dataset.sizes["batch"]))
    frame = pd.concat(parts, ignore_index=True)
    for column in ("head", "axis", "at"):
        frame[column] = frame.get(column, np.nan)
    first = ["step", "positions", "metric", "layer", "head", "axis", "at", "mean", "std", "low", "high"]
    excess = [column for column in frame if column.startswith("excess_")]
    frame = frame[[*first, *excess, "batches", "units"]].astype({"head": "Int64"})
    frame.insert(0, "run", dataset.attrs["run"])
    frame.insert(1, "corpus", dataset.attrs["corpus"])
    return frame
