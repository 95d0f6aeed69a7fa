"""Pearson and Spearman correlations of quantities over layers, heads, checkpoints and runs.

Every p-value and interval assumes n independent points. They are not independent: layers share a
residual stream, heads an input, a checkpoint continues the one before, and models share a text. So
they are a scale for reading r, not a test. A pool over runs also mixes differences between runs
with variation within each. Holm's correction is over all correlations over the same points.
"""

import pathlib
from typing import NamedTuple

import numpy as np
import pandas as pd
import scipy  # loads scipy.stats at first use: it takes a second
import xarray as xr

from anisoscope.engine.intervals import LEVEL, holm
from anisoscope.results import joined_files

SHARPNESS = (
    *("attention_entropy", "attention_max", "attention_min"),
    *("score_std_within", "attention_first_token", "attention_most_attended"),
)
PAIRS = (("drift", "mean_cosine"), *(("query_key_alignment", name) for name in SHARPNESS))
# Spearman's p is exact up to this many points: the t approximation gives p = 0 for three in order
MOST_PERMUTED = 30
PERMUTATIONS = 9_999  # every ordering of up to 7 points; a random sample of that many beyond


class Correlation(NamedTuple):
    n: int  # pairs of finite numbers
    pearson: float
    pearson_p: float
    pearson_low: float
    pearson_high: float
    spearman: float
    spearman_p: float
    spearman_low: float
    spearman_high: float


def correlate(x: np.ndarray, y: np.ndarray) -> Correlation:
    """Correlate two arrays (P,), with two-sided p and 95 % intervals.

    Intervals are tanh(artanh(r) -+ 1.96 se) with se^2 = 1/(n - 3) for r, after Fisher, and (1 +
    rho^2/2)/(n - 3) for rho, after Bonett and Wright 2000; NaN for 3 pairs, and at r = +-1.

    Returns:
        NaN for fewer than 3 pairs of finite numbers, or a constant.
    """
    finite = np.isfinite(x) & np.isfinite(y)
    x, y = x[finite].astype(np.float64), y[finite].astype(np.float64)
    # tables hold float32
    if len(x) < 3 or any(np.ptp(values) <= 1e-6 * np.abs(values).max() for values in (x, y)):
        return Correlation(len(x), *[np.nan] * 8)
    orderings = scipy.stats.PermutationMethod(
        n_resamples=PERMUTATIONS, rng=np.random.default_rng(0)
    )
    method = orderings if len(x) <= MOST_PERMUTED else None
    pearson = scipy.stats.pearsonr(x, y)
    spearman = scipy.stats.pearsonr(scipy.stats.rankdata(x), scipy.stats.rankdata(y), method=method)
    r, rho = float(pearson.statistic), float(spearman.statistic)
    return Correlation(
        *(len(x), r, float(pearson.pvalue), *_interval(r, 1.0, len(x))),
        *(rho, float(spearman.pvalue), *_interval(rho, 1.0 + rho**2 / 2, len(x))),
    )


def _interval(r: float, variance: float, n: int) -> tuple[float, float]:
    if n <= 3 or abs(r) > 1 - 1e-12:  # at +-1 the approximation has no width
        return np.nan, np.nan
    middle, reach = (
        np.arctanh(r),
        scipy.stats.norm.ppf((1 + LEVEL) / 2) * (variance / (n - 3)) ** 0.5,
    )
    return float(np.tanh(middle - reach)), float(np.tanh(middle + reach))


def write_correlations(tables: dict[str, xr.Dataset], path: pathlib.Path) -> None:
    """Write the correlations of these tables as CSV."""
    joined_files.write_csv(correlations(tables), path)


def correlations(tables: dict[str, xr.Dataset]) -> pd.DataFrame:
    """Correlate each pair of quantities: a row for each run and set of points.

    Args:
        tables: The contents of results.nc, by run. A table may hold several runs that differ only
            in seeds (dimension `seed`). Layers are then means over seeds; heads are not averaged,
            since heads of different seeds do not correspond.

    Returns:
        `over` names the points: the layers (or heads) of a step, or of all steps; with run "all",
        those of each run's last step, or of all steps, or the mean within runs (`within_runs`).
        `step` is empty for several steps. `networks` is the number of runs. The p-values with
        `holm` in their names are corrected for the `tests` correlations that share positions,
        `over` and step.
    """
    rows = []
    for pair in PAIRS:
        both = {run: table for run, table in tables.items() if {*pair} <= {*table}}
        sets = dict.fromkeys(p for table in both.values() for p in table.positions.values)
        for positions in sets:
            runs = {
                run: table[list(pair)].sel(statistic="mean", positions=positions, drop=True)
                for run, table in both.items()
                if positions in table.positions
            }
            networks = {run: tables[run].sizes.get("seed", 1) for run in runs}
            for run, table in runs.items():
                points = "heads" if "head" in table.dims else "layers"
                samples = [(points, step, [table.sel(step=[step])]) for step in table.step.values]
                samples.append((f"{points}, steps", None, [table]))
                rows += [
                    (run, positions, *pair, networks[run], over, step, correlate_tables(own, pair))
                    for over, step, own in samples
                ]
            if len(runs) > 1:
                last = [table.isel(step=[-1]) for table in runs.values()]
                found = {
                    f"{points}, runs": correlate_tables(last, pair),
                    f"{points}, steps, runs": correlate_tables([*runs.values()], pair),
                    f"{points} within runs": within_runs(
                        [correlate_tables([x], pair) for x in last]
                    ),
                }
                attributes = ("all", positions, *pair, sum(networks.values()))
                rows += [(*attributes, over, None, own) for over, own in found.items()]
    columns = ["run", "positions", "x", "y", "networks", "over", "step"]
    records = [
        dict(zip(columns, attributes, strict=True)) | own._asdict() for *attributes, own in rows
    ]
    frame = pd.DataFrame(records, columns=[*columns, *Correlation._fields])
    groups = frame.groupby(["positions", "over", "step"], dropna=False)
    frame["tests"] = groups["pearson_p"].transform("count")
    for kind in ("pearson", "spearman"):
        frame[f"{kind}_p_holm"] = groups[f"{kind}_p"].transform(holm)
    return frame.astype({"step": "Int64"})


def correlate_tables(tables: list[xr.Dataset], pair: tuple[str, str]) -> Correlation:
    """Correlate two quantities over all points of these tables."""
    x, y = (
        np.concatenate([table[name].transpose("step", ...).values.ravel() for table in tables])
        for name in pair
    )
    return correlate(x, y)


def within_runs(inside: list[Correlation]) -> Correlation:
    """Average the correlations within runs, with Student's t interval in [-1, 1] and p.

    `n` is the number of runs with a correlation. NaN if there is none; no interval or p if there
    is a single one or all are equal.
    """
    parts = []
    for name in ("pearson", "spearman"):
        r = np.array([getattr(found, name) for found in inside])
        r = r[np.isfinite(r)]
        mean, low, high, p = (r.mean() if r.size else np.nan), np.nan, np.nan, np.nan
        if r.size > 1 and np.ptp(r) > 0:
            error = r.std(ddof=1) / np.sqrt(r.size)
            reach = scipy.stats.t.ppf((1 + LEVEL) / 2, r.size - 1) * error
            low, high = np.clip((mean - reach, mean + reach), -1, 1)
            p = 2 * scipy.stats.t.sf(abs(mean) / error, r.size - 1)
        parts += [mean, p, low, high]
    n = sum(np.isfinite(found.pearson) for found in inside)
    return Correlation(n, *map(float, parts))
