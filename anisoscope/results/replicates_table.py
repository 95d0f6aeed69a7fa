"""The table of one checkpoint: every value of every cloud, with all its replicates.

A variable has its quantity's plain name and the dimensions (cloud, positions, batch, …, replicate).
The clouds are "measured", which is the text's, and those of null models; NaN where one has no such
quantity. What a variable was made by stands in its attributes: `resampling`, and `clouds`, which
were measured of it.
"""

import json
from collections.abc import Iterable

import numpy as np
import xarray as xr

from anisoscope.measurement.families.comparison_family import OF_PREVIOUS
from anisoscope.measurement.families.projection_family import VECTORS
from anisoscope.measurement.families.registry import coordinates, family_of, nulls_of, quantities
from anisoscope.measurement.null_models import PERMUTED
from anisoscope.measurement.panel import MEASURED

Arrays = dict[str, np.ndarray]  # of one cloud, by quantity
Missing = dict[str, tuple[str, ...]]  # quantity -> clouds that have to be measured of it

UNTRAINED = "untrained"  # a null model that is no cloud: the table of step 0
BEFORE = "previous_step"  # which checkpoint was compared with
CLOUDS = (MEASURED, "gaussian", "shuffled", PERMUTED)  # in this order, whatever was measured first
# attributes in JSON, to which each measurement adds
BY_KEY = ("checkpoints", "made_by", "noise_floor")


def table(
    values: dict[str, Arrays], step: int, positions: tuple[str, ...], attributes: dict
) -> xr.Dataset:
    """From what was measured, {cloud: {quantity: array}}, each array (batch, positions, …,
    replicate).
    """
    clouds = _ordered(values)
    order = list(quantities())
    variables = {}
    for name in sorted({name for arrays in values.values() for name in arrays}, key=order.index):
        there = {
            cloud: np.asarray(values[cloud][name]) for cloud in clouds if name in values[cloud]
        }
        shape = next(iter(there.values())).shape
        kind = np.result_type(*there.values(), np.float32)  # counts too: a cloud without any is NaN
        filled = [
            there.get(cloud, np.full(shape, np.nan)).astype(kind).swapaxes(0, 1) for cloud in clouds
        ]
        variables[name] = _dims(name), np.stack(filled), about(name) | {"clouds": ",".join(there)}
    dataset = xr.Dataset(variables, attrs=attributes)
    labels = {"step": step, "cloud": clouds, "positions": list(positions)} | places(dataset.sizes)
    present = ("step", "depth", *dataset.sizes)
    return dataset.assign_coords(
        {name: values for name, values in labels.items() if name in present}
    )


def places(sizes: dict[str, int]) -> dict:
    """Labels along the dimensions of a value: layers and their depth, blocks, heads, and those of
    single quantities.
    """
    coords = {name: np.arange(sizes[name]) for name in ("batch", "head") if name in sizes}
    coords |= {name: list(labels) for name, labels in coordinates().items()}
    if "layer" in sizes:
        layers = coords["layer"] = coords["other_layer"] = np.arange(sizes["layer"])
        coords["depth"] = "layer", layers / max(layers[-1], 1)
    if "block" in sizes:
        coords["block"] = np.arange(1, sizes["block"] + 1)
    return coords


def about(name: str) -> dict[str, str | int]:
    """The attributes of a quantity, in the words of today."""
    quantity = quantities()[name]
    return {
        "long_name": quantity.long_name,
        "units": quantity.units,
        "range": "{:g} to {:g}".format(*quantity.range),
        "formula": quantity.formula,
        "source": quantity.source,
        "family": family_of(name),
        "resampling": quantity.resampling or "batches",
    } | ({"symbol": quantity.symbol} if quantity.symbol else {})


def clouds_of(array: xr.DataArray) -> list[str]:
    """The clouds that were measured of a quantity."""
    return array.attrs["clouds"].split(",")


def missing(table: xr.Dataset | None, families: tuple[str, ...], nulls: tuple[str, ...]) -> Missing:
    """What has to be measured before a table (None: there is none) holds all that is asked for.

    Of a quantity that it has, the clouds that it lacks.
    """
    left = {}
    for name in quantities():
        if family_of(name) in families:
            wanted = (
                MEASURED,
                *(null for null in CLOUDS if null in nulls and null in nulls_of(name)),
            )
            there = clouds_of(table[name]) if table is not None and name in table else ()
            left[name] = tuple(cloud for cloud in wanted if cloud not in there)
    if "projection" in families:  # no quantities: vectors of one cloud
        left |= {name: (MEASURED,) for name in VECTORS if table is None or name not in table}
    return {name: clouds for name, clouds in left.items() if clouds}


def families_of(missed: Missing, families: tuple[str, ...]) -> tuple[str, ...]:
    """The families, in this order, of which something is missing."""
    wanted = {"projection" if name in VECTORS else family_of(name) for name in missed}
    return tuple(family for family in families if family in wanted)


def merged(old: xr.Dataset | None, new: xr.Dataset, missed: Missing) -> xr.Dataset:
    """The old table with what was missing of it taken from the new one; all else stays as it was,
    bit for bit.

    What the old table has beyond what was asked for stays too.
    """
    if old is None:
        return _arranged(new)
    kept = [
        name
        for name in old.data_vars
        if name in quantities() and MEASURED not in missed.get(name, ())
    ]
    # gone: compared with another
    if BEFORE in old and BEFORE in new and int(old[BEFORE]) != int(new[BEFORE]):
        kept = [name for name in kept if name not in OF_PREVIOUS or name not in new]
    parts = {name: new[name] for name in new.data_vars} | {name: old[name] for name in kept}
    parts |= {
        name: with_clouds(old[name], new[name], missed[name]) for name in kept if name in missed
    }
    others = [name for name in old.data_vars if name not in quantities() and name not in missed]
    parts |= {name: old[name] for name in others if name in VECTORS or name not in new}
    clouds = _ordered(
        label for part in (old, new) if "cloud" in part for label in part["cloud"].values
    )
    arrays = [
        array.reindex(cloud=clouds) if "cloud" in array.dims else array for array in parts.values()
    ]
    whole = xr.merge(arrays, join="exact", compat="equals")
    # What only the old table says is of what is kept of it.
    whole.attrs = old.attrs | new.attrs
    for name in (name for name in BY_KEY if name in new.attrs):
        both = json.loads(old.attrs.get(name, "{}")) | json.loads(new.attrs[name])
        whole.attrs[name] = json.dumps(both)
    return _arranged(whole)


def with_clouds(old: xr.DataArray, new: xr.DataArray, clouds: tuple[str, ...]) -> xr.DataArray:
    """A quantity whose clouds of these names are those of the new table."""
    kept = [cloud for cloud in clouds_of(old) if cloud not in clouds]
    parts = old.sel(cloud=kept), new.sel(cloud=list(clouds))
    both = xr.concat(parts, "cloud", join="exact", combine_attrs="override")
    return both.assign_attrs(clouds=",".join(_ordered((*kept, *clouds))))


def _arranged(dataset: xr.Dataset) -> xr.Dataset:
    """The same in an order of its own, so that equal tables are equal files whatever was measured
    first.
    """
    names = [name for name in quantities() if name in dataset]
    names += sorted(dataset.data_vars.keys() - names)
    bare = xr.Dataset({name: dataset[name].variable for name in names}, attrs=dataset.attrs)
    return bare.assign_coords(
        {name: dataset.coords[name].variable for name in sorted(dataset.coords)}
    ).drop_encoding()


def _ordered(clouds: Iterable[str]) -> list[str]:
    """Each once, those of `CLOUDS` first and in that order."""
    names = dict.fromkeys(map(str, clouds))
    return [cloud for cloud in dict.fromkeys((*CLOUDS, *names)) if cloud in names]


def _dims(name: str) -> tuple[str, ...]:
    quantity = quantities()[name]
    return (
        "cloud",
        "positions",
        "batch",
        *quantity.dims,
        *([quantity.resampling] if quantity.resampling else []),
    )
