"""Do two quantities go together over layers, heads, checkpoints and runs? Pearson and Spearman,
with p and intervals.

Every p and interval takes its n points for independent draws. They are not: the layers of a stack
hand on one residual stream, the heads of a block read the same input, a checkpoint grows out of the
one before, and models share a text. So n overstates what is known, most of all where steps are
pooled, and p and interval are a scale to read r by, not a test. A pool over runs also mixes what
differs between them with what happens within each. Many correlations are looked at side by side:
beside each p stands the one corrected after Holm for all those of the same points.
"""

import pathlib
from typing import NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from anisoscope.measurement.intervals import LEVEL
from anisoscope.results import joined_files
from anisoscope.results.holm import holm

SHARPNESS = (
    *("attention_entropy", "attention_max", "attention_min", "score_std_within"),
    *("attention_first", "attention_most"),
)
PAIRS = (("drift", "mean_cosine"), *(("query_key_alignment", name) for name in SHARPNESS))
LETTERS = {"pearson": "r", "spearman": "ρ"}
# up to so many points Spearman's p is counted: the t approximation says p = 0 for three in order
PERMUTED = 30
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
    """Pearson's r and Spearman's rho with two-sided p and 95 % interval; NaN for fewer than 3 pairs
    or a constant.

    Intervals are tanh(artanh(r) -+ 1.96 se) with se^2 = 1/(n - 3) for r, after Fisher, and (1 +
    rho^2/2)/(n - 3) for rho, after Bonett and Wright 2000; NaN for 3 pairs; of no width at r = +-1.
    """
    both = np.isfinite(x) & np.isfinite(y)
    x, y = x[both].astype(np.float64), y[both].astype(np.float64)
    # tables hold float32
    if len(x) < 3 or any(np.ptp(values) <= 1e-6 * np.abs(values).max() for values in (x, y)):
        return Correlation(len(x), *[np.nan] * 8)
    orderings = stats.PermutationMethod(n_resamples=PERMUTATIONS, rng=np.random.default_rng(0))
    pearson = stats.pearsonr(x, y)
    spearman = stats.pearsonr(
        stats.rankdata(x), stats.rankdata(y), method=orderings if len(x) <= PERMUTED else None
    )
    r, rho = float(pearson.statistic), float(spearman.statistic)
    return Correlation(
        *(len(x), r, float(pearson.pvalue), *_interval(r, 1.0, len(x))),
        *(rho, float(spearman.pvalue), *_interval(rho, 1.0 + rho**2 / 2, len(x))),
    )


def _interval(r: float, variance: float, n: int) -> tuple[float, float]:
    if n <= 3:
        return np.nan, np.nan
    with np.errstate(divide="ignore"):  # r = +-1
        middle, reach = np.arctanh(r), stats.norm.ppf((1 + LEVEL) / 2) * (variance / (n - 3)) ** 0.5
    return float(np.tanh(middle - reach)), float(np.tanh(middle + reach))


def write(tables: dict[str, xr.Dataset], path: pathlib.Path) -> None:
    joined_files.write_csv(correlations(tables), path)


def correlations(tables: dict[str, xr.Dataset]) -> pd.DataFrame:
    """One row for each pair of quantities, each run, and each set of points.

    `tables` are what results.nc holds, by the name of the run; numbers are means over batches. The
    column `over` names the points: the layers (or heads) of one step, or of all steps; of several
    runs, with `run` all, those of the last step of each, or of all steps of each. `step` is empty
    where there is more than one. Positions as in the tables. A run may be several that differ in
    seeds only (dimension `seed`): `networks` says how many. Layers are then means over them, but
    heads are those of each: no head of one seed is the counterpart of one of another. The p with
    `holm` in their names are corrected for the `tests` correlations that have positions, `over` and
    step in common.
    """
    rows = []
    for x, y in PAIRS:
        held = {run: table for run, table in tables.items() if x in table and y in table}
        for positions in dict.fromkeys(
            p for table in held.values() for p in table.positions.values
        ):
            there = {run: table for run, table in held.items() if positions in table.positions}
            pairs = {
                run: (_means(table, x, positions), _means(table, y, positions))
                for run, table in there.items()
            }
            about = {"positions": positions, "x": x, "y": y}
            networks = {run: held[run].sizes.get("seed", 1) for run in pairs}
            for run, (of_x, of_y) in pairs.items():
                own = {"run": run, **about, "networks": networks[run]}
                points = "heads" if "head" in of_x.dims else "layers"
                for step in of_x.step.values:
                    correlation = correlate(
                        *(values.sel(step=step).values.ravel() for values in (of_x, of_y))
                    )
                    rows.append({**own, "over": points, "step": step, **correlation._asdict()})
                correlation = correlate(of_x.values.ravel(), of_y.values.ravel())
                rows.append(
                    {**own, "over": f"{points}, steps", "step": None, **correlation._asdict()}
                )
            if len(pairs) > 1:
                own = {"run": "all", **about, "networks": sum(networks.values())}
                for over, steps in (
                    (f"{points}, runs", slice(-1, None)),
                    (f"{points}, steps, runs", slice(None)),
                ):
                    pooled = [
                        [values.isel(step=steps).values.ravel() for values in pair]
                        for pair in pairs.values()
                    ]
                    correlation = correlate(
                        *(np.concatenate(values) for values in zip(*pooled, strict=True))
                    )
                    rows.append({**own, "over": over, "step": None, **correlation._asdict()})
    columns = ["run", "positions", "x", "y", "networks", "over", "step", *Correlation._fields]
    frame = pd.DataFrame(rows, columns=columns)
    return corrected(frame, "positions", "over", "step").astype({"step": "Int64"})


def corrected(frame: pd.DataFrame, *alike: str) -> pd.DataFrame:
    """With p corrected after Holm for all correlations that have these columns in common, and how
    many they are.
    """
    together = frame.groupby([*alike], dropna=False)
    frame["tests"] = together["pearson_p"].transform("count")
    for kind in LETTERS:
        frame[f"{kind}_p_holm"] = together[f"{kind}_p"].transform(holm)
    return frame


def _means(table: xr.Dataset, name: str, positions: str) -> xr.DataArray:
    means = table[name].sel(statistic="mean", positions=positions, drop=True)
    return means.transpose("step", ...)


def words(row: pd.Series) -> str:
    """Both correlations of a row, with their intervals and corrected p."""
    if row.n < 3:
        return f"n = {row.n:.0f}: too few points to correlate"
    if np.isnan(row.pearson):
        return f"n = {row.n:.0f}: constant, nothing to correlate"
    return f"n = {row.n:.0f}, {both(row)}"


def both(row: pd.Series) -> str:
    return ", ".join(f"{value(row, kind)} ({_p(row[f'{kind}_p_holm'])})" for kind in LETTERS)


def value(row: pd.Series, kind: str) -> str:
    """One correlation of a row with its interval, if any; `kind` is pearson or spearman."""
    r, low, high = row[kind], row[f"{kind}_low"], row[f"{kind}_high"]
    return f"{LETTERS[kind]} = {_signed(r)}" + (
        f" [{_signed(low)}, {_signed(high)}]" if low < high else ""
    )


def _signed(value: float) -> str:
    return f"{value:.2f}".replace("-", "\N{MINUS SIGN}")


def _p(value: float) -> str:
    return "no p" if np.isnan(value) else "p < 0.001" if value < 0.001 else f"p = {value:.2g}"
