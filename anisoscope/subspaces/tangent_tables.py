"""The tables of the stage: one of each checkpoint with every resample, tangents.nc of all, and the
primary cells.
"""

import json
import pathlib
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.data.unigrams import BINS
from anisoscope.measurement.families import registry as families
from anisoscope.measurement.intervals import clip, estimate, variance
from anisoscope.measurement.quantity import Quantity
from anisoscope.results import joined_files
from anisoscope.results.holm import holm
from anisoscope.subspaces.proxies import KINDS, Fitted, Frames
from anisoscope.subspaces.subspace_energy import ROWS
from anisoscope.subspaces.tangent_quantities import DERIVED, GRADIENT, MEASURED, about
from anisoscope.subspaces.tested_proxies import FITS, Tested
from anisoscope.subspaces.weight_gradients import MATRICES, OF

STATISTICS = ("mean", "low", "high")


def of_checkpoint(
    tested: Tested,
    tangents: TangentsConfig,
    step: int,
    attributes: dict,
    fits: tuple[str, ...] = FITS,
) -> xr.Dataset:
    """With the proxies fitted here, which the next checkpoint is tested against. NaN of fits that
    there cannot be.
    """
    variables: dict[str, Any] = {}
    for name, value in tested.values.items():
        quantity = MEASURED[name]
        if "fit" in quantity.dims:  # one axis of frames there
            at = quantity.dims.index("fit")
            value = value.reshape(*value.shape[:at], len(fits), len(KINDS), *value.shape[at + 1 :])
        dims = (*quantity.dims, *([quantity.resampling] if quantity.resampling else []))
        variables[name] = dims, np.asarray(value), about(quantity)
    for name in next(iter(tested.panel.values()), {}):
        quantity = families.quantities()[name]
        dims = ("rows", *quantity.dims, *([quantity.resampling] if quantity.resampling else []))
        stacked = np.stack([tested.panel[rows][name] for rows in ROWS])
        units = quantity.units.replace("activation", "nats / activation (rows=unit: 1)")
        words = about(quantity) | {
            "long_name": f"{quantity.long_name}, of gradients",
            "units": units,
        }
        variables[GRADIENT + name] = dims, stacked, words
    table = xr.Dataset(variables, attrs=attributes)
    table = _labelled(table, tangents, fits).reindex(fit=list(FITS)).assign_coords(step=step)
    return table.assign(of_proxies(tested.fitted).data_vars)


def of_proxies(fitted: Fitted) -> xr.Dataset:
    words = {
        "residual": "|A - Z C|^2 / |A|^2 of the best restart of semi-NMF",
        "progress": "share of the residual that its last 10 rounds took off",
        "spread": "of the residual over the restarts, largest less least",
    }
    variables = {
        f"semi_nmf_{name}": (
            ("rank", "layer"),
            np.asarray(getattr(fitted, name)),
            {"long_name": said, "units": "1"},
        )
        for name, said in words.items()
    }
    for rank, frames in fitted.frames.items():
        variables[f"proxy_{rank}"] = (
            ("kind", "layer", "width", f"column_{rank}"),
            np.asarray(frames),
        )
    return xr.Dataset(variables)


def frames(table: xr.Dataset, tangents: TangentsConfig) -> Frames:
    return {rank: table[f"proxy_{rank}"].values for rank in tangents.ranks}


def _labelled(table: xr.Dataset, tangents: TangentsConfig, fits: tuple[str, ...]) -> xr.Dataset:
    labels = {
        "rank": list(tangents.ranks),
        "fit": list(fits),
        "kind": list(KINDS),
        "rows": list(ROWS),
    }
    labels |= {
        "bin": list(BINS),
        "matrix": list(MATRICES),
        "of": list(OF),
        "layer": np.arange(table.sizes["layer"]),
    }
    labels |= {name: list(values) for name, values in families.coordinates().items()}
    return table.assign_coords(
        {name: values for name, values in labels.items() if name in table.dims}
    )


def write(
    run: pathlib.Path, raw: dict[int, xr.Dataset], attributes: dict, primary: pd.DataFrame
) -> None:
    """tangents.nc, and tangents_primary.csv."""
    joined = xr.concat(
        [summary(table) for table in raw.values()],
        "step",
        data_vars="all",
        combine_attrs="override",
    )
    joined.attrs = attributes
    joined_files.write(joined, run / "tangents.nc")
    joined_files.write_csv(primary, run / "tangents_primary.csv")


def summary(table: xr.Dataset) -> xr.Dataset:
    """Mean and 95 % interval of what is resampled; of control frames the mean, the least and the
    greatest.
    """
    variables = {}
    for name, array in _with_derived(table).items():
        if name.startswith("proxy_"):
            continue
        quantity = _quantity(name)
        replicates = quantity.resampling if quantity else ""
        if replicates in array.dims:
            values = np.moveaxis(array.values, array.dims.index(replicates), 0)[None]
            one = clip(estimate(values, replicates), *quantity.range)
            stacked = np.stack([one.mean, one.low, one.high])
            dims = tuple(dim for dim in array.dims if dim != replicates)
            variables[name] = ("statistic", *dims), stacked, array.attrs
        elif "control" in array.dims:
            ends = [getattr(array, how)("control").values for how in ("mean", "min", "max")]
            dims = tuple(dim for dim in array.dims if dim != "control")
            variables[name] = ("statistic", *dims), np.stack(ends), array.attrs
        else:
            variables[name] = array.variable
    dataset = xr.Dataset(variables, {"statistic": list(STATISTICS)})
    here = {name: one for name, one in table.coords.items() if {*one.dims} <= {*dataset.dims}}
    return dataset.assign_coords(here).expand_dims("step").drop_vars("control", errors="ignore")


def _quantity(name: str) -> Quantity | None:
    if name in DERIVED:
        return DERIVED[name][0]
    return (
        families.quantities().get(name.removeprefix(GRADIENT))
        if name.startswith(GRADIENT)
        else MEASURED.get(name)
    )


def _with_derived(table: xr.Dataset) -> dict[str, xr.DataArray]:
    arrays = {str(name): array for name, array in table.data_vars.items()}
    for name, (quantity, read) in DERIVED.items():
        value = read(table.__getitem__)
        dims = (*quantity.dims, quantity.resampling)
        arrays[name] = value.transpose(*dims).assign_attrs(about(quantity))
    return arrays


def primary_cells(
    raw: dict[int, xr.Dataset], cells: list[tuple[int, int, int]], name: str, fit: str = "early"
) -> pd.DataFrame:
    """e − v of the semi-NMF proxy of this fit in the prespecified cells, with p of e = v and Holm's
    of all cells.

    Cells are (layer, step, rank). p is Student's, two-sided, with the folds less one as degrees of
    freedom.
    """
    rows = []
    for layer, step, rank in cells:
        if step not in raw:
            continue
        table = raw[step].sel(layer=layer, rank=rank, fit=fit, kind=KINDS[0], rows="raw")
        excess = (table["energy"] - table["variance"]).values.astype(np.float64)
        one, folds = estimate(excess[None], "jackknife"), len(excess) - 1
        t = one.mean / np.sqrt(variance(excess[None, 1:], "jackknife")[0])
        p = 2 * stats.t.sf(abs(t), folds - 1)
        values = {"energy": table["energy"].values[0], "variance": table["variance"].values[0]}
        values |= {
            "excess": one.mean,
            "low": one.low,
            "high": one.high,
            "p": p,
            "control_p": float(table["control_p"]),
        }
        rows.append({"run": name, "step": step, "layer": layer, "rank": rank, "fit": fit} | values)
    columns = (
        "run",
        "step",
        "layer",
        "rank",
        "fit",
        "energy",
        "variance",
        "excess",
        "low",
        "high",
        "p",
        "control_p",
    )
    frame = pd.DataFrame(rows, columns=list(columns))
    return frame.assign(p_holm=holm(frame["p"]))


def sampled(tangents: TangentsConfig) -> dict[str, Any]:
    """What tables say of the positions that are read."""
    return {
        "points": tangents.points,
        "sample": f"{tangents.points:,} scored positions of {tangents.windows:,} windows",
        "windows": f"{tangents.windows} to test on, {tangents.windows} others to fit to",
        "folds": tangents.folds,
        "controls": tangents.controls,
    }


def made_by(tangents: TangentsConfig, corpus_sha256: str) -> str:
    """What tables must have in common to be joined."""
    settings = {
        f"tangents.{name}": getattr(tangents, name)
        for name in tangents.__slots__
        if name != "enabled"
    }
    return json.dumps(settings | {"corpus_sha256": corpus_sha256})
