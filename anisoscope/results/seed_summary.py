"""Tables of experiments repeated over seeds: mean, interval, and closed form."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.measurement.intervals import LEVEL
from anisoscope.measurement.quantity import Quantity
from anisoscope.results.summary import summarize

STATISTICS = ("mean", "low", "high", "predicted")


def attributes(quantity: Quantity) -> dict[str, str]:
    """Return the attributes of a quantity whose sample is the seeds."""
    return quantity.attributes | {"resampling": "seeds"}


def summarize_seeds(
    quantities: Mapping[str, Quantity], seeds: xr.Dataset, predicted: Mapping[str, xr.DataArray]
) -> xr.Dataset:
    """Reduce the dimension `seed` of every quantity to a dimension `statistic`.

    Args:
        quantities: The registered quantities, by name; `seeds` has a variable for each.
        seeds: The values of every seed.
        predicted: Closed forms, with the dimensions of a value without `seed`; NaN if unknown.

    Returns:
        Variables (statistic, …): mean over seeds, ends of Student's 95 % interval, closed form.
    """
    words = f"Student's t interval of {LEVEL:.0%} over {seeds.sizes['seed']} seeds".replace(
        "%", " %"
    )
    whole = summarize(quantities, seeds.rename(seed="batch")).drop_sel(statistic="std")
    variables = {}
    for name, quantity in quantities.items():
        values = whole[name]
        example = values.isel(statistic=0, drop=True)
        closed = predicted.get(name, xr.full_like(example, np.nan)).transpose(*example.dims)
        about = attributes(quantity) | {"interval": words} | closed.attrs
        variables[name] = values.dims, np.stack([*values.values, closed.values]), about
    coordinates = {name: value for name, value in seeds.coords.items() if name != "seed"}
    whole = xr.Dataset(variables, coords=coordinates | {"statistic": list(STATISTICS)})
    return whole.assign_attrs(seeds.attrs, seeds=seeds.sizes["seed"])


def tidy(
    whole: xr.Dataset, quantities: Mapping[str, Quantity], order: Sequence[str]
) -> pd.DataFrame:
    """Flatten a seed table to a row for each number, with the columns of `order` first.

    Further columns are metric, mean, low, high, predicted, seeds and units.
    """
    parts = []
    for name in quantities:
        columns = {end: whole[name].sel(statistic=end, drop=True) for end in STATISTICS}
        shared = [other for other in order if other in whole.data_vars]
        columns |= {
            other: whole[other] for other in shared if {*whole[other].dims} <= {*whole[name].dims}
        }
        frame = xr.Dataset(columns).to_dataframe().reset_index()
        units = whole[name].attrs["units"]
        parts.append(frame.assign(metric=name, seeds=whole.attrs["seeds"], units=units))
    columns = [*order, "metric", *STATISTICS, "seeds", "units"]
    return pd.concat(parts, ignore_index=True).reindex(columns=columns)
