"""Reduce samples to means, intervals, averages and excesses over null models; seeds likewise."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.measurement.families.registry import null_models_for, quantities
from anisoscope.measurement.intervals import LEVEL, clip, estimate
from anisoscope.measurement.quantity import MEASURED, Quantity
from anisoscope.results.derived import (
    EMBEDDING,
    NULL,
    NULL_WORDS,
    Average,
    about_excess,
    averages,
    excess_name,
)
from anisoscope.results.replicates_table import UNTRAINED, quantity_attributes

STATISTICS = ("mean", "std", "low", "high")
ACROSS_SEEDS = ("mean", "low", "high", "predicted")  # of experiments repeated over seeds
ATTRIBUTE_WORDS = {
    NULL: NULL_WORDS,
    "statistic": f"mean over batches, standard deviation between them, ends of the {LEVEL:.0%} interval of the mean",
}


def summarize(
    schema: Mapping[str, Quantity],
    samples: xr.Dataset,
    nulls: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    averages: Callable[[str], dict[str, Average]] = lambda name: {},
) -> xr.Dataset:
    """Reduce batches and their resamples to a dimension `statistic`: mean, std, low, high.

    Args:
        schema: The quantities by name; quantities missing from `samples` are skipped.
        samples: Variables over `batch`, other dimensions, and the replicates of the quantity
            (dimension `jackknife` and so on): first the value on the whole batch, then a value
            for each resample. Without `batch` there is a single batch.
        nulls: By null model, values in the same form: a quantity that any of them has gets an
            excess over each, NaN over the others.
        averages: Averages of a quantity by name, to summarize with it.

    Returns:
        Variables (statistic, …) with the attributes of `samples`, and `<name>_excess` (null,
        statistic, …). Intervals of values are clipped to the range of the quantity.
    """
    variables, labels = {}, {"statistic": STATISTICS}
    for name, quantity in ((name, schema[name]) for name in schema if name in samples):
        own = samples.variables[name]
        models = [null[name].variable if name in null else None for null in nulls.values()]
        rest = tuple(dim for dim in own.dims if dim not in ("batch", quantity.resampling))
        entries = {name: (rest, own.attrs, np.asarray)}
        for variable, average in averages(name).items():
            words = {key: f"{own.attrs[key]}, {average.words}" for key in ("long_name", "formula")}
            entries[variable] = ("positions", *average.dims), own.attrs | words, average.take
        for variable, (rest, attributes, take) in entries.items():
            dims, value = ("statistic", *rest), summarize_values(quantity, own, None, take)
            variables[variable] = dims, value, attributes
            if any(model is not None for model in models):
                excess = [
                    np.full_like(value, np.nan)
                    if model is None
                    else summarize_values(quantity, own, model, take)
                    for model in models
                ]
                attributes = about_excess(variable, attributes)
                variables[excess_name(variable)] = (NULL, *dims), np.stack(excess), attributes
                labels[NULL] = nulls
    labels = {
        name: (name, list(x), {"long_name": ATTRIBUTE_WORDS[name]}) for name, x in labels.items()
    }
    whole = xr.Dataset(variables, labels, samples.attrs)
    coords = {name: x for name, x in samples.coords.items() if {*x.dims} <= {*whole.dims}}
    return whole.assign_coords(coords)


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


def summarize_checkpoint(
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
    schema = {name: quantity for name, quantity in quantities().items() if name in raw}
    own, models = _cloud(raw, MEASURED)[[*schema]], {}
    for name in schema:
        own[name].attrs = quantity_attributes(name)
    for null in nulls:
        known = own[[name for name in schema if null in null_models_for(name)]]
        measured = xr.Dataset()
        if null == UNTRAINED and untrained is not None:
            measured = _cloud(untrained, MEASURED)
        elif null in raw.indexes["cloud"]:
            measured = _cloud(raw, null)
        lacking = xr.full_like(known, np.nan, dtype=np.float32)
        models[null] = lacking.assign({name: measured[name] for name in known if name in measured})
    layer_0 = raw.attrs.get("layer_0", EMBEDDING)
    results = summarize(schema, own, models, lambda name: averages(name, layer_0))
    whole = {
        name: x.isel({schema[name].resampling: 0}, missing_dims="ignore") for name, x in own.items()
    }
    batches = own.assign(whole).transpose("positions", "batch", ...)
    return results.expand_dims("step"), batches.expand_dims("step")


def _cloud(raw: xr.Dataset, cloud: str) -> xr.Dataset:
    """Select a cloud by index, since selection by label is slow."""
    return raw.isel(cloud=raw.indexes["cloud"].get_loc(cloud), drop=True)


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
    percent = f"{LEVEL:.0%}".replace("%", " %")
    words = f"Student's t interval of {percent} over {seeds.sizes['seed']} seeds"
    whole = summarize(quantities, seeds.rename(seed="batch"))
    whole = whole.reindex(statistic=list(ACROSS_SEEDS))
    whole["statistic"].attrs = {}
    for name, quantity in quantities.items():
        whole[name].attrs = seed_attributes(quantity) | {"interval": words}
        if name in predicted:
            whole[name].loc[{"statistic": "predicted"}] = predicted[name]
            whole[name].attrs |= predicted[name].attrs
    return whole.assign_attrs(seeds=seeds.sizes["seed"])


def tidy_seeds(
    whole: xr.Dataset, quantities: Mapping[str, Quantity], order: Sequence[str]
) -> pd.DataFrame:
    """Flatten a seed table to a row for each number, with the columns of `order` first.

    Further columns are metric, mean, low, high, predicted, seeds and units.
    """
    parts = []
    for name in quantities:
        frame = whole[name].to_dataset("statistic").to_dataframe().reset_index()
        units = whole[name].attrs["units"]
        parts.append(frame.assign(metric=name, seeds=whole.attrs["seeds"], units=units))
    columns = [*order, "metric", *ACROSS_SEEDS, "seeds", "units"]
    return pd.concat(parts, ignore_index=True).reindex(columns=columns)
