"""Do mean cosine and drift go together, within models and across them, modality by modality?

After Godey et al. 2024, second-hand: which layers and models were pooled is not stated where we could read, so every
way of pooling is a reconstruction and has rows of its own. Intervals of pooled layers take them for independent draws,
which the layers of one model are not; `within` alone counts models.
"""

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from panel.intervals import LEVEL
from studies.correlations import Correlation, correlate, holm
from tables.summary import NOTHING

X, Y = "drift", "mean_cosine"
POOLED, WITHIN, MODELS = "layers, models", "within", "models"  # beside the layers of each model
FEWEST = 2  # models of which `within` has an interval


def correlations(tables: dict[str, xr.Dataset], modality: dict[str, str]) -> pd.DataFrame:
    """A row for each set of points; `tables` are results.nc by model, of which the last revision counts.

    `over` is "layers" (of the one `model`), "layers, models" (all of a modality together), "models" (a point for each:
    its means over layers), or "within": the mean of the correlations within models, on Fisher's scale, with a t
    interval over models, whose number is then `n`. The p with `holm` in their names are corrected for the `tests`
    correlations that have `over` and `positions` in common.
    """
    rows = []
    held = {label: table.isel(step=-1) for label, table in tables.items() if X in table and Y in table}
    for kind in dict.fromkeys(modality[label] for label in held):
        own = {label: table for label, table in held.items() if modality[label] == kind}
        shared = set.intersection(*({*table.positions.values.tolist()} for table in own.values()))
        for positions in sorted(shared, key=["all", "without_first", "without_special"].index):
            points = {label: (_means(table, X, positions), _means(table, Y, positions)) for label, table in own.items()}
            about = {"modality": kind, "positions": positions, "models": len(own)}
            inside = {label: correlate(x, y) for label, (x, y) in points.items()}
            rows += [about | {"over": "layers", "model": label} | one._asdict() for label, one in inside.items()]
            together = correlate(*(np.concatenate(values) for values in zip(*points.values(), strict=True)))
            means = correlate(
                *(np.array([np.nanmean(one) for one in values]) for values in zip(*points.values(), strict=True))
            )
            for over, one in ((POOLED, together), (MODELS, means), (WITHIN, within(list(inside.values())))):
                rows.append(about | {"over": over, "model": ""} | one._asdict())
    frame = pd.DataFrame(rows, columns=["modality", "positions", "over", "model", "models", *Correlation._fields])
    alike = frame.groupby(["over", "positions"])
    frame["tests"] = alike["pearson_p"].transform("count")
    for name in ("pearson", "spearman"):
        frame[f"{name}_p_holm"] = alike[f"{name}_p"].transform(holm)
    return frame


def within(found: list[Correlation]) -> Correlation:
    """The mean of artanh(r) over models, back as a correlation; interval and p of Student's t over them.

    NaN for models without a correlation, which count for nothing; r = +-1 is taken as +-0.999999.
    """
    parts = []
    for name in ("pearson", "spearman"):
        z = np.arctanh(np.clip([getattr(one, name) for one in found], -0.999999, 0.999999))
        z = z[np.isfinite(z)]
        mean, low, high, p = (z.mean() if z.size else np.nan), np.nan, np.nan, np.nan
        if z.size >= FEWEST and np.ptp(z) > 0:
            error = z.std(ddof=1) / np.sqrt(z.size)
            reach = stats.t.ppf((1 + LEVEL) / 2, z.size - 1) * error
            low, high, p = mean - reach, mean + reach, 2 * stats.t.sf(abs(mean) / error, z.size - 1)
        parts += [np.tanh(mean), p, np.tanh(low), np.tanh(high)]
    return Correlation(sum(np.isfinite(one.pearson) for one in found), *map(float, parts))


def _means(table: xr.Dataset, name: str, positions: str) -> np.ndarray:
    return table[name].sel(less=NOTHING, statistic="mean", positions=positions).values
