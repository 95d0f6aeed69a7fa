"""From raw replicates to what a reader wants of a checkpoint: means, intervals, averages, excess
over null models.
"""

import numpy as np
import xarray as xr

from anisoscope.measurement.families.registry import nulls_of, quantities
from anisoscope.measurement.intervals import LEVEL, summarise, within
from anisoscope.measurement.panel import MEASURED
from anisoscope.results.averages import EMBEDDING, Average, averages
from anisoscope.results.excess import NULL, NULL_WORDS, about_excess, excess_name
from anisoscope.results.replicates_table import UNTRAINED, about, clouds_of

STATISTICS = ("mean", "std", "low", "high")
WORDS = {
    NULL: NULL_WORDS,
    "statistic": f"mean over batches, standard deviation between them, ends of the {LEVEL:.0%} interval of the mean",
}

Cloud = tuple[xr.Dataset, str]  # a raw table, and which of its clouds


def summary(
    raw: xr.Dataset, untrained: xr.Dataset | None, nulls: tuple[str, ...]
) -> tuple[xr.Dataset, xr.Dataset]:
    """What results.nc and batches.nc hold of one checkpoint.

    In the first a quantity is (step, statistic, positions, …), and its excess (step, null,
    statistic, positions, …) where one of the null models has it; in the second it is (step,
    positions, batch, …). The first also has its averages over blocks and heads. `untrained` is the
    raw table of step 0, if there is one. NaN where a null model has no such quantity: a Gaussian
    cloud has no attention.
    """
    moments, batches, layer_0 = {}, {}, raw.attrs.get("layer_0", EMBEDDING)
    for name in (name for name in quantities() if name in raw):
        dims, own = quantities()[name].dims, (raw, MEASURED)
        models = [_null_model(raw, untrained, name, null) for null in nulls]
        models = models if {*nulls} & {*nulls_of(name)} else []
        moments |= _value_and_excess(name, name, about(name), own, models)
        for variable, average in averages(name, layer_0).items():
            words = {
                key: f"{about(name)[key]}, {average.words}" for key in ("long_name", "formula")
            }
            moments |= _value_and_excess(variable, name, about(name) | words, own, models, average)
        batches[name] = (
            ("positions", "batch", *dims),
            _values(own, name)[:, 0].swapaxes(0, 1),
            about(name),
        )
    labels = {"statistic": list(STATISTICS)}
    labels |= {NULL: list(nulls)} if any(NULL in dims for dims, *_ in moments.values()) else {}
    labels = {name: (name, values, {"long_name": WORDS[name]}) for name, values in labels.items()}
    return _labelled(moments, raw, labels), _labelled(batches, raw, {})


def _value_and_excess(
    variable: str,
    name: str,
    words: dict,
    own: Cloud,
    models: list[Cloud | None],
    average: Average | None = None,
) -> dict:
    """Of a quantity, or of an average of it: the value, and beside any null models the excess, NaN
    over None.
    """
    value = _moments(name, own, None, average)
    dims = ("statistic", "positions", *(average.dims if average else quantities()[name].dims))
    variables = {variable: (dims, value, words)}
    if models:
        nothing = np.full_like(value, np.nan)
        excess = [
            nothing if model is None else _moments(name, own, model, average) for model in models
        ]
        variables[excess_name(variable)] = (
            (NULL, *dims),
            np.stack(excess),
            about_excess(variable, words),
        )
    return variables


def _moments(name: str, own: Cloud, null: Cloud | None, average: Average | None) -> np.ndarray:
    """(statistic, positions, …) of a quantity; of what it exceeds a null model by, where one is
    given.

    The interval of a value ends where its range does; an excess has no such range.
    """

    value, model = _values(own, name), None if null is None else _values(null, name)
    moments = summarise(
        value, quantities()[name].resampling, model, average.take if average else np.asarray
    )
    if null is None:
        moments = within(moments, *quantities()[name].range)
    return np.stack([getattr(moments, statistic) for statistic in STATISTICS])


def _null_model(
    raw: xr.Dataset, untrained: xr.Dataset | None, name: str, null: str
) -> Cloud | None:
    """Where the values of a null model are; None where it has no such quantity."""
    if null == UNTRAINED:
        return (
            (untrained, MEASURED) if untrained is not None and UNTRAINED in nulls_of(name) else None
        )
    return (raw, null) if null in clouds_of(raw[name]) else None


def _values(cloud: Cloud, name: str) -> np.ndarray:
    """(batch, replicate, positions, …), as `summarise` wants it; one replicate for what is not
    resampled.
    """
    quantity, (raw, label) = quantities()[name], cloud
    place = raw.indexes["cloud"].get_loc(label)
    array = raw.variables[name].isel(cloud=place)  # without labels, which cost most of the time
    replicate = quantity.resampling or "whole"
    array = array if quantity.resampling else array.expand_dims("whole")
    return array.transpose("batch", replicate, "positions", *quantity.dims).values


def _labelled(variables: dict, raw: xr.Dataset, labels: dict) -> xr.Dataset:
    """With a dimension `step`, and the coordinates of the raw table that the variables have."""
    dataset = xr.Dataset(variables, labels, raw.attrs)
    here = {
        name: labels for name, labels in raw.coords.items() if {*labels.dims} <= {*dataset.dims}
    }
    return dataset.assign_coords(here).expand_dims("step")
