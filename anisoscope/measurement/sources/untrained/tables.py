"""Tables of untrained blocks: a NetCDF file per kind and norm, joined with intervals, predictions and fixed points."""

import dataclasses
import itertools
import json
import pathlib

import numpy as np
import pandas as pd
import xarray as xr

from anisoscope.config.untrained import UntrainedConfig
from anisoscope.measurement.intervals import LEVEL, summarise, within
from anisoscope.measurement.quantity import INHERENT, Quantity
from anisoscope.measurement.sources.untrained import theory
from anisoscope.measurement.sources.untrained.fixed_points import fixed_points
from anisoscope.measurement.sources.untrained.quantities import MEASURED, QUANTITIES
from anisoscope.measurement.tables import files
from anisoscope.utils.errors import RunError

KIND, NORM = ("norm_order", "mask", "embedding", "target"), "relative_norm"
STATISTICS = ("mean", "low", "high", "predicted")


def versions() -> dict[str, int]:
    """What tables that are joined must have in common, beside the settings of the experiment."""
    return {name: quantity.version for name, quantity in MEASURED.items()}


def table(
    config: UntrainedConfig, kind: tuple[str, ...], index: int, norm: float, values: dict[str, np.ndarray]
) -> xr.Dataset:
    """The values of every seed, of one kind of block and one norm of the bias."""
    variables = {name: (("seed", *QUANTITIES[name].dims), value) for name, value in values.items()}
    dataset = xr.Dataset(
        variables | {"bias_norm": ((), norm)}, attrs={"config": json.dumps(dataclasses.asdict(config))}
    )
    dataset = dataset.assign_coords(seed=config.seed + np.arange(config.seeds), block=np.arange(1, config.blocks + 1))
    return dataset.expand_dims(
        {**dict(zip(KIND, ([value] for value in kind), strict=True)), "relative_norm": [config.norms[index]]}
    )


def join(config: UntrainedConfig, paths: list[pathlib.Path], root: pathlib.Path) -> None:
    """seeds.nc, results.nc and results.csv from all tables."""
    seeds = combine(config, _each_once(paths))
    whole = summary(config, seeds)
    files.write(seeds, root / "seeds.nc")
    files.write(whole, root / "results.nc")
    files.write_csv(tidy(whole), root / "results.csv")


def _each_once(paths: list[pathlib.Path]) -> list[xr.Dataset]:
    """The tables, to be joined by what they say they are of; RunError where one does not, or two say the same."""
    entries = {}
    for path in paths:
        table = files.read_table(path)
        of = tuple(str(label) for name in (*KIND, NORM) if name in table.coords for label in table[name].values.ravel())
        if len(of) != len((*KIND, NORM)) or of in entries:
            why = f"says that it is what {entries[of][0]} is" if of in entries else "is not that of one kind and norm"
            raise RunError(f"table {path} {why}; move it away and run the same command again")
        entries[of] = path, table
    return [table for _, table in entries.values()]


def combine(config: UntrainedConfig, tables: list[xr.Dataset]) -> xr.Dataset:
    """The values of every seed, of all kinds and norms, in the order of the config, with the fixed points."""
    whole = xr.combine_by_coords(tables, join="exact", combine_attrs="identical")
    whole = whole.drop_encoding()  # the lengths of labels differ between tables
    whole = whole.sel({name: list(getattr(config, f"{name}s")) for name in KIND})
    return described(config, whole.merge(fixed_points(whole)))


def described(config: UntrainedConfig, dataset: xr.Dataset) -> xr.Dataset:
    """Its variables say what they are, and the whole what it was made from."""
    for name in (name for name in QUANTITIES if name in dataset):
        dataset[name].attrs = _about(QUANTITIES[name])
    dataset["bias_norm"].attrs = {
        "long_name": "norm of the bias",
        "units": "activation",
        "formula": "N = |b|",
        "source": INHERENT,
    }
    dataset["relative_norm"].attrs = {
        "long_name": "norm of the bias, relative",
        "units": "1",
        "formula": "N over the root mean square norm, expected at initialisation, of what the bias is added to",
    }
    return dataset.assign_attrs(description=words_of(config))


def _about(quantity: Quantity) -> dict[str, str | int]:
    symbol = {"symbol": quantity.symbol} if quantity.symbol else {}
    return {name: getattr(quantity, name) for name in ("long_name", "units", "formula", "source", "version")} | symbol


def summary(config: UntrainedConfig, seeds: xr.Dataset) -> xr.Dataset:
    """Of every quantity the mean over seeds, the ends of its interval and, where there is one, the closed form."""
    variables, words = {}, f"Student's t interval of {LEVEL * 100:.0f} % over {seeds.sizes['seed']} seeds"
    predicted = predictions(config, seeds)
    for name in QUANTITIES:
        values = seeds[name].transpose("seed", ...)
        mean, _, low, high = within(summarise(values.values[:, None], ""), *QUANTITIES[name].range)
        alike = values.isel(seed=0, drop=True)
        closed = predicted.get(name, xr.full_like(alike, np.nan)).transpose(*alike.dims)
        about = values.attrs | {"interval": words} | closed.attrs
        variables[name] = ("statistic", *alike.dims), np.stack([mean, low, high, closed]), about
    coordinates = {name: value for name, value in seeds.coords.items() if name != "seed"}
    whole = xr.Dataset(variables, coords=coordinates | {"statistic": list(STATISTICS)})
    return whole.assign(bias_norm=seeds.bias_norm).assign_attrs(seeds.attrs, seeds=seeds.sizes["seed"])


def predictions(config: UntrainedConfig, seeds: xr.Dataset) -> dict[str, xr.DataArray]:
    """Closed forms, of the input and of the first block; NaN for the other blocks."""
    names = ("cosine_in", "score_std", "score_std_head", "score_std_within")
    bias = seeds.bias_norm.transpose(*KIND, "relative_norm")
    predicted = {name: xr.full_like(bias, np.nan, dtype=np.float64) for name in names}
    for labels in itertools.product(*(seeds[name].values.tolist() for name in KIND)):
        norm_order, mask, embedding, target = labels
        place = dict(zip(KIND, labels, strict=True))
        norms = bias.sel(place).values
        in_input = norms if target == "input" else np.zeros_like(norms)
        deviations = theory.score_deviations(config, norm_order, mask, embedding, target, norms)
        for name, values in zip(names, (theory.cosine_in(config, embedding, in_input), *deviations), strict=True):
            predicted[name].loc[place] = values
    about = {"predicted": "closed form, first block; this project: sources/untrained/theory.py, leading order in 1/D"}
    first = {
        name: value.where(seeds.block == 1) if QUANTITIES[name].dims else value for name, value in predicted.items()
    }
    return {name: value.drop_attrs().assign_attrs(about) for name, value in first.items()}


def tidy(whole: xr.Dataset) -> pd.DataFrame:
    """One row per number: kind, norm of the bias, block, metric, mean, low, high, predicted, seeds, units."""
    parts = []
    for name in QUANTITIES:
        columns = {statistic: whole[name].sel(statistic=statistic, drop=True) for statistic in STATISTICS}
        if "relative_norm" in whole[name].dims:
            columns["bias_norm"] = whole.bias_norm
        frame = xr.Dataset(columns).to_dataframe().reset_index()
        parts.append(frame.assign(metric=name, units=whole[name].attrs["units"], seeds=whole.attrs["seeds"]))
    order = [*KIND, "relative_norm", "bias_norm", "block", "metric", *STATISTICS, "seeds", "units"]
    return pd.concat(parts, ignore_index=True)[order].astype({"block": "Int64"})


def words_of(config: UntrainedConfig) -> str:
    cut = ", truncated at 2 sigma" * config.truncated
    return (
        f"untrained blocks, BERT's initial values (sigma {config.sigma:g}{cut}); D={config.width}; H={config.heads}; "
        f"F={config.expansion}D; {config.sequences} sequences × {config.context} rows of {config.vocabulary:,}; "
        f"seeds {config.seed}–{config.seed + config.seeds - 1}"
    )
