"""Write tables of untrained blocks, and join them with intervals, predictions and fixed points.

There is one NetCDF file per kind of block and norm of the bias.

Predictions in closed form are expectations over initial values, for large D.

Setting. Rows x_i of the table have independent entries of variance s², so that |x_i|² = d = D s²,
and x_i x_j = 0 up to fluctuations of order d/sqrt(D); rows after LayerNorm have d = D. The common
bias b has norm N. Products are then

    (x_i + b)(x_j + b) = N² + d [i = j].
"""

import dataclasses
import itertools
import json
import math
import pathlib
from typing import NamedTuple

import numpy as np
import xarray as xr

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.untrained_config import UntrainedConfig
from anisoscope.metrics.attention import ATTENTION_QUANTITIES
from anisoscope.metrics.quantity import (
    INHERENT,
    RECONSTRUCTED,
    correlation,
    magnitude,
    norm,
)
from anisoscope.models.masks import visible_keys
from anisoscope.results import joined_files
from anisoscope.results.summary import seed_attributes, summarize_seeds, tidy_seeds
from anisoscope.utils.errors import RunError


class Kind(NamedTuple):
    """One kind of block: norm order, mask, embedding, and what the bias is added to."""

    norm_order: str
    mask: str
    embedding: str
    target: str


KIND_COLUMNS, NORM = Kind._fields, "relative_norm"
UNTRAINED_COLUMNS = (
    *KIND_COLUMNS,
    NORM,
    "bias_norm",
    "block",
)  # of results.csv, before the numbers

# x: rows of the table; b: the common bias; T: all blocks so far; s_ij = <q_i, k_j>/sqrt(K);
# p = softmax_j s
UNTRAINED_MEASURED = {
    "cosine_in": correlation("mean cosine in", "mean cosine of pairs of x + b", INHERENT),
    "cosine_out": correlation(
        "mean cosine out", "mean cosine of pairs of T(x + b), T all blocks so far", INHERENT
    ),
    "norm_in": norm("mean norm in", "E |x + b|", INHERENT, symbol="E |x + b|"),
    "norm_out": norm(
        "mean norm out", "E |T(x + b)|, T all blocks so far", INHERENT, symbol="E |T(x + b)|"
    ),
    "score_std_head": magnitude(
        "deviation of scores within heads", "sqrt(mean over heads of var s_ij)"
    ),
}
HEAD_QUANTITIES = (
    "score_std",
    "score_std_within",
    "attention_entropy",
    "attention_max",
    "attention_min",
)
UNTRAINED_MEASURED |= {
    name: dataclasses.replace(
        ATTENTION_QUANTITIES[name],
        formula=f"{ATTENTION_QUANTITIES[name].formula}; all heads",
    )
    for name in HEAD_QUANTITIES
}
# of the curve over the norms N of the bias
FIXED_POINTS = {
    "fixed_point": norm(
        "fixed point of the norm",
        "E |x + b| where E |T(x + b)| crosses it, interpolated in log N, T all blocks so far; NaN: "
        "they do not cross",
        RECONSTRUCTED,
    ),
    "fixed_point_bias": norm(
        "norm of the bias at the fixed point", "N at fixed_point", RECONSTRUCTED
    ),
}
BIAS = {
    "bias_norm": norm("norm of the bias", "N = |b|", INHERENT),
    NORM: magnitude(
        "norm of the bias, relative",
        "N over the root mean square norm, expected at initialization, of what the bias is added to",
    ),
}
INPUT_QUANTITIES = ("cosine_in", "norm_in")  # quantities of the input, which have no block
UNTRAINED_MEASURED, FIXED_POINTS = (
    {
        name: dataclasses.replace(
            entry, dims=() if name in INPUT_QUANTITIES else ("block",), resampling=""
        )
        for name, entry in entries.items()
    }
    for entries in (UNTRAINED_MEASURED, FIXED_POINTS)
)
UNTRAINED_QUANTITIES = UNTRAINED_MEASURED | FIXED_POINTS


def kinds(config: UntrainedConfig) -> list[Kind]:
    """Return every combination of the settings that make a kind of block."""
    choices = (getattr(config, f"{name}s") for name in KIND_COLUMNS)
    return [Kind(*kind) for kind in itertools.product(*choices)]


def kind_table(
    config: UntrainedConfig, kind: Kind, index: int, values: dict[str, np.ndarray]
) -> xr.Dataset:
    """Make the table of one kind of block and one norm of the bias, with every seed."""
    variables = {
        name: (("seed", *UNTRAINED_QUANTITIES[name].dims), value) for name, value in values.items()
    }
    dataset = xr.Dataset(variables, attrs={"config": json.dumps(dataclasses.asdict(config))})
    relative = config.norms[index]
    dataset = dataset.assign(bias_norm=bias_norm(config, kind, relative)).assign_coords(
        seed=config.seed + np.arange(config.seeds), block=np.arange(1, config.blocks + 1)
    )
    place = kind._asdict() | {NORM: relative}
    return dataset.expand_dims({name: [value] for name, value in place.items()})


def join_kinds(config: UntrainedConfig, paths: list[pathlib.Path], root: pathlib.Path) -> None:
    """Write seeds.nc, results.nc and results.csv from all tables."""
    tables = [joined_files.read_table(path) for path in paths]
    if len({tuple(table[name].item() for name in (*KIND_COLUMNS, NORM)) for table in tables}) < len(
        tables
    ):
        raise RunError(f"{root} holds a measurement twice; delete the copy")
    seeds = combine(config, tables)
    results = summarize_seeds(UNTRAINED_QUANTITIES, seeds, predictions(config, seeds))
    joined_files.write_table(seeds, root / "seeds.nc")
    joined_files.write_table(results, root / "results.nc")
    rows = tidy_seeds(results, UNTRAINED_QUANTITIES, UNTRAINED_COLUMNS).astype({"block": "Int64"})
    joined_files.write_csv(rows, root / "results.csv")


def combine(config: UntrainedConfig, tables: list[xr.Dataset]) -> xr.Dataset:
    """Combine all kinds and norms, in the order of the config, with the fixed points."""
    seeds = xr.combine_by_coords(tables, join="exact", combine_attrs="identical")
    seeds = seeds.drop_encoding()  # the lengths of labels differ between tables
    seeds = seeds.sel({name: list(getattr(config, f"{name}s")) for name in KIND_COLUMNS})
    seeds = seeds.merge(fixed_points(seeds)).set_coords("bias_norm")
    for name, quantity in (UNTRAINED_QUANTITIES | BIAS).items():
        seeds[name].attrs = seed_attributes(quantity)
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
    curves = [np.log(biased[x].astype(np.float64)) for x in ("norm_in", "norm_out", "bias_norm")]
    points = xr.apply_ufunc(
        _first_crossing,
        *curves,
        input_core_dims=[[NORM]] * 3,
        output_core_dims=[[], []],
        vectorize=True,
    )
    return xr.Dataset(dict(zip(FIXED_POINTS, points, strict=True)))


def _first_crossing(
    log_in: np.ndarray, log_out: np.ndarray, log_bias: np.ndarray
) -> tuple[float, float]:
    """Return the norm and the bias where one curve crosses another; NaN where they do not."""
    excess = log_out - log_in
    distinct = np.flatnonzero(np.abs(excess) > 1e-5)  # values equal up to rounding do not cross
    turns = np.flatnonzero(np.diff(np.sign(excess[distinct])))
    if not turns.size:
        return np.nan, np.nan
    left = distinct[turns[0]]
    share = excess[left] / (excess[left] - excess[left + 1])
    norm, bias = (x[left] + share * (x[left + 1] - x[left]) for x in (log_in, log_bias))
    return np.exp(norm), np.exp(bias)


def predictions(config: UntrainedConfig, seeds: xr.Dataset) -> dict[str, xr.DataArray]:
    """Evaluate closed forms of the input and of the first block; NaN for the other blocks."""
    names = ("cosine_in", "score_std", "score_std_head", "score_std_within")
    bias = seeds.bias_norm.transpose(*KIND_COLUMNS, NORM).drop_attrs()
    predicted = {name: xr.full_like(bias, np.nan, dtype=np.float64) for name in names}
    for kind in kinds(config):
        norms = bias.sel(kind._asdict()).values
        in_input = norms if kind.target == "input" else np.zeros_like(norms)
        found = {"cosine_in": cosine_in(config, kind.embedding, in_input)}
        for name, values in (found | score_deviations(config, kind, norms)).items():
            predicted[name].loc[kind._asdict()] = values
    words = "closed form, first block; this project: untrained_tables.py, leading order in 1/D"
    for name, value in predicted.items():
        value = value.where(seeds.block == 1) if UNTRAINED_QUANTITIES[name].dims else value
        predicted[name] = value.assign_attrs(predicted=words)
    return predicted


def deviation(config: UntrainedConfig) -> float:
    """Return s, the deviation of table entries and kernels: 0.8796 sigma where cut at 2 sigma.

    Var(z | |z| < a) = 1 - 2 a phi(a) / (2 Phi(a) - 1).
    """
    cut = 2.0
    density = math.exp(-(cut**2) / 2) / math.sqrt(2 * math.pi)
    variance = 1 - 2 * cut * density / math.erf(cut / math.sqrt(2))
    return config.sigma * (math.sqrt(variance) if config.truncated else 1.0)


def row_norm(config: UntrainedConfig, embedding: str) -> float:
    """Return sqrt(d): the root mean square norm of the vectors that the bias is added to."""
    return math.sqrt(config.width) * (deviation(config) if embedding == "raw" else 1.0)


def bias_norm(config: UntrainedConfig, kind: Kind, relative: float) -> float:
    """Return the norm of a bias from its norm relative to the input's, or to all heads' queries'.

    A query W'z has |W'z|² = D s² |z|² in expectation; z is the input, or in pre-LN its LayerNorm,
    |z|² = D.
    """
    norm = row_norm(config, kind.embedding)
    if kind.target != "input":
        attended = math.sqrt(config.width) if kind.norm_order == "pre" else norm
        norm = math.sqrt(config.width) * deviation(config) * attended
    return relative * norm


def cosine_in(config: UntrainedConfig, embedding: str, bias_norm: np.ndarray) -> np.ndarray:
    """Return c + (1 - c)/V: c = N²/(N² + d) for different rows, 1 for equal ones, 1 pair in V."""
    energy = row_norm(config, embedding) ** 2
    cosine = np.square(bias_norm) / (np.square(bias_norm) + energy)
    return cosine + (1 - cosine) / config.vocabulary


def score_deviations(
    config: UntrainedConfig, kind: Kind, bias_norm: np.ndarray
) -> dict[str, np.ndarray]:
    """Return deviations of the first block's scores, expected over W_q, W_k and the rows.

    They are those of all scores, heads together; within heads; and within rows.

    s_ij = (W_q'z_i + b_q)(W_k'z_j + b_k)/sqrt(K), kernels of variance s², heads of width K. Over
    the kernels, E s is the constant b_q b_k/sqrt(K) of a head, and the other three terms are
    uncorrelated:

        cov(s_ij, s_kl) = s⁴ (z_i z_k)(z_j z_l) + s² (|b_q|² (z_j z_l) + |b_k|² (z_i z_k))/D,

    where |b_q|² counts all heads. Insert z_i z_k = N² + d [i = k] and average over the pairs that
    the mask shows: n_i keys in row i, M = sum n_i pairs and R = sum n_i² in each of B sequences.
    All: var s = s⁴ (N² + d)² + s² (N² + d)(|b_q|² + |b_k|²)/D. Rows: E var = (s⁴ (N² + d) + s²
    |b_q|²/D) d (1 - 1/n_i). What is constant in a row, as a bias of the keys, drops out, so that
    this deviation grows as N where that of all scores grows as N². Heads: the first line less the
    variance of the head's mean, s⁴ (N⁴ + (2 N² d R/M² + d²/M)/B) + s² (N² + d R/(M² B))(|b_q|² +
    |b_k|²)/D. Of all scores only 1/H of it is lost, since b'W_q W_k'b is another number in each
    head; and where queries and keys share a bias, so is their b_q b_k, N² times Beta(K/2, (D -
    K)/2). In pre-LN z = LayerNorm(x + b), which divides N² and d by (N² + d)/D.
    """
    width, heads, time = config.width, config.heads, config.context
    sigma_2, sigma_4 = deviation(config) ** 2, deviation(config) ** 4
    norm_2 = np.square(np.asarray(bias_norm, np.float64))
    common = norm_2 * (kind.target == "input")
    own = np.full_like(norm_2, row_norm(config, kind.embedding) ** 2)
    if kind.norm_order == "pre":
        common, own = (part * width / (common + own) for part in (common, own))
    query, key = (norm_2 * (kind.target in (name, "both")) for name in ("queries", "keys"))

    keys_T = keys_of_rows(kind.mask, time)
    pairs, rows = keys_T.sum(), np.square(keys_T).sum() / keys_T.sum() ** 2
    shared = 2 * common * own * rows + np.square(own) / pairs
    product = sigma_4 * (np.square(common) + shared / config.sequences)
    sides = sigma_2 * (query + key) / width
    square = sigma_4 * np.square(common + own) + sides * (common + own)
    head_mean = product + sides * (common + own * rows / config.sequences)
    head_width = width // heads
    offset = 2 * np.square(norm_2) * (width - head_width) / (width**2 * (width + 2))
    offset = offset * (kind.target == "both")
    free = np.mean(1 - 1 / keys_T[keys_T > 1])
    within = (sigma_4 * (common + own) + sigma_2 * query / width) * own * free
    return {
        "score_std": np.sqrt(square - head_mean / heads + offset),
        "score_std_head": np.sqrt(square - head_mean),
        "score_std_within": np.sqrt(within),
    }


def keys_of_rows(mask: str, time: int) -> np.ndarray:
    """Return how many keys each query sees, (T,), for masks without extra settings."""
    return np.asarray(visible_keys(ModelConfig(mask=mask, context=time), time)).sum(axis=1)
