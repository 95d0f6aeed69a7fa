"""From raw replicates to what a reader wants of a checkpoint: means, intervals, the excess over each null model."""

import jax
import jax.numpy as jnp
import numpy as np
import xarray as xr

from analysis.quantities import COORDINATES, QUANTITIES, Quantity
from analysis.uncertainty import LEVEL, summarise
from metrics.scale import plateau

_plateaus = jax.jit(jax.vmap(jax.vmap(plateau)))  # (positions, layer, scale)
BOUND = f"end of the {LEVEL:.0%} interval"


def summary(raw: xr.Dataset, untrained: xr.Dataset | None, nulls: tuple[str, ...]) -> xr.Dataset:
    """Of one checkpoint: the values per batch, their moments and intervals, and what exceeds each null model.

    `untrained` is the raw table of step 0, if there is one. `_null` is the null
    model's mean over batches; `_excess` is the value less the null model's, batch by batch and replicate by replicate,
    with an interval of its own. NaN where a null model has no such quantity: a Gaussian cloud has no attention.
    """
    variables = {}
    if "gride" in raw:
        inside, variables = verdict(raw["gride"])
        raw = with_plateau(raw, inside)
        untrained = None if untrained is None else with_plateau(untrained, inside)
    for name, quantity in QUANTITIES.items():
        if name not in raw:
            continue
        values = _ordered(raw[name], quantity)
        dims, about = values.dims[2:], about_quantity(quantity)
        variables[name] = ("positions", "batch", *dims[1:]), values.values[:, 0].swapaxes(0, 1), about
        found = summarise(values.values, quantity.resampling)
        words = (f"mean over {raw.sizes['batch']} batches", "standard deviation over batches")
        words = (*words, f"mean, lower {BOUND}", f"mean, upper {BOUND}")
        for suffix, said, data in zip(("mean", "std", "low", "high"), words, found, strict=True):
            variables[f"{name}_{suffix}"] = dims, data, about_quantity(quantity, f", {said}")
        models = [null_values(raw, untrained, name, null) for null in nulls]
        if any(model is not None for model in models):
            variables |= _against(values, [m if m is None else _ordered(m, quantity) for m in models], name, quantity)
    dataset = xr.Dataset(variables, coords=raw.coords, attrs=raw.attrs)
    if "null" in dataset.dims:
        dataset = dataset.assign_coords(null=list(nulls))
    unused = [name for name in dataset.coords if name not in dataset.dims and name not in ("step", "depth")]
    return dataset.drop_vars(unused).expand_dims("step")


def _against(values: xr.DataArray, models: list[xr.DataArray | None], name: str, quantity: Quantity) -> dict:
    """The variables `_null`, `_excess`, `_excess_low` and `_excess_high`, with the null models as first dimension."""
    rows = []
    for model in models:
        if model is None:
            rows.append([np.full(values.shape[2:], np.nan)] * 4)
        else:
            over = summarise(values.values, quantity.resampling, model.values)
            rows.append([summarise(model.values, quantity.resampling).mean, over.mean, over.low, over.high])
    words = ("mean of the null model", "excess over the null model", f"excess, lower {BOUND}", f"excess, upper {BOUND}")
    return {
        f"{name}_{suffix}": (("null", *values.dims[2:]), np.stack(data), about_quantity(quantity, f", {said}"))
        for suffix, said, data in zip(
            ("null", "excess", "excess_low", "excess_high"), words, zip(*rows, strict=True), strict=True
        )
    }


def null_values(raw: xr.Dataset, untrained: xr.Dataset | None, name: str, null: str) -> xr.DataArray | None:
    """The raw values of a null model; None where it has none. A comparison of checkpoints has no untrained one."""
    if null == "untrained":
        return None if untrained is None or QUANTITIES[name].family == "comparison" else untrained[name]
    return raw.get(f"{name}_{null}")


def _ordered(array: xr.DataArray, quantity: Quantity) -> xr.DataArray:
    """(batch, replicate, positions, …), as `summarise` wants it; one replicate for what is not resampled."""
    replicate = quantity.resampling or "whole"
    array = array if quantity.resampling else array.expand_dims("whole")
    return array.transpose("batch", replicate, "positions", *quantity.dims)


def verdict(gride: xr.DataArray) -> tuple[xr.DataArray, dict]:
    """Which scales of each layer make up the plateau of the mean curve over batches, and the ends of that range."""
    mean = gride.isel(sections=0).mean("batch", skipna=False).transpose("positions", "layer", "neighbours")
    found = _plateaus(jnp.asarray(mean.values, jnp.float32))
    first, last = (mean.isel(neighbours=0, drop=True).copy(data=np.asarray(end)) for end in (found.first, found.last))
    index = xr.DataArray(np.arange(mean.sizes["neighbours"]), dims="neighbours")
    ranks = np.append(COORDINATES["neighbours"], np.nan)  # -1, the last, where there is no plateau
    variables = {}
    for name, end, said in (("plateau_first", first, "least"), ("plateau_last", last, "greatest")):
        about = about_quantity(QUANTITIES["plateau"], f", {said} k on it") | {"units": "neighbours"}
        about |= {"formula": f"{said} k of that run, of the mean curve over batches", "resampling": "none"}
        variables[name] = end.dims, ranks[np.nan_to_num(end.values, nan=-1).astype(int)], about
    return (index >= first) & (index <= last), variables


def with_plateau(raw: xr.Dataset, inside: xr.DataArray) -> xr.Dataset:
    """Adds the geometric mean of every GRIDE curve over the scales `inside`; NaN where one of them has no value.

    Every replicate, null model and the untrained network are read on the same scales, or their excess would compare
    different ones.
    """
    curves = {name: raw[name] for name in raw.data_vars if name.startswith("gride")}
    return raw.assign(
        {
            name.replace("gride", "plateau"): np.exp(
                xr.where(inside, np.log(curve), 0.0).sum("neighbours", skipna=False) / inside.sum("neighbours")
            ).where(inside.any("neighbours"))
            for name, curve in curves.items()
        }
    )


def about_quantity(quantity: Quantity, words: str = "") -> dict[str, str]:
    about = {"long_name": quantity.long_name + words, "units": quantity.units, "formula": quantity.formula}
    return about | {
        "source": quantity.source,
        "family": quantity.family,
        "resampling": quantity.resampling or "batches",
    }
