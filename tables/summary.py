"""From raw replicates to what a reader wants of a checkpoint: means, intervals, the excess over each null model."""

import numpy as np
import xarray as xr

from panel import plateau
from panel.intervals import LEVEL, Summary, summarise
from panel.quantities import QUANTITIES, Quantity

BOUND = f"end of the {LEVEL:.0%} interval"


def summary(raw: xr.Dataset, untrained: xr.Dataset | None, nulls: tuple[str, ...]) -> xr.Dataset:
    """Of one checkpoint: the values per batch, their moments and intervals, and what exceeds each null model.

    `untrained` is the raw table of step 0, if there is one. `_null` is the null
    model's mean over batches; `_excess` is the value less the null model's, batch by batch and replicate by replicate,
    with an interval of its own. NaN where a null model has no such quantity: a Gaussian cloud has no attention.
    """
    variables = {}
    if "gride" in raw:
        inside, ends = plateau.verdict(raw["gride"])
        for end, said, ranks in zip(("first", "last"), ("least", "greatest"), ends, strict=True):
            about = about_quantity(QUANTITIES["plateau"], f", {said} k on it") | {"units": "neighbours"}
            about |= {"formula": f"{said} k of that run, of the mean curve over batches", "resampling": "none"}
            variables[f"plateau_{end}"] = ranks.dims, ranks.values, about
        raw = plateau.read(raw, inside)
        untrained = None if untrained is None else plateau.read(untrained, inside)
    for name, quantity in QUANTITIES.items():
        if name not in raw:
            continue
        values = _ordered(raw[name], quantity)
        dims, about = values.dims[2:], about_quantity(quantity)
        variables[name] = ("positions", "batch", *dims[1:]), values.values[:, 0].swapaxes(0, 1), about
        found = _moments(raw, name)
        words = (f"mean over {raw.sizes['batch']} batches", "standard deviation over batches")
        words = (*words, f"mean, lower {BOUND}", f"mean, upper {BOUND}")
        for suffix, said, data in zip(("mean", "std", "low", "high"), words, found, strict=True):
            variables[f"{name}_{suffix}"] = dims, data, about_quantity(quantity, f", {said}")
        models = [null_model(raw, untrained, name, null) for null in nulls]
        if any(model is not None for model in models):
            variables |= _against(raw, models, name)
    dataset = xr.Dataset(variables, coords=raw.coords, attrs=raw.attrs)
    if "null" in dataset.dims:
        dataset = dataset.assign_coords(null=list(nulls))
    unused = [name for name in dataset.coords if name not in dataset.dims and name not in ("step", "depth")]
    return dataset.drop_vars(unused).expand_dims("step")


def _moments(raw: xr.Dataset, name: str, null: dict[str, xr.DataArray] | None = None) -> Summary:
    """Of a quantity; of its excess, where a null model is given."""

    def values(name: str) -> tuple[np.ndarray, np.ndarray | None]:
        own, other = raw[name], None if null is None else null[name]
        return tuple(None if array is None else _ordered(array, QUANTITIES[name]).values for array in (own, other))

    value, model = values(name)
    found = summarise(value, QUANTITIES[name].resampling, model)
    return plateau.with_choice(found, *values("gride")) if name == "plateau" else found


def _against(raw: xr.Dataset, models: list[dict[str, xr.DataArray] | None], name: str) -> dict:
    """The variables `_null`, `_excess`, `_excess_low` and `_excess_high`, with the null models as first dimension."""
    quantity, rows = QUANTITIES[name], []
    dims = _ordered(raw[name], quantity).dims[2:]
    for model in models:
        if model is None:
            rows.append([np.full([raw.sizes[dim] for dim in dims], np.nan)] * 4)
        else:
            over = _moments(raw, name, model)
            mean = summarise(_ordered(model[name], quantity).values, quantity.resampling).mean
            rows.append([mean, over.mean, over.low, over.high])
    words = ("mean of the null model", "excess over the null model", f"excess, lower {BOUND}", f"excess, upper {BOUND}")
    return {
        f"{name}_{suffix}": (("null", *dims), np.stack(data), about_quantity(quantity, f", {said}"))
        for suffix, said, data in zip(
            ("null", "excess", "excess_low", "excess_high"), words, zip(*rows, strict=True), strict=True
        )
    }


def null_model(raw: xr.Dataset, untrained: xr.Dataset | None, name: str, null: str) -> dict[str, xr.DataArray] | None:
    """The raw values of a null model; None where it has no such quantity: a comparison has no untrained one."""
    if null == "untrained":
        return None if untrained is None or QUANTITIES[name].family == "comparison" else untrained
    suffix = f"_{null}"
    found = {key.removesuffix(suffix): array for key, array in raw.data_vars.items() if key.endswith(suffix)}
    return found if name in found else None


def _ordered(array: xr.DataArray, quantity: Quantity) -> xr.DataArray:
    """(batch, replicate, positions, …), as `summarise` wants it; one replicate for what is not resampled."""
    replicate = quantity.resampling or "whole"
    array = array if quantity.resampling else array.expand_dims("whole")
    return array.transpose("batch", replicate, "positions", *quantity.dims)


def about_quantity(quantity: Quantity, words: str = "") -> dict[str, str]:
    about = {"long_name": quantity.long_name + words, "units": quantity.units, "formula": quantity.formula}
    return about | {
        "source": quantity.source,
        "family": quantity.family,
        "resampling": quantity.resampling or "batches",
    }
