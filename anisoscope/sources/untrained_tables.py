"""Write tables of untrained blocks, and join them with intervals, predictions and fixed points.

There is one NetCDF file per kind of block and norm of the bias.
"""

import dataclasses
import functools
import itertools
import json
import pathlib

import numpy as np
import xarray as xr

from anisoscope.config.untrained_config import UntrainedConfig
from anisoscope.measurement.quantity import HERE, INHERENT, NOT_NEGATIVE, RECONSTRUCTED, declare
from anisoscope.results import joined_files
from anisoscope.results.summary import seed_attributes, summarize_seeds, tidy_seeds
from anisoscope.sources import untrained_theory

KIND, NORM = ("norm_order", "mask", "embedding", "target"), "relative_norm"
COLUMNS = (*KIND, NORM, "bias_norm", "block")  # of results.csv, before the numbers

_declare = functools.partial(declare, dims=("block",), range=NOT_NEGATIVE, resampling="")
# x: rows of the table; b: the common bias; T: all blocks so far; s_ij = <q_i, k_j>/sqrt(K);
# p = softmax_j s
MEASURED = _declare(
    f"""
    cosine_in [-1, 1]: mean cosine in
        mean cosine of pairs of x + b
    cosine_out [-1, 1]: mean cosine out
        mean cosine of pairs of T(x + b), T all blocks so far
    norm_in in activation as E |x + b|: mean norm in
        E |x + b|
    norm_out in activation as E |T(x + b)|: mean norm out
        E |T(x + b)|, T all blocks so far
    score_std: deviation of all scores
        standard deviation of <q_i, k_j>/sqrt(K), all heads together
    score_std_head: deviation of scores within heads
        sqrt(mean over heads of var s_ij) -- {HERE}
    score_std_within: deviation of scores within rows
        sqrt(mean over heads and rows of var_j s_ij) -- {HERE}
    attention_entropy in nat: attention entropy
        mean of -sum_j p_ij ln p_ij, p = softmax_j s
    attention_max [0, 1]: largest attention
        mean over heads and rows of max_j p_ij
    attention_min [0, 1]: smallest attention
        mean over heads and rows of min_j p_ij
    """,
    source=INHERENT,
)
for name in ("cosine_in", "norm_in"):  # of the input alone
    MEASURED[name] = dataclasses.replace(MEASURED[name], dims=())
# of the curve over the norms N of the bias
FIXED_POINTS = _declare(
    """
    fixed_point: fixed point of the norm
        E |x + b| where E |T(x + b)| crosses it, interpolated in log N, T all blocks so far; NaN:
        they do not cross
    fixed_point_bias: norm of the bias at the fixed point
        N at fixed_point
    """,
    source=RECONSTRUCTED,
    units="activation",
)
QUANTITIES = MEASURED | FIXED_POINTS


def table(
    config: UntrainedConfig,
    kind: tuple[str, ...],
    index: int,
    norm: float,
    values: dict[str, np.ndarray],
) -> xr.Dataset:
    """Make the table of one kind of block and one norm of the bias, with every seed."""
    variables = {name: (("seed", *QUANTITIES[name].dims), value) for name, value in values.items()}
    dataset = xr.Dataset(variables, attrs={"config": json.dumps(dataclasses.asdict(config))})
    dataset = dataset.assign(bias_norm=norm).assign_coords(
        seed=config.seed + np.arange(config.seeds), block=np.arange(1, config.blocks + 1)
    )
    place = zip((*KIND, NORM), (*kind, config.norms[index]), strict=True)
    return dataset.expand_dims({name: [value] for name, value in place})


def join(config: UntrainedConfig, paths: list[pathlib.Path], root: pathlib.Path) -> None:
    """Write seeds.nc, results.nc and results.csv from all tables."""
    seeds = combine(config, [joined_files.read_table(path) for path in paths])
    results = summary(config, seeds)
    joined_files.write(seeds, root / "seeds.nc")
    joined_files.write(results, root / "results.nc")
    rows = tidy_seeds(results, QUANTITIES, COLUMNS).astype({"block": "Int64"})
    joined_files.write_csv(rows, root / "results.csv")


def combine(config: UntrainedConfig, tables: list[xr.Dataset]) -> xr.Dataset:
    """Combine all kinds and norms, in the order of the config, with the fixed points."""
    seeds = xr.combine_by_coords(tables, join="exact", combine_attrs="identical")
    seeds = seeds.drop_encoding()  # the lengths of labels differ between tables
    seeds = seeds.sel({name: list(getattr(config, f"{name}s")) for name in KIND})
    seeds = seeds.merge(fixed_points(seeds))
    for name, quantity in QUANTITIES.items():
        seeds[name].attrs = seed_attributes(quantity)
    seeds["bias_norm"].attrs = {
        "long_name": "norm of the bias",
        "units": "activation",
        "formula": "N = |b|",
        "source": INHERENT,
    }
    seeds["relative_norm"].attrs = {
        "long_name": "norm of the bias, relative",
        "units": "1",
        "formula": "N over the root mean square norm, expected at initialization, of what the bias is added to",
    }
    cut = ", truncated at 2 sigma" * config.truncated
    description = (
        f"untrained blocks, BERT's initial values (sigma {config.sigma:g}{cut}); D={config.width}; H={config.heads}; "
        f"F={config.expansion}D; {config.sequences} sequences × {config.context} rows of {config.vocabulary:,}; "
        f"seeds {config.seed}–{config.seed + config.seeds - 1}"
    )
    return seeds.assign_attrs(description=description)


def fixed_points(seeds: xr.Dataset) -> xr.Dataset:
    """Find per seed where norm_out first crosses norm_in, by linear interpolation in log N.

    Both norms are compared as logarithms, which are straight lines in log N for a large bias.
    """
    biased = seeds.isel(relative_norm=seeds.relative_norm.values > 0)
    order = (NORM, *(dim for dim in biased.norm_out.dims if dim != NORM))
    log_in, log_out, log_bias = (
        np.log(value.broadcast_like(biased.norm_out).transpose(*order).values.astype(np.float64))
        for value in (biased.norm_in, biased.norm_out, biased.bias_norm)
    )
    excess = log_out - log_in
    # values equal up to rounding do not cross
    sign = np.where(np.abs(excess) > 1e-5, np.sign(excess), 0)
    later = sign.copy()  # where they are equal, the sign of their next difference
    for place in range(len(sign) - 2, -1, -1):
        later[place] = np.where(sign[place] == 0, later[place + 1], sign[place])
    crosses = sign[:-1] * later[1:] < 0
    if len(crosses):
        first, met = crosses.argmax(0)[None], crosses.any(0)
        (left,), (right,) = (np.take_along_axis(excess, first + step, 0) for step in (0, 1))
        share = np.where(met, left, 0) / np.where(met, left - right, 1)

    def at_crossing(value: np.ndarray) -> np.ndarray:
        if not len(crosses):
            return np.full(excess.shape[1:], np.nan)
        (before,), (after,) = (np.take_along_axis(value, first + step, 0) for step in (0, 1))
        return np.where(met, np.exp(before + (after - before) * share), np.nan)

    points = {"fixed_point": at_crossing(log_in), "fixed_point_bias": at_crossing(log_bias)}
    return xr.Dataset({name: (order[1:], values) for name, values in points.items()})


def summary(config: UntrainedConfig, seeds: xr.Dataset) -> xr.Dataset:
    """Summarize every quantity over seeds, with its closed form where it has one."""
    results = summarize_seeds(QUANTITIES, seeds, predictions(config, seeds))
    return results.assign(bias_norm=seeds.bias_norm)


def predictions(config: UntrainedConfig, seeds: xr.Dataset) -> dict[str, xr.DataArray]:
    """Evaluate closed forms of the input and of the first block; NaN for the other blocks."""
    names = ("cosine_in", "score_std", "score_std_head", "score_std_within")
    bias = seeds.bias_norm.transpose(*KIND, NORM)
    predicted = {name: xr.full_like(bias, np.nan, dtype=np.float64) for name in names}
    for labels in itertools.product(*(seeds[name].values.tolist() for name in KIND)):
        place = dict(zip(KIND, labels, strict=True))
        norms = bias.sel(place).values
        in_input = norms if place["target"] == "input" else np.zeros_like(norms)
        cosine = untrained_theory.cosine_in(config, place["embedding"], in_input)
        deviations = untrained_theory.score_deviations(config, *labels, norms)
        for name, values in zip(names, (cosine, *deviations), strict=True):
            predicted[name].loc[place] = values
    words = "closed form, first block; this project: untrained_theory.py, leading order in 1/D"
    first = {
        name: value.where(seeds.block == 1) if QUANTITIES[name].dims else value
        for name, value in predicted.items()
    }
    return {name: value.drop_attrs().assign_attrs(predicted=words) for name, value in first.items()}
