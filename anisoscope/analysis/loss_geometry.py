"""Do tokens, or windows, that a model predicts badly lie elsewhere? Read off the tables of single points of a run.

A contrast within one checkpoint and no score: geometry of a representation does not tell how well a model does, between
models least of all (arXiv 2602.20433). Position and frequency move both loss and geometry, so they are held.
"""

import pathlib

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from anisoscope.measurement.intervals import LEVEL
from anisoscope.measurement.tables import files
from anisoscope.utils.errors import UserError

GEOMETRY = ("norm", "cosine_to_mean", "turning_angle", "local_dimension")
FEWEST = 8  # points, or windows, that are told


def of_run(root: str | pathlib.Path) -> pd.DataFrame:
    """Of every checkpoint whose single points were measured, by step."""
    paths = sorted((pathlib.Path(root) / "points").glob("*.nc"), key=lambda path: int(path.stem))
    if not paths:
        raise UserError(f"{root} has no tables of single points: measure them with measure.points_table=True")
    return pd.concat([of_points(files.read_table(path), str(path)).assign(step=int(path.stem)) for path in paths])


def of_points(points: xr.Dataset, name: str = "the table") -> pd.DataFrame:
    """Spearman's correlation of loss and geometry, a row for each layer, quantity and level, and the partial one.

    level "token": of all points, given position and log frequency of the token. level "window": of means over the
    points of a window, given their mean log frequency. Both correlations are of ranks; the partial one is that of what
    a linear map of the ranks of what is held leaves of both. Intervals: 95 %, Student's by the jackknife over windows,
    of artanh; windows of one text count as independent. NaN for fewer than 8, or for a constant.
    """
    if "loss" not in points:
        raise UserError(f"{name} has no losses of single points; move its folder away and measure them again")
    frequency_P = np.log(points.frequency.sel(ngram=1).values)
    held = pd.DataFrame({"position": points.position.values, "frequency": frequency_P})
    rows = []
    for layer in points.layer.values:
        for quantity in GEOMETRY:
            value = points[quantity].sel(layer=layer)
            value = value.isel(neighbours=0) if "neighbours" in value.dims else value
            own = held.assign(value=value.values, loss=points.loss.values, window=points.window.values).dropna()
            means = own.groupby("window").mean().drop(columns="position").assign(window=lambda one: one.index)
            for level, frame in (("token", own), ("window", means)):
                rows.append({"layer": int(layer), "quantity": quantity, "level": level} | _row(frame))
    return pd.DataFrame(rows)


def _row(frame: pd.DataFrame) -> dict[str, float]:
    held = [name for name in ("position", "frequency") if name in frame]
    rows, window = frame[["value", "loss", *held]].to_numpy(), frame["window"].to_numpy()
    windows = np.unique(window)
    row = {"n": len(rows), "windows": len(windows)}
    for name, read in (("spearman", spearman), ("partial", partial)):
        whole, without = np.nan, [np.nan] * 2
        if len(rows) >= FEWEST and len(windows) > 1:
            whole, without = read(rows), [read(rows[window != one]) for one in windows]
        with np.errstate(divide="ignore", invalid="ignore"):  # of 1
            middle, moved = np.arctanh(whole), np.arctanh(without)
            error = (len(moved) - 1) ** 0.5 * moved.std()
        reach = stats.t.ppf((1 + LEVEL) / 2, len(moved) - 1) * error
        row |= {name: whole, f"{name}_low": np.tanh(middle - reach), f"{name}_high": np.tanh(middle + reach)}
    return row


def spearman(rows: np.ndarray) -> float:
    """Of the first two columns; NaN where one is constant."""
    return _correlation(*stats.rankdata(rows[:, :2], axis=0).T)


def partial(rows: np.ndarray) -> float:
    """Of the first two columns, given the others."""
    ranks = stats.rankdata(rows, axis=0)
    design = np.column_stack([np.ones(len(ranks)), ranks[:, 2:]])
    left = ranks[:, :2] - design @ np.linalg.lstsq(design, ranks[:, :2], rcond=None)[0]
    return _correlation(*left.T)


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    x, y = x - x.mean(), y - y.mean()
    size = np.linalg.norm(x) * np.linalg.norm(y)
    return float(x @ y / size) if size > 1e-9 * len(x) else np.nan
