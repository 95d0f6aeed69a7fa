"""Make the tables of the stage `tangents`: one per checkpoint, tangents.nc, and the primary cells."""

from typing import Any

import numpy as np
import pandas as pd
import scipy  # loads scipy.stats at first use: it takes a second
import xarray as xr

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.engine.intervals import estimate, holm, variance
from anisoscope.metrics import registry
from anisoscope.metrics.quantity import Values
from anisoscope.results.summary import summarize
from anisoscope.subspaces.subspace_energy import Fitted, Frames, Tested
from anisoscope.subspaces.tangent_quantities import (
    DERIVED,
    FITS,
    GRADIENT_PREFIX,
    GRADIENT_ROWS,
    SUBSPACE_KINDS,
    TANGENT_COORDINATES,
    TANGENT_MEASURED,
)

TANGENT_STATISTICS = ["mean", "low", "high"]
PROXY_WORDS = {
    "residual": "|A - Z C|^2 / |A|^2 of the best restart of semi-NMF",
    "progress": "share of the residual that its last 10 rounds took off",
    "spread": "of the residual over the restarts, largest less least",
}
Cells = list[tuple[int, int, int]]  # (layer, step, rank)


def step_table(
    tested: Tested,
    panel: dict[str, Values],
    tangents: TangentsConfig,
    step: int,
    attributes: dict[str, Any],
    fits: tuple[str, ...],
) -> xr.Dataset:
    """Make the table of a checkpoint with its proxies; NaN for fits not in `fits`.

    `panel` are quantities of gradients as clouds.
    """
    variables = {}
    for name, value in tested.values.items():
        quantity = TANGENT_MEASURED[name]
        if "fit" in quantity.dims:  # one axis of frames
            at = quantity.dims.index("fit")
            value = value.reshape(
                *value.shape[:at], len(fits), len(SUBSPACE_KINDS), *value.shape[at + 1 :]
            )
        variables[name] = quantity.raw_dims[2:], value, quantity.attributes
    for name in next(iter(panel.values()), {}):
        quantity = registry.quantities()[name]
        words = quantity.attributes | {"long_name": f"{quantity.long_name}, of gradients"}
        words["units"] = words["units"].replace("activation", "nats / activation (rows=unit: 1)")
        values = np.stack([panel[rows][name] for rows in GRADIENT_ROWS])
        variables[GRADIENT_PREFIX + name] = ("rows", *quantity.raw_dims[2:]), values, words
    table = xr.Dataset(variables, attrs=attributes)
    labels = TANGENT_COORDINATES | registry.coordinates()
    labels |= {"fit": fits, "rank": tangents.ranks, "layer": range(table.sizes["layer"])}
    table = table.assign_coords(
        {name: list(values) for name, values in labels.items() if name in table.dims}
    )
    table = table.reindex(fit=list(FITS)).assign_coords(step=step)
    return table.assign(proxy_table(tested.fitted).data_vars)


def proxy_table(fitted: Fitted) -> xr.Dataset:
    """Make a table of the proxies of every rank, and of how well semi-NMF fits."""
    variables = {
        f"semi_nmf_{name}": (
            ("rank", "layer"),
            np.asarray(getattr(fitted, name)),
            {"long_name": words, "units": "1"},
        )
        for name, words in PROXY_WORDS.items()
    }
    for rank, frames in fitted.frames.items():
        dims = ("kind", "layer", "width", f"column_{rank}")
        variables[f"proxy_{rank}"] = dims, np.asarray(frames)
    return xr.Dataset(variables)


def frames(table: xr.Dataset, tangents: TangentsConfig) -> Frames:
    """Return the proxies that a table holds."""
    return {rank: table[f"proxy_{rank}"].values for rank in tangents.ranks}


def summarize_tangents(table: xr.Dataset) -> xr.Dataset:
    """Reduce resamples to mean and 95 % interval, control frames to mean, smallest and largest."""
    table = table.drop_vars([name for name in table if str(name).startswith("proxy_")])
    schema = TANGENT_MEASURED | DERIVED
    schema |= {GRADIENT_PREFIX + name: quantity for name, quantity in registry.quantities().items()}
    complete = table.assign(derive(table))
    resampled = [
        name
        for name in complete
        if name in schema and schema[name].resampling in complete[name].dims
    ]
    controls = [name for name in complete if "control" in complete[name].dims]
    rest, values = complete.drop_vars([*resampled, *controls]), complete[controls]
    ends = [getattr(values, end)("control", keep_attrs=True) for end in ("mean", "min", "max")]
    means = summarize(schema, complete[resampled]).sel(statistic=TANGENT_STATISTICS)
    parts = xr.concat(ends, pd.Index(TANGENT_STATISTICS, name="statistic")), rest
    variables = {name: part[name].variable for part in parts for name in part.data_vars}
    summarized = means.assign(variables)
    labels = {name: x for name, x in table.coords.items() if {*x.dims} <= {*summarized.dims}}
    return summarized.assign_coords(labels).expand_dims("step").drop_attrs(deep=False)


def derive(table: xr.Dataset) -> dict[str, xr.DataArray]:
    """Compute derived quantities, resample by resample."""
    excess = table["energy"] - table["variance"]
    early = excess.sel(fit="early", drop=True)
    values = {
        "excess": excess,
        "excess_over_untrained": early - excess.sel(fit="untrained", drop=True),
        "excess_over_other_seed": early - excess.sel(fit="other seed", drop=True),
        "local_excess": table["local_energy"] - table["local_variance"],
        "enrichment_in_bin": table["energy_in_bin"] / table["variance_in_bin"],
    }
    return {
        name: values[name]
        .transpose(*quantity.dims, quantity.resampling)
        .assign_attrs(quantity.attributes)
        for name, quantity in DERIVED.items()
    }


def primary_cells(tables: dict[int, xr.Dataset], cells: Cells, name: str, fit: str) -> pd.DataFrame:
    """Test e = v of the semi-NMF proxy of this fit in the prespecified cells.

    p is Student's, two-sided, with the number of folds minus 1 as degrees of freedom; Holm's
    correction covers all cells.
    """
    rows = []
    for layer, step, rank in cells:
        if step not in tables:
            continue
        table = tables[step].sel(
            layer=layer, rank=rank, fit=fit, kind=SUBSPACE_KINDS[0], rows="raw"
        )
        energy, share = table["energy"].values, table["variance"].values
        excess = (energy - share).astype(np.float64)
        moments, folds = estimate(excess[None], "jackknife"), len(excess) - 1
        t = moments.mean / np.sqrt(variance(excess[None, 1:], "jackknife")[0])
        place = (name, step, layer, rank, fit, energy[0], share[0])
        p = 2 * scipy.stats.t.sf(abs(t), folds - 1)
        rows.append((*place, moments.mean, moments.low, moments.high, p, float(table["control_p"])))
    columns = [
        *("run", "step", "layer", "rank", "fit", "energy", "variance"),
        *("excess", "low", "high", "p", "control_p"),
    ]
    frame = pd.DataFrame(rows, columns=columns)
    return frame.assign(p_holm=holm(frame["p"]))


def sample_attributes(tangents: TangentsConfig) -> dict[str, Any]:
    """Describe the positions that are read, for tables."""
    return {
        "points": tangents.points,
        "sample": f"{tangents.points:,} scored positions of {tangents.windows:,} windows",
        "windows": f"{tangents.windows} to test on, {tangents.windows} others to fit to",
        "positions": "scored ones: those that the loss counts",
        "folds": tangents.folds,
        "controls": tangents.controls,
    }


def made_by(tangents: TangentsConfig, corpus_sha256: str, **more: str) -> dict[str, Any]:
    """Return the settings that tables must share to be joined."""
    names = [name for name in tangents.__slots__ if name != "enabled"]
    settings = {f"tangents.{name}": getattr(tangents, name) for name in names}
    return settings | {"corpus_sha256": corpus_sha256} | more
