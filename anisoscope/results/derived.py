"""Variables derived from a quantity: averages over blocks and heads, and excesses over null models."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import xarray as xr

from anisoscope.measurement.families.registry import quantities
from anisoscope.measurement.null_models import DRAWS
from anisoscope.measurement.quantity import HEAD, LAYERS

EMBEDDING = "embedding"  # meaning of layer 0, unless a table says otherwise
FIRST_BLOCK = "block 1"  # meaning of layer 0 at hook points of blocks
OWN = "the first of the user's layers"  # in a training loop of one's own


class Average(NamedTuple):
    """An average over blocks or heads.

    `take` averages arrays (batch, replicate, positions, *dims of the quantity); `dims` remain.
    """

    words: str
    dims: tuple[str, ...]
    take: Callable[[np.ndarray], np.ndarray]


def block_average(name: str) -> str:
    """Name the variable with a quantity's average over blocks, or over blocks and heads."""
    return f"{name}_over_blocks"


def over_heads(name: str) -> str:
    """Name the variable with a quantity's average over the heads of each block."""
    return f"{name}_over_heads"


def averages(name: str, layer_0: str = EMBEDDING) -> dict[str, Average]:
    """List the averages of a quantity by variable, without the embedding.

    If layer 0 is a layer of the user's, all layers are averaged. If it is none of these, it is
    unknown which layers are blocks, and there are no averages. An average is NaN if any layer or
    head is not finite, since it would jump when that layer becomes finite.
    """
    dims = quantities()[name].dims
    if dims == HEAD:
        by_block = Average("mean over the heads of a block", dims[:1], lambda x: finite(x).mean(4))
        whole = Average("mean over blocks and heads", (), lambda x: finite(x).mean((3, 4)))
        return {over_heads(name): by_block, block_average(name): whole}
    has_blocks = dims[0] == "block"
    if not has_blocks and (dims[:2] == LAYERS or layer_0 not in (EMBEDDING, FIRST_BLOCK, OWN)):
        return {}
    unknown = quantities()[name].from_layer_1
    first = int(not has_blocks and (layer_0 == EMBEDDING or unknown))
    words = "mean over blocks" if has_blocks else "mean over blocks 1 to N"
    if layer_0 == OWN:
        words = f"mean over all layers{' but the first' * unknown}"
    average = Average(words, dims[1:], lambda x: finite(x[:, :, :, first:]).mean(3))
    return {block_average(name): average}


def finite(values: np.ndarray) -> np.ndarray:
    return np.where(np.isfinite(values), values, np.nan)


NULL = "null"  # the dimension over null models
NULL_WORDS = (  # its long name
    "null model, whose value is subtracted for each batch and replicate; for gaussian the mean over "
    f"{DRAWS} draws"
)


def excess_name(name: str) -> str:
    """Name the variable with the excess of a quantity, or of its average, over null models."""
    return f"{name}_excess"


def about_excess(name: str, attributes: dict[str, Any]) -> dict[str, Any]:
    """Derive the attributes of an excess from those of the value; an excess has no range."""
    words = {
        "long_name": f"{attributes.get('long_name', name)}, excess over a null model",
        "units": attributes.get("units", "1"),
    }
    kept = {key: attributes[key] for key in ("family", "resampling") if key in attributes}
    formula = f"value minus that of the null model (gaussian: the mean over {DRAWS} draws)"
    return words | {"formula": formula, "excess_of": name} | kept


def is_excess(variable: xr.DataArray) -> bool:
    return "excess_of" in variable.attrs


def values_of(table: xr.Dataset) -> list[str]:
    """List the quantities of a table and their averages, without excesses."""
    return [
        str(name)
        for name, array in table.data_vars.items()
        if "statistic" in array.dims and not is_excess(array)
    ]


def nulls_in(table: xr.Dataset) -> list[str]:
    """List the null models of a table."""
    return table[NULL].values.tolist() if NULL in table.dims else []


def excess_of(table: xr.Dataset, name: str, null: str) -> xr.DataArray:
    """Return the excess over this null model; NaN if the table has none."""
    if null in nulls_in(table) and excess_name(name) in table:
        return table[excess_name(name)].sel({NULL: null}, drop=True)
    return xr.full_like(table[name], np.nan)
