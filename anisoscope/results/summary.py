"""Reduce samples to means, intervals, averages and excesses over null models; seeds likewise."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.engine.intervals import LEVEL, clip, estimate
from anisoscope.engine.null_models import DRAWS
from anisoscope.metrics.quantity import HEAD, LAYERS, MEASURED, Quantity
from anisoscope.metrics.registry import null_models_for, quantities
from anisoscope.results.replicates_table import UNTRAINED, quantity_attributes

STATISTICS = ("mean", "std", "low", "high")
ACROSS_SEEDS = ("mean", "low", "high", "predicted")  # of experiments repeated over seeds
NULL = "null"  # the dimension over null models
EMBEDDING = "embedding"  # meaning of layer 0, unless a table says otherwise
FIRST_BLOCK = "block 1"  # meaning of layer 0 at hook points of blocks
OWN = "the first of the user's layers"  # in a training loop of one's own
CHOSEN = "one of the layers that were chosen"  # of a pretrained model
ATTRIBUTE_WORDS = {
    NULL: "null model, whose value is subtracted for each batch and replicate; for gaussian the "
    f"mean over {DRAWS} draws",
    "statistic": f"mean over batches, standard deviation between them, ends of the {LEVEL:.0%} interval of the mean",
}


class Reduction(NamedTuple):
    """A quantity as a variable of the table, or its average over blocks or heads.

    `take` averages arrays (batch, replicate, positions, *dims of the quantity); `dims` remain.
    """

    name: str
    dims: tuple[str, ...]
    take: Callable[[np.ndarray], np.ndarray] = np.asarray
    words: str = ""


def block_average(name: str) -> str:
    """Name the variable with a quantity's average over blocks, or over blocks and heads."""
    return f"{name}_over_blocks"


def over_heads(name: str) -> str:
    """Name the variable with a quantity's average over the heads of each block."""
    return f"{name}_over_heads"


def excess_name(name: str) -> str:
    """Name the variable with the excess of a quantity, or of its average, over null models."""
    return f"{name}_excess"


def averages(name: str, quantity: Quantity, layer_0: str = EMBEDDING) -> list[Reduction]:
    """List the averages of a quantity, without the embedding.

    If layer 0 is a layer of the user's, all layers are averaged. If it is none of these, it is
    unknown which layers are blocks, and there are no averages; nor of layers that were chosen. An
    average is NaN if any layer or head is not finite, since it would jump when that layer becomes
    finite.
    """

    def average(axis: int | tuple[int, ...], first: int = 0) -> Callable[[np.ndarray], np.ndarray]:
        return lambda x: np.where(np.isfinite(x), x, np.nan)[:, :, :, first:].mean(axis)

    dims = quantity.dims
    if dims == HEAD:
        by_block = average(4), "mean over the heads of a block"
        whole = average((3, 4)), "mean over blocks and heads"
        over_all = [Reduction(block_average(name), ("positions",), *whole)]
        heads = [Reduction(over_heads(name), ("positions", "block"), *by_block)]
        return heads + over_all * (layer_0 != CHOSEN)
    has_blocks, known = dims[0] == "block", layer_0 in (EMBEDDING, FIRST_BLOCK, OWN)
    if layer_0 == CHOSEN or (not has_blocks and (dims[:2] == LAYERS or not known)):
        return []
    first = int(not has_blocks and (layer_0 == EMBEDDING or quantity.from_layer_1))
    words = "mean over blocks" if has_blocks else "mean over blocks 1 to N"
    if layer_0 == OWN:
        words = f"mean over all layers{' but the first' * quantity.from_layer_1}"
    left = "positions", *dims[1:]
    return [Reduction(block_average(name), left, average(3, first), words)]


def summarize(
    schema: Mapping[str, Quantity],
    samples: xr.Dataset,
    nulls: Mapping[str, Mapping[str, xr.Variable | None]] = MappingProxyType({}),
    layer_0: str | None = None,
) -> xr.Dataset:
    """Reduce batches and their resamples to a dimension `statistic`: mean, std, low, high.

    Args:
        schema: The quantities by name; quantities missing from `samples` are skipped.
        samples: Variables over `batch`, other dimensions, and the replicates of the quantity
            (dimension `jackknife` and so on): first the value on the whole batch, then a value
            for each resample. Without `batch` there is a single batch.
        nulls: By null model, variables in the same form, or None for NaN: a quantity that any of
            them has gets an excess over each, NaN over the others.
        layer_0: What the first layer is, for averages over blocks and heads; None for no averages.

    Returns:
        Variables (statistic, …) with the attributes of `samples`, and `<name>_excess` (null,
        statistic, …). Intervals of values are clipped to the range of the quantity.
    """
    variables, labels = {}, {"statistic": STATISTICS}
    for name, quantity in ((name, schema[name]) for name in schema if name in samples):
        own = samples.variables[name]
        models = [null.get(name) for null in nulls.values()]
        rest = tuple(dim for dim in own.dims if dim not in ("batch", quantity.resampling))
        means = [] if layer_0 is None else averages(name, quantity, layer_0)
        for variable, dims, take, words in [Reduction(name, rest), *means]:
            value = summarize_values(quantity, own, None, take)
            named = ("long_name", "formula") if words else ()
            attributes = own.attrs | {key: f"{own.attrs[key]}, {words}" for key in named}
            variables[variable] = ("statistic", *dims), value, attributes
            if any(name in null for null in nulls.values()):
                excess = [
                    np.full_like(value, np.nan)
                    if model is None
                    else summarize_values(quantity, own, model, take)
                    for model in models
                ]
                attributes = _excess_attributes(variable, attributes)
                stacked = (NULL, "statistic", *dims), np.stack(excess), attributes
                variables[excess_name(variable)], labels[NULL] = stacked, nulls
    labels = {
        name: (name, list(x), {"long_name": ATTRIBUTE_WORDS[name]}) for name, x in labels.items()
    }
    whole = xr.Dataset(variables, labels, samples.attrs)
    coords = {name: x for name, x in samples.coords.items() if {*x.dims} <= {*whole.dims}}
    return whole.assign_coords(coords)


def _excess_attributes(name: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Derive the attributes of an excess from those of the value; an excess has no range."""
    formula = f"value minus that of the null model (gaussian: the mean over {DRAWS} draws)"
    kept = {key: attributes[key] for key in ("family", "resampling") if key in attributes}
    return {
        "long_name": f"{attributes.get('long_name', name)}, excess over a null model",
        "units": attributes.get("units", "1"),
        "formula": formula,
        "excess_of": name,
    } | kept


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
        measured: Mapping[str, xr.Variable] = {}
        if null == UNTRAINED and untrained is not None:
            measured = _cloud(untrained, MEASURED).variables
        elif null in raw.indexes["cloud"]:
            measured = _cloud(raw, null).variables
        known = [name for name in schema if null in null_models_for(name)]
        models[null] = {name: measured.get(name) for name in known}
    results = summarize(schema, own, models, raw.attrs.get("layer_0", EMBEDDING))
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
