"""Do mean cosine and drift go together, within models and across them, modality by modality?

After Godey et al. 2024, second-hand: which layers and models were pooled is not stated where we
could read, so every way of pooling is a reconstruction and has rows of its own. Intervals of pooled
layers take them for independent draws, which the layers of one model are not; `within` alone counts
models.
"""

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from anisoscope.analysis.correlations import Correlation, corrected, correlate
from anisoscope.measurement.intervals import LEVEL

X, Y = "drift", "mean_cosine"
ALL = "all"
POSITIONS = ("all", "without_first", "without_special")
POOLED, WITHIN, MODELS = "layers, models", "within", "models"  # beside the layers of each model


def correlations(tables: dict[str, xr.Dataset], modality: dict[str, str]) -> pd.DataFrame:
    """A row for each set of points; `tables` are results.nc by model, of which the last revision
    counts.

    `over` is "layers" (of the one `model`), "layers, models" (all of a modality together), "models" (a point for each:
    its means over layers), or "within": the mean of the correlations within models with a t interval over models, whose
    number is then `n`. Where there are several, modality "all" has every model. The p with `holm` in their names are
    corrected for the `tests` correlations that have `over` and `positions` in common.
    """
    rows = []
    held = {
        label: table.isel(step=-1) for label, table in tables.items() if X in table and Y in table
    }
    kinds = {
        kind: [label for label in held if modality[label] == kind]
        for kind in map(modality.get, held)
    }
    for kind, labels in (kinds | ({ALL: list(held)} if len(kinds) > 1 else {})).items():
        shared = set.intersection(*({*held[label].positions.values.tolist()} for label in labels))
        for positions in (one for one in POSITIONS if one in shared):
            points = [[_means(held[label], name, positions) for name in (X, Y)] for label in labels]
            inside = [correlate(*pair) for pair in points]
            of_each = [
                ("layers", label, one)
                for label, one in zip(labels, inside, strict=True)
                if kind != ALL
            ]
            of_each += [
                (
                    POOLED,
                    "",
                    correlate(*(np.concatenate(values) for values in zip(*points, strict=True))),
                ),
                (
                    MODELS,
                    "",
                    correlate(*np.array([[one.mean() for one in pair] for pair in points]).T),
                ),
                (WITHIN, "", within(inside)),
            ]
            about = {"modality": kind, "positions": positions, "models": len(labels)}
            rows += [
                about | {"over": over, "model": label} | one._asdict()
                for over, label, one in of_each
            ]
    frame = pd.DataFrame(
        rows, columns=["modality", "positions", "over", "model", "models", *Correlation._fields]
    )
    return corrected(frame, "over", "positions")


def within(of_models: list[Correlation]) -> Correlation:
    """The mean of the correlations within models; interval, cut at -1 and 1, and p of Student's t
    over them.

    `n` is how many models have one; NaN where none has, and without interval or p where one or all
    are the same.
    """
    parts = []
    for name in ("pearson", "spearman"):
        r = np.array([getattr(one, name) for one in of_models])
        r = r[np.isfinite(r)]
        mean, low, high, p = (r.mean() if r.size else np.nan), np.nan, np.nan, np.nan
        if r.size > 1 and np.ptp(r) > 0:
            error = r.std(ddof=1) / np.sqrt(r.size)
            reach = stats.t.ppf((1 + LEVEL) / 2, r.size - 1) * error
            low, high = np.clip((mean - reach, mean + reach), -1, 1)
            p = 2 * stats.t.sf(abs(mean) / error, r.size - 1)
        parts += [mean, p, low, high]
    return Correlation(sum(np.isfinite(one.pearson) for one in of_models), *map(float, parts))


def _means(table: xr.Dataset, name: str, positions: str) -> np.ndarray:
    return table[name].sel(statistic="mean", positions=positions).values
