"""The table of a checkpoint: every value of every cloud, with all its replicates.

A variable has its quantity's name and the dimensions (cloud, positions, batch, …, replicate). The
clouds are "measured" (the text's) and those of null models; NaN if a cloud lacks the quantity. The
attribute `clouds` lists the measured clouds.
"""

import json
from collections.abc import Hashable, Iterable, Mapping

import numpy as np
import xarray as xr

from anisoscope.config.measure_config import CLOUD_NULLS
from anisoscope.metrics.leading import MASSIVE_RATIO
from anisoscope.metrics.quantity import MEASURED, PERMUTED
from anisoscope.metrics.registry import (
    FAMILIES,
    coordinates,
    find_family,
    null_models_for,
    quantities,
)

Arrays = dict[str, np.ndarray]  # arrays of one cloud, by quantity

UNTRAINED = "untrained"  # a null model that is not a cloud: the table of step 0
# the variables of `add_massive`: massive vectors of each layer, and tokens left out for them
MASSIVE_COUNTS = ("massive_vectors", "massive_tokens")
BEFORE = "previous_step"  # the checkpoint that the family comparison compares with
CLOUDS = (
    MEASURED,
    *CLOUD_NULLS,
    "shuffled",
    PERMUTED,
)  # always in this order
BY_KEY = ("checkpoints", "made_by", "noise_floor")  # JSON attributes that measurements add to


def build_table(
    values: dict[str, Arrays], step: int, positions: tuple[str, ...], attributes: dict
) -> xr.Dataset:
    """Make a table of measured {cloud: {quantity: array (batch, positions, …, replicate)}}."""
    clouds = _ordered(values)
    variables = {}
    for name, quantity in quantities().items():
        own = {cloud: np.asarray(values[cloud][name]) for cloud in clouds if name in values[cloud]}
        if own:
            shape = next(iter(own.values())).shape
            kind = np.result_type(*own.values(), np.float32)  # counts too: a missing cloud is NaN
            filled = [own.get(cloud, np.full(shape, np.nan)).astype(kind) for cloud in clouds]
            variables[name] = (
                ("cloud", "positions", "batch", *quantity.raw_dims[2:]),
                np.stack([x.swapaxes(0, 1) for x in filled]),
                quantity_attributes(name) | {"clouds": ",".join(own)},
            )
    dataset = xr.Dataset(variables, attrs=attributes)
    labels = {"step": step, "cloud": clouds, "positions": list(positions)} | places(dataset.sizes)
    present = ("step", "depth", *dataset.sizes)
    return dataset.assign_coords({name: x for name, x in labels.items() if name in present})


def add_massive(table: xr.Dataset, massive: Iterable[np.ndarray]) -> xr.Dataset:
    """Add how many vectors are massive in each layer, from marks (layer, point) of each batch."""
    massive_LP = np.concatenate([*massive], axis=1)
    layers, points = massive_LP.shape
    labels = {} if "layer" in table.coords else {"layer": np.arange(layers)}
    words = (
        f"vectors longer than {MASSIVE_RATIO:g} times the median norm of their layer, of {points}",
        f"tokens with such a vector in any layer, of {points}: left out of the set without_massive",
    )
    values = (("layer", massive_LP.sum(axis=1)), ((), massive_LP.any(axis=0).sum()))
    counts = {
        name: (*value, {"long_name": long_name, "units": "1"})
        for name, value, long_name in zip(MASSIVE_COUNTS, values, words, strict=True)
    }
    return table.assign(counts).assign_coords(labels)


def places(sizes: Mapping[Hashable, int]) -> dict:
    """Label the dimensions of values: layers with depth, blocks, heads, and those of quantities."""
    coords = {name: np.arange(sizes[name]) for name in ("batch", "head") if name in sizes}
    coords |= {name: list(labels) for name, labels in coordinates().items()}
    if "layer" in sizes:
        layers = coords["layer"] = coords["other_layer"] = np.arange(sizes["layer"])
        coords["depth"] = "layer", layers / max(layers[-1], 1)
    if "block" in sizes:
        coords["block"] = np.arange(1, sizes["block"] + 1)
    return coords


def quantity_attributes(name: str) -> dict[str, str]:
    """Return the attributes of a registered quantity."""
    return quantities()[name].attributes | {"family": find_family(name)}


def clouds_of(array: xr.DataArray | xr.Variable) -> list[str]:
    """List the clouds in which a quantity was measured."""
    return array.attrs["clouds"].split(",")


def missing_families(
    table: xr.Dataset | None, families: tuple[str, ...], nulls: tuple[str, ...]
) -> tuple[str, ...]:
    """List the families for which a table (or None) lacks a quantity or a null model."""
    missing = []

    def lacks(name: str) -> bool:
        if table is None or name not in table:
            return True
        return not {MEASURED, *({*nulls} & {*null_models_for(name)} & {*CLOUDS})} <= {
            *clouds_of(table[name])
        }

    for family in families:
        if any(map(lacks, FAMILIES[family].quantities)):
            missing.append(family)
    return tuple(missing)


def merge_families(
    old: xr.Dataset | None, new: xr.Dataset, families: tuple[str, ...]
) -> xr.Dataset:
    """Replace these families' variables in the old table by those of the new table."""
    if old is None:
        return _arranged(new)
    replaced = {name for family in families for name in FAMILIES[family].quantities}
    replaced |= {BEFORE} if "comparison" in families else set()
    kept = [name for name in old.data_vars if name not in replaced]
    arrays = [old[name] for name in kept]
    arrays += [new[name] for name in new.data_vars if name in replaced or name not in kept]
    clouds = _ordered(
        label for part in (old, new) if "cloud" in part for label in part["cloud"].values
    )
    arrays = [x.reindex(cloud=clouds) if "cloud" in x.dims else x for x in arrays]
    whole = xr.merge(arrays, join="exact", compat="equals")
    # attributes only in the old table describe its kept variables
    whole.attrs = old.attrs | new.attrs
    for name in (name for name in BY_KEY if name in new.attrs):
        both = json.loads(old.attrs.get(name, "{}")) | json.loads(new.attrs[name])
        whole.attrs[name] = json.dumps(both)
    return _arranged(whole)


def _arranged(dataset: xr.Dataset) -> xr.Dataset:
    """Sort variables and coordinates, so that equal tables give equal files."""
    names = [name for name in quantities() if name in dataset]
    names += sorted(dataset.data_vars.keys() - names)
    bare = xr.Dataset({name: dataset[name].variable for name in names}, attrs=dataset.attrs)
    return bare.assign_coords(
        {name: dataset.coords[name].variable for name in sorted(dataset.coords)}
    ).drop_encoding()


def _ordered(clouds: Iterable[str]) -> list[str]:
    """List clouds without repetition, in the order of `CLOUDS`."""
    names = dict.fromkeys(map(str, clouds))
    return [cloud for cloud in dict.fromkeys((*CLOUDS, *names)) if cloud in names]
