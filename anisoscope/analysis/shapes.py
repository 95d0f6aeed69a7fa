"""Shapes: the bell, growth and phases of the papers as numbers, to compare runs.

shapes.csv has a row for each: its quantity, how it is read off, formula, units and source. The
papers show them as curves without a formula, so every definition here is this project's. Each
reads means over batches for each set of positions. "Over blocks" is the mean over block outputs
(layers 1 .. N, without the embedding), for attention over blocks and heads. "First" is step 0,
"last" the last measured checkpoint. A shape is NaN if undefined: a table without step 0, fewer
than 3 blocks for a bell or 2 for a deviation, a layer without a dimension.

Two nearest neighbors see a single scale. Where the dimension of a layer depends on the scale, as
early in training, an expansion may be a change of scale (docs/reference/metric_families.md).

Letters: S steps, X layers, or blocks and heads on two axes.
"""

import csv
import pathlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from anisoscope.metrics.attention import SINK_FROM
from anisoscope.results.frame import excess_of

PHASE = 0.2  # log2 units; a larger change is an expansion or a contraction


class Curve(NamedTuple):
    """Means of a quantity at each step, set of positions, and layer (or block and head)."""

    values_SPX: np.ndarray  # X: layers, or blocks and heads on two axes
    steps_S: np.ndarray
    layered: bool  # whether X are layers, whose first is the embedding


class Shape(NamedTuple):
    """A row of shapes.csv."""

    quantity: str
    read: Callable[[Curve], np.ndarray]  # -> (positions,)
    long_name: str
    formula: str
    units: str
    source: str


def read_curve(results: xr.Dataset, quantity: str) -> Curve:
    """Read the means of a quantity, or of its excess over Gaussian clouds, from results.nc."""
    name = quantity.removesuffix("_excess")
    values = results[name] if name == quantity else excess_of(results, name, "gaussian")
    means = values.sel(statistic="mean").sortby("step")
    means = means.transpose("step", "positions", ...)
    return Curve(means.values, means["step"].values, "layer" in means.dims)


def over_depth(curve: Curve) -> np.ndarray:
    """Average over block outputs, or over blocks and heads, (step, positions); NaN if any value is."""
    blocks_SPX = _blocks(curve)
    return blocks_SPX.mean(axis=tuple(range(2, blocks_SPX.ndim)))


def _blocks(curve: Curve) -> np.ndarray:
    return curve.values_SPX[:, :, 1:] if curve.layered else curve.values_SPX


def _last(curve: Curve) -> np.ndarray:
    return over_depth(curve)[-1]


def _first(curve: Curve) -> np.ndarray:
    return np.where(curve.steps_S[0] == 0, over_depth(curve)[0], np.nan)


def _largest(curve: Curve) -> np.ndarray:
    means_SP = over_depth(curve)
    return np.fmax.reduce(np.where(np.isfinite(means_SP), means_SP, np.nan))


def _largest_of_last(curve: Curve) -> np.ndarray:
    last_PX = _blocks(curve)[-1]
    return last_PX.reshape(len(last_PX), -1).max(axis=1)


def _inner_minus_ends(curve: Curve, first: int = 1, reduce: Callable = np.max) -> np.ndarray:
    """Subtract the reduced ends (layer `first` and the last) from the reduced layers between."""
    last_PL = curve.values_SPX[-1]
    if last_PL.shape[1] < first + 3:
        return np.full(len(last_PL), np.nan)
    return reduce(last_PL[:, first + 1 : -1], axis=1) - reduce(last_PL[:, [first, -1]], axis=1)


def std_over_layers(curve: Curve) -> np.ndarray:
    """Return the standard deviation over blocks of the last step; NaN for a single block."""
    last_PX = _blocks(curve)[-1]
    return np.where(last_PX.shape[1] > 1, last_PX.std(axis=1), np.nan)


def sink_head_share(curve: Curve, above: float = SINK_FROM) -> np.ndarray:
    """Return the share of heads whose mean attention on the first token is above a threshold."""
    last_PBH = curve.values_SPX[-1]
    known_P = ~np.isnan(last_PBH).any(axis=(1, 2))
    return np.where(known_P, (last_PBH > above).mean(axis=(1, 2)), np.nan)


def _straightening(curve: Curve, first: int) -> np.ndarray:
    last_PL = curve.values_SPX[-1]
    return np.where(last_PL.shape[1] > first + 1, last_PL[:, first] - last_PL[:, -1], np.nan)


def _growth_of_size(curve: Curve) -> np.ndarray:
    sizes = curve._replace(values_SPX=abs(curve.values_SPX))
    return _last(sizes) - _first(sizes)


@np.errstate(invalid="ignore", divide="ignore")
def _log2(above: np.ndarray, below: np.ndarray | float = 1.0) -> np.ndarray:
    """Take the base-2 logarithm of a ratio; NaN for 0, infinity or NaN."""
    logarithm = np.log2(above / below)
    return np.where(np.isfinite(logarithm), logarithm, np.nan)


READINGS: dict[str, Callable[[Curve], np.ndarray]] = {
    "bell": _inner_minus_ends,
    "bell_with_embedding": partial(_inner_minus_ends, first=0),
    "middle": partial(_inner_minus_ends, reduce=np.mean),
    "valley": partial(_inner_minus_ends, reduce=np.min),
    "std_over_layers": std_over_layers,
    "growth": lambda curve: _last(curve) - _first(curve),
    "decrease": lambda curve: _first(curve) - _last(curve),
    "growth_of_size": _growth_of_size,
    "log_growth": lambda curve: _log2(_last(curve), _first(curve)),
    "fall": lambda curve: _largest(curve) - _last(curve),
    "expansion": lambda curve: _log2(_largest(curve), _first(curve)),
    "compression": lambda curve: _log2(_largest(curve), _last(curve)),
    "last": _last,
    "log_last": lambda curve: _log2(_last(curve)),
    "largest": _largest_of_last,
    "sink_head_share": sink_head_share,
    "sink_token": lambda curve: curve.values_SPX[-1].mean(axis=2).max(axis=1),
    "straightening": partial(_straightening, first=1),
    "straightening_from_embedding": partial(_straightening, first=0),
}


def _read_shapes() -> dict[str, Shape]:
    with open(pathlib.Path(__file__).with_name("shapes.csv"), encoding="utf-8") as file:
        rows = {row.pop("name"): row for row in csv.DictReader(file)}
    return {name: Shape(**row | {"read": READINGS[row["read"]]}) for name, row in rows.items()}


SHAPES = _read_shapes()
SHAPED = {shape.quantity for shape in SHAPES.values()}


def shapes(results: xr.Dataset) -> xr.Dataset:
    """Compute every shape whose quantity was measured in a run, as variables (positions).

    `largest` is taken over checkpoints with a number, so expansion, compression and fall are never
    negative and noise makes them larger: compare them between runs, not with 0.
    """
    curves = {quantity: read_curve(results, quantity) for quantity in SHAPED & {*results}}
    attributes = ("long_name", "units", "formula", "quantity", "source")
    variables = {
        name: (
            "positions",
            shape.read(curves[shape.quantity]),
            {key: getattr(shape, key) for key in attributes},
        )
        for name, shape in SHAPES.items()
        if shape.quantity in curves
    }
    return xr.Dataset(variables, {"positions": results["positions"].values})
