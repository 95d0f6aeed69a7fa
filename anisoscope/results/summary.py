"""Reduce samples to means, intervals, averages and excesses over null models; seeds likewise."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.measurement.families.registry import null_models_for, quantities
from anisoscope.measurement.intervals import LEVEL, clip, estimate
from anisoscope.measurement.panel import MEASURED
from anisoscope.measurement.quantity import Quantity
from anisoscope.results.derived import (
    EMBEDDING,
    NULL,
    NULL_WORDS,
    about_excess,
    averages,
    excess_name,
)
from anisoscope.results.replicates_table import UNTRAINED, about, clouds_of

STATISTICS = ("mean", "std", "low", "high")
ACROSS_SEEDS = ("mean", "low", "high", "predicted")  # of experiments repeated over seeds
WORDS = {
    NULL: NULL_WORDS,
    "statistic": f"mean over batches, standard deviation between them, ends of the {LEVEL:.0%} interval of the mean",
}


def summarize(
    schema: Mapping[str, Quantity], samples: xr.Dataset, null: xr.Dataset | None = None
) -> xr.Dataset:
    """Reduce batches and their resamples to a dimension `statistic`: mean, std, low, high.

    Args:
        schema: The quantities by name; quantities missing from `samples` are skipped.
        samples: Variables over `batch`, other dimensions, and the replicates of the quantity
            (dimension `jackknife` and so on): first the value on the whole batch, then a value
            for each resample. Without `batch` there is a single batch.
        null: A null model's values in the same form; the summary is then of the excess over it.

    Returns:
        Variables (statistic, …) with the attributes of `samples`. Intervals of values are clipped
        to the range of the quantity.
    """
    variables = {}
    for name in (name for name in schema if name in samples):
        values, model = samples.variables[name], None if null is None else null.variables[name]
        dims = [dim for dim in values.dims if dim not in ("batch", schema[name].resampling)]
        moments = summarize_values(schema[name], values, model)
        variables[name] = ("statistic", *dims), moments, values.attrs
    whole = xr.Dataset(variables, {"statistic": list(STATISTICS)}, samples.attrs)
    return whole.assign_coords(_coordinates(samples, whole))


def summarize_with_null(
    schema: Mapping[str, Quantity], samples: xr.Dataset, null: xr.Dataset, null_name: str
) -> xr.Dataset:
    """Summarize values as `summarize`, and the excess over one null model beside each."""
    values, excess = summarize(schema, samples), summarize(schema, samples, null)
    for name, value in excess.data_vars.items():
        about = about_excess(name, values[name].attrs)
        values[excess_name(name)] = value.expand_dims({NULL: [null_name]}).assign_attrs(about)
    return values


def summarize_values(
    quantity: Quantity,
    samples: xr.Variable,
    null: xr.Variable | None = None,
    average: Callable[[np.ndarray], np.ndarray] = np.asarray,
) -> np.ndarray:
    """Reduce a single variable to an array (statistic, …); arguments as for `summarize`.

    `average` is applied to the array (batch, replicate, …) before the reduction.
    """
    own, model = (None if x is None else _batches_first(quantity, x) for x in (samples, null))
    moments = estimate(own, quantity.resampling, model, average)
    return np.stack(moments if null is not None else clip(moments, *quantity.range))


def _batches_first(quantity: Quantity, samples: xr.Variable) -> np.ndarray:
    first = ("batch", quantity.resampling or "whole")
    missing = [dim for dim in first if dim not in samples.dims]
    return samples.set_dims([*missing, *samples.dims]).transpose(*first, ...).values


def _coordinates(samples: xr.Dataset, whole: xr.Dataset) -> dict[str, xr.DataArray]:
    return {name: x for name, x in samples.coords.items() if {*x.dims} <= {*whole.dims}}


def summary(
    raw: xr.Dataset, untrained: xr.Dataset | None, nulls: tuple[str, ...]
) -> tuple[xr.Dataset, xr.Dataset]:
    """Make the contents of results.nc and batches.nc for a single checkpoint.

    Args:
        raw: Replicates of every cloud (results/replicates_table.py).
        untrained: The same for step 0; None if there is no such table.
        nulls: Null models in the order of the dimension `null`.

    Returns:
        A Dataset of quantities (step, statistic, positions, …) and excesses (step, null, statistic,
        positions, …), with averages over blocks and heads; NaN for null models that a quantity does
        not have. And a Dataset of the values by batch, (step, positions, batch, …).
    """
    moments, batches, layer_0 = {}, {}, raw.attrs.get("layer_0", EMBEDDING)
    for name in (name for name in quantities() if name in raw):
        quantity, words = quantities()[name], about(name)
        own = _cloud(raw, name, MEASURED)
        models = [_null_model(raw, untrained, name, null) for null in nulls]
        variables = {name: (quantity.dims, words, np.asarray)}
        for variable, average in averages(name, layer_0).items():
            averaged = {key: f"{words[key]}, {average.words}" for key in ("long_name", "formula")}
            variables[variable] = average.dims, words | averaged, average.take
        for variable, (dims, attributes, take) in variables.items():
            dims = ("statistic", "positions", *dims)
            value = summarize_values(quantity, own, None, take)
            moments[variable] = dims, value, attributes
            if {*nulls} & {*null_models_for(name)}:
                excess = [
                    np.full_like(value, np.nan)
                    if model is None
                    else summarize_values(quantity, own, model, take)
                    for model in models
                ]
                attributes = about_excess(variable, attributes)
                moments[excess_name(variable)] = (NULL, *dims), np.stack(excess), attributes
        values = own.isel({quantity.resampling: 0}) if quantity.resampling else own
        batches[name] = values.transpose("positions", "batch", ...)
        batches[name].attrs = words
    labels = {"statistic": STATISTICS}
    labels |= {NULL: nulls} if any(NULL in dims for dims, *_ in moments.values()) else {}
    labels = {name: (name, list(x), {"long_name": WORDS[name]}) for name, x in labels.items()}
    return _with_coordinates(moments, raw, labels), _with_coordinates(batches, raw, {})


def _null_model(
    raw: xr.Dataset, untrained: xr.Dataset | None, name: str, null: str
) -> xr.Variable | None:
    """Return the values of a null model; None if it lacks the quantity."""
    if null == UNTRAINED:
        known = untrained is not None and name in untrained and UNTRAINED in null_models_for(name)
        return _cloud(untrained, name, MEASURED) if known else None
    return _cloud(raw, name, null) if null in clouds_of(raw.variables[name]) else None


def _cloud(raw: xr.Dataset, name: str, cloud: str) -> xr.Variable:
    """Select a cloud by index, since selection by label is slow."""
    return raw.variables[name].isel(cloud=raw.indexes["cloud"].get_loc(cloud))


def _with_coordinates(variables: dict, raw: xr.Dataset, labels: dict) -> xr.Dataset:
    dataset = xr.Dataset(variables, labels, raw.attrs)
    return dataset.assign_coords(_coordinates(raw, dataset)).expand_dims("step")


def seed_attributes(quantity: Quantity) -> dict[str, str]:
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
        about = seed_attributes(quantity) | {"interval": words} | closed.attrs
        variables[name] = values.dims, np.stack([*values.values, closed.values]), about
    coordinates = {name: value for name, value in seeds.coords.items() if name != "seed"}
    whole = xr.Dataset(variables, coords=coordinates | {"statistic": list(ACROSS_SEEDS)})
    return whole.assign_attrs(seeds.attrs, seeds=seeds.sizes["seed"])


def tidy_seeds(
    whole: xr.Dataset, quantities: Mapping[str, Quantity], order: Sequence[str]
) -> pd.DataFrame:
    """Flatten a seed table to a row for each number, with the columns of `order` first.

    Further columns are metric, mean, low, high, predicted, seeds and units.
    """
    parts = []
    for name in quantities:
        columns = {end: whole[name].sel(statistic=end, drop=True) for end in ACROSS_SEEDS}
        shared = [other for other in order if other in whole.data_vars]
        columns |= {
            other: whole[other] for other in shared if {*whole[other].dims} <= {*whole[name].dims}
        }
        frame = xr.Dataset(columns).to_dataframe().reset_index()
        units = whole[name].attrs["units"]
        parts.append(frame.assign(metric=name, seeds=whole.attrs["seeds"], units=units))
    columns = [*order, "metric", *ACROSS_SEEDS, "seeds", "units"]
    return pd.concat(parts, ignore_index=True).reindex(columns=columns)
