"""Tables of untrained blocks: a NetCDF file per kind and norm, joined with intervals, predictions and fixed points."""

import dataclasses
import itertools
import json
import pathlib

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from panel.intervals import LEVEL
from panel.quantities import INHERENT, RECONSTRUCTED
from tables import files
from untrained import theory as untrained_theory
from untrained.config import UntrainedConfig

KIND = ("norm_order", "mask", "embedding", "target")

FIXED = "E |x + b| where E |T(x + b)| crosses it, interpolated in log N, T all blocks so far; NaN: they do not cross"
# Name: long name, units, formula, source.
QUANTITIES = {
    "cosine_in": ("mean cosine in", "1", "mean cosine of pairs of x + b", INHERENT),
    "cosine_out": ("mean cosine out", "1", "mean cosine of pairs of T(x + b), T all blocks so far", INHERENT),
    "norm_in": ("mean norm in", "activation", "E |x + b|", INHERENT),
    "norm_out": ("mean norm out", "activation", "E |T(x + b)|, T all blocks so far", INHERENT),
    "score_std": (
        "deviation of all scores",
        "1",
        "standard deviation of <q_i, k_j>/sqrt(K), all heads together",
        INHERENT,
    ),
    "score_std_head": ("deviation of scores within heads", "1", "sqrt(mean over heads of var s_ij)", "this project"),
    "score_std_within": (
        "deviation of scores within rows",
        "1",
        "sqrt(mean over heads and rows of var_j s_ij)",
        "this project",
    ),
    "attention_entropy": ("attention entropy", "nat", "mean of -sum_j p_ij ln p_ij, p = softmax_j s", INHERENT),
    "attention_max": ("largest attention", "1", "mean over heads and rows of max_j p_ij", INHERENT),
    "attention_min": ("smallest attention", "1", "mean over heads and rows of min_j p_ij", INHERENT),
    "fixed_point": ("fixed point of the norm", "activation", FIXED, RECONSTRUCTED),
    "fixed_point_bias": ("norm of the bias at the fixed point", "activation", "N at fixed_point", RECONSTRUCTED),
}


def formulas() -> dict[str, str]:
    """What tables that are joined must have in common, beside the settings of the experiment."""
    return {name: formula for name, (_, _, formula, _) in QUANTITIES.items()}


def table(
    config: UntrainedConfig, kind: tuple[str, ...], index: int, norm: float, values: dict[str, np.ndarray]
) -> xr.Dataset:
    """The Dataset of one kind of block and one norm of the bias."""
    variables = {name: (("seed", "block")[: np.ndim(value)], value) for name, value in values.items()}
    dataset = xr.Dataset(variables | {"bias_norm": ((), norm)}, attrs={"config": _json(config)})
    dataset = dataset.assign_coords(seed=config.seed + np.arange(config.seeds), block=np.arange(1, config.blocks + 1))
    return dataset.expand_dims(
        {**dict(zip(KIND, ([value] for value in kind), strict=True)), "relative_norm": [config.norms[index]]}
    )


def join(config: UntrainedConfig, paths: list[pathlib.Path], root: pathlib.Path) -> None:
    """results.nc and results.csv from all tables."""
    whole = describe(config, combine(config, [files.read(path) for path in paths]))
    files.write(whole, root / "results.nc")
    files.write_csv(tidy(whole), root / "results.csv")


def combine(config: UntrainedConfig, tables: list[xr.Dataset]) -> xr.Dataset:
    """One Dataset of all kinds and norms, in the order of the config, with the fixed points."""
    whole = xr.combine_by_coords(tables, join="exact", combine_attrs="identical")
    whole = whole.drop_encoding()  # the lengths of labels differ between tables
    whole = whole.sel({name: list(getattr(config, f"{name}s")) for name in KIND})
    return whole.merge(fixed_points(whole))


def fixed_points(whole: xr.Dataset) -> xr.Dataset:
    """Where norm_out crosses norm_in for the first time, per seed: linear in log N between the norms around it.

    Both are compared as logarithms, which are straight lines in log N for a large bias.
    """
    biased = whole.isel(relative_norm=whole.relative_norm.values > 0)
    order = ("relative_norm", *KIND, "seed", "block")
    log_in, log_out, log_bias = (
        np.log(value.broadcast_like(biased.norm_out).transpose(*order).values.astype(np.float64))
        for value in (biased.norm_in, biased.norm_out, biased.bias_norm)
    )
    excess = log_out - log_in
    sign = np.where(np.abs(excess) > 1e-5, np.sign(excess), 0)  # what is equal but for rounding does not cross
    crosses = (sign[:-1] != 0) & (sign[:-1] * sign[1:] <= 0)
    first = crosses.argmax(0)[None] if len(crosses) else np.zeros((1, *excess.shape[1:]), int)

    def at_crossing(value: np.ndarray) -> np.ndarray:
        if not len(crosses):
            return np.full(excess.shape[1:], np.nan)
        (before,), (after,) = (np.take_along_axis(value, first + step, 0) for step in (0, 1))
        (left,), (right,) = (np.take_along_axis(excess, first + step, 0) for step in (0, 1))
        met = crosses.any(0)
        share = np.where(met, left, 0) / np.where(met, left - right, 1)
        return np.where(met, np.exp(before + (after - before) * share), np.nan)

    return xr.Dataset(
        {"fixed_point": (order[1:], at_crossing(log_in)), "fixed_point_bias": (order[1:], at_crossing(log_bias))}
    )


def describe(config: UntrainedConfig, whole: xr.Dataset) -> xr.Dataset:
    """Add means and intervals over seeds, predictions, and the attributes of everything."""
    added = {}
    seeds = whole.sizes["seed"]
    for name, (long_name, units, formula, source) in QUANTITIES.items():
        about = {"long_name": long_name, "units": units, "formula": formula, "source": source}
        whole[name].attrs = about
        mean = whole[name].astype(np.float64).mean("seed", skipna=False)
        half = xr.full_like(mean, np.nan)
        if seeds > 1:
            error = whole[name].astype(np.float64).std("seed", ddof=1, skipna=False) / seeds**0.5
            half = error * stats.t.ppf((1 + LEVEL) / 2, seeds - 1)
        words = f"Student's t interval of {LEVEL:.0%} over {seeds} seeds"
        for suffix, value, what in (("mean", mean, "mean"), ("low", mean - half, "low"), ("high", mean + half, "high")):
            added[f"{name}_{suffix}"] = value.assign_attrs(
                about | {"long_name": f"{long_name}, {what}", "interval": words}
            )
    whole["bias_norm"].attrs = {
        "long_name": "norm of the bias",
        "units": "activation",
        "formula": "N = |b|",
        "source": INHERENT,
    }
    whole["relative_norm"].attrs = {
        "long_name": "norm of the bias, relative",
        "units": "1",
        "formula": "N over the root mean square norm, expected at initialisation, of what the bias is added to",
    }
    return whole.assign(added | predictions(config, whole)).assign_attrs(description=words_of(config))


def predictions(config: UntrainedConfig, whole: xr.Dataset) -> dict[str, xr.DataArray]:
    """Closed forms beside the measurements, of the input and of the first block."""
    sizes = [whole.sizes[name] for name in (*KIND, "relative_norm")]
    names = ("cosine_in", "score_std", "score_std_head", "score_std_within")
    predicted = {name: np.empty(sizes) for name in names}
    for place in itertools.product(*(range(size) for size in sizes[:-1])):
        norm_order, mask, embedding, target = (
            str(whole[name].values[index]) for name, index in zip(KIND, place, strict=True)
        )
        norms = whole.bias_norm.transpose(*KIND, "relative_norm").values[place]
        in_input = norms if target == "input" else np.zeros_like(norms)
        predicted["cosine_in"][place] = untrained_theory.cosine_in(config, embedding, in_input)
        deviations = untrained_theory.score_deviations(config, norm_order, mask, embedding, target, norms)
        for name, values in zip(names[1:], deviations, strict=True):
            predicted[name][place] = values
    source = "this project: untrained/theory.py, leading order in 1/D"
    arrays = {}
    for name, values in predicted.items():
        about = {"long_name": f"{QUANTITIES[name][0]}, closed form, first block", "units": "1", "source": source}
        arrays[f"{name}_predicted"] = xr.DataArray(values, dims=(*KIND, "relative_norm"), attrs=about)
    return arrays


def tidy(whole: xr.Dataset) -> pd.DataFrame:
    """One row per number: kind, norm of the bias, block, metric, mean, low, high, predicted, seeds, units."""
    parts = []
    for name in QUANTITIES:
        columns = {suffix: whole[f"{name}_{suffix}"] for suffix in ("mean", "low", "high")}
        if f"{name}_predicted" in whole:
            first = whole[f"{name}_predicted"]
            columns["predicted"] = first.where(whole.block == 1) if "block" in whole[name].dims else first
        if "relative_norm" in whole[name].dims:
            columns["bias_norm"] = whole.bias_norm
        frame = xr.Dataset(columns).to_dataframe().reset_index()
        parts.append(frame.assign(metric=name, units=whole[name].attrs["units"], seeds=whole.sizes["seed"]))
    order = [
        *KIND,
        "relative_norm",
        "bias_norm",
        "block",
        "metric",
        "mean",
        "low",
        "high",
        "predicted",
        "seeds",
        "units",
    ]
    return pd.concat(parts, ignore_index=True)[order].astype({"block": "Int64"})


def words_of(config: UntrainedConfig) -> str:
    cut = ", truncated at 2 sigma" * config.truncated
    return (
        f"untrained blocks, BERT's initial values (sigma {config.sigma:g}{cut}); D={config.width}; H={config.heads}; "
        f"F={config.expansion}D; {config.sequences} sequences × {config.context} rows of {config.vocabulary:,}; "
        f"seeds {config.seed}–{config.seed + config.seeds - 1}"
    )


def _json(config: UntrainedConfig) -> str:
    return json.dumps(dataclasses.asdict(config))
