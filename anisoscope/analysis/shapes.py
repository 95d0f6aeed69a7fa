"""Shapes: the bell, growth and phases of the papers as numbers, to compare runs.

The papers show them as curves without a formula, so every definition here is this project's. Each
reads means over batches for each set of positions. "Over blocks" is the mean over block outputs
(layers 1 .. N, without the embedding), for attention over blocks and heads. "First" is step 0,
"last" the last measured checkpoint. A shape is NaN if undefined: a table without step 0, fewer
than 3 blocks for a bell, a layer without a dimension.

Two nearest neighbors see a single scale. While a layer has no plateau of dimension (`plateau`), as
early in training, an expansion may be a change of scale.

Letters: S steps, X layers, or blocks and heads on two axes.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import xarray as xr

from anisoscope.measurement.families.attention_family import SINK_FROM
from anisoscope.measurement.quantity import HERE, INHERENT, SHAPE_OF_LEARNING

LINEAR = "Razzhigaev et al. 2024, Your Transformer is Secretly Linear"
STRAIGHTEN, LAYERS = "Hosseini and Fedorenko 2023", "Skean et al. 2025"
PHASE = 0.2  # log2 units; the findings call a larger change an expansion or a contraction


class Curve(NamedTuple):
    """Means of a quantity at each step, set of positions, and layer (or block and head)."""

    values_SPX: np.ndarray  # X: layers, or blocks and heads on two axes
    steps_S: np.ndarray
    layered: bool  # whether X are layers, whose first is the embedding


class Shape(NamedTuple):
    quantity: str
    read: Callable[[Curve], np.ndarray]  # -> (positions,)
    long_name: str
    formula: str
    units: str = "1"
    source: str = HERE


def read_curve(results: xr.Dataset, quantity: str) -> Curve:
    """Read the means of a quantity from results.nc."""
    means = results[quantity].sel(statistic="mean").sortby("step")
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


def sink_head_share(curve: Curve, above: float = SINK_FROM) -> np.ndarray:
    """Return the share of heads whose mean attention on the first token is above a threshold."""
    last_PBH = curve.values_SPX[-1]
    known_P = ~np.isnan(last_PBH).any(axis=(1, 2))
    return np.where(known_P, (last_PBH > above).mean(axis=(1, 2)), np.nan)


def _sink_token(curve: Curve) -> np.ndarray:
    return curve.values_SPX[-1].mean(axis=2).max(axis=1)


def _std_over_layers(curve: Curve) -> np.ndarray:
    return _blocks(curve)[-1].std(axis=1)


def _straightening(curve: Curve, first: int) -> np.ndarray:
    last_PL = curve.values_SPX[-1]
    return np.where(last_PL.shape[1] > first + 1, last_PL[:, first] - last_PL[:, -1], np.nan)


def _growth(curve: Curve) -> np.ndarray:
    return _last(curve) - _first(curve)


def _growth_of_size(curve: Curve) -> np.ndarray:
    return _growth(curve._replace(values_SPX=abs(curve.values_SPX)))


def _fall(curve: Curve) -> np.ndarray:
    return _largest(curve) - _last(curve)


@np.errstate(invalid="ignore", divide="ignore")
def _log2(above: np.ndarray, below: np.ndarray | float = 1.0) -> np.ndarray:
    """Take the base-2 logarithm of a ratio; NaN for 0, infinity or NaN."""
    logarithm = np.log2(above / below)
    return np.where(np.isfinite(logarithm), logarithm, np.nan)


def _expansion(quantity: str, suffix: str = "", rule: str = "") -> dict[str, Shape]:
    """Return the two phases of a dimension, by an estimator's rule."""
    shape = partial(Shape, quantity, units="log2 units", source=PAPER)
    return {
        f"expansion{suffix}": shape(
            lambda v: _log2(_largest(v), _first(v)),
            f"expansion of the dimension{rule}",
            "log2(largest / first), dimension over blocks",
        ),
        f"compression{suffix}": shape(
            lambda v: _log2(_largest(v), _last(v)),
            f"compression of the dimension{rule}",
            "log2(largest / last), dimension over blocks",
        ),
    }


PAPER, GODEY = f"{HERE}, reading {SHAPE_OF_LEARNING}", f"{HERE}, reading {INHERENT}"
_anisotropy = partial(Shape, "anisotropy", source=PAPER)
_attention_first_token = partial(Shape, "attention_first_token")
_over_blocks = partial(Shape, read=_last, formula="last, over blocks")
_largest_block = partial(Shape, read=_largest_of_last, formula="last: largest over blocks")
_straight = partial(Shape, "curvature", units="rad", source=f"{HERE}, reading {STRAIGHTEN}")
_level = partial(  # for quantities on a ratio scale: a change of the logarithm is a ratio
    Shape,
    read=lambda v: _log2(_last(v)),
    formula="log2 of the mean over blocks (and heads, or matrices), last",
    units="log2 units",
)

SHAPES = {
    "bell_blocks": _anisotropy(
        _inner_minus_ends,
        "bell of anisotropy",
        "last: largest of blocks 2 .. N-1 minus the larger of blocks 1 and N; a slope or a valley gives < 0",
    ),
    "bell_with_embedding": _anisotropy(
        partial(_inner_minus_ends, first=0),
        "bell of anisotropy, with the embedding",
        "last: largest of blocks 1 .. N-1 minus the larger of the embedding and block N; a slope or a valley gives < 0",
    ),
    "middle_minus_ends": _anisotropy(
        partial(_inner_minus_ends, reduce=np.mean),
        "middle of anisotropy minus its ends",
        "last: mean over blocks 2 .. N-1 minus mean of blocks 1 and N; a straight slope gives 0, a valley < 0, and so "
        "does a peak in block 1",
    ),
    "std_over_layers": _anisotropy(
        _std_over_layers,
        "standard deviation of anisotropy over layers",
        "last: standard deviation over blocks 1 .. N (ddof 0); 0 is flat",
    ),
    "growth": _anisotropy(_growth, "growth of anisotropy", "last minus first, over blocks"),
    "drop_from_peak": _anisotropy(
        _fall,
        "fall of anisotropy from its peak",
        "largest over checkpoints minus last, over blocks; 0 if it grows and stabilizes, never negative",
    ),
    **_expansion("twonn"),
    **_expansion("twonn_microscope", "_microscope", " (microscope)"),
    "cosine_growth": Shape(
        "mean_cosine",
        _growth,
        "growth of the mean cosine",
        "last minus first, over blocks",
        source=GODEY,
    ),
    "drift_growth": Shape(
        "drift",
        lambda v: _log2(_last(v), _first(v)),
        "growth of the drift",
        "log2(last / first), over blocks",
        "log2 units",
        GODEY,
    ),
    "entropy_decrease": Shape(
        "attention_entropy",
        lambda v: -_growth(v),
        "sharpening of attention",
        "entropy at first minus at last, over blocks and heads; a mask's largest entropy cancels",
        "nat",
        GODEY,
    ),
    "alignment_growth": Shape(
        "query_key_alignment",
        _growth_of_size,
        "growth of the alignment of query and key drift",
        "last minus first, over blocks and heads, of |cos(E q, E k)|: the sign of a head's scores does not count",
        source=GODEY,
    ),
    "sink": _attention_first_token(
        _last, "attention on the first token", "last, over blocks and heads", source=GODEY
    ),
    "sink_head_share": _attention_first_token(
        sink_head_share,
        "share of the heads with an attention sink",
        f"last: share of all heads of all blocks with a mean attention on the first token above {SINK_FROM}",
        source=f"{HERE}, after Gu et al. 2025",
    ),
    "sink_token": _attention_first_token(
        _sink_token,
        "attention of a block on the first token",
        "last: largest over blocks of the mean over heads of the attention on the first token",
    ),
    "largest_attention_first_token": _attention_first_token(
        _largest_of_last,
        "largest attention of a head on the first token",
        "last: largest over blocks and heads",
    ),
    "largest_norm_ratio": _largest_block("norm_ratio", long_name="largest norm over the median"),
    "largest_anisotropy": _largest_block("anisotropy", long_name="largest anisotropy"),
    "last_anisotropy": _over_blocks("anisotropy", long_name="anisotropy over blocks"),
    "last_dimension": _level("twonn", long_name="dimension over blocks"),
    "last_drift": _level("drift", long_name="drift over blocks"),
    "last_outliers": _level("coordinate_kurtosis", long_name="kurtosis across coordinates"),
    "last_query_drift": _level("query_drift", long_name="drift of queries"),
    "last_key_drift": _level("key_drift", long_name="drift of keys"),
    "straightening_blocks": _straight(
        partial(_straightening, first=1),
        "straightening of trajectories from block to block",
        "last: curvature of block 1 minus that of block N",
    ),
    "straightening_from_embedding": _straight(
        partial(_straightening, first=0),
        "straightening of trajectories from the embedding",
        "last: curvature of the embedding minus that of block N",
    ),
    "last_linearity": _over_blocks(
        "linearity",
        long_name="linearity of a layer in the one before",
        source=f"{HERE}, reading {LINEAR}",
    ),
    "last_linearity_update": _over_blocks(
        "linearity_update",
        long_name="linearity of a block's update",
        source=f"{HERE}, reading {LINEAR}",
    ),
    "entropy_valley": Shape(
        "prompt_entropy",
        partial(_inner_minus_ends, reduce=np.min),
        "inner entropy of windows minus that of the ends",
        "last: smallest of blocks 2 .. N-1 minus the smaller of blocks 1 and N; a valley gives < 0",
        "nat",
        f"{HERE}, reading {LAYERS}",
    ),
}


QUANTITIES = {shape.quantity for shape in SHAPES.values()}


def shapes(results: xr.Dataset) -> xr.Dataset:
    """Compute every shape whose quantity was measured in a run, as variables (positions).

    `largest` is taken over checkpoints with a number, so expansion, compression and fall are never
    negative and noise makes them larger: compare them between runs, not with 0.
    """
    curves = {quantity: read_curve(results, quantity) for quantity in QUANTITIES & {*results}}
    about = ("long_name", "units", "formula", "quantity", "source")
    variables = {
        name: (
            "positions",
            shape.read(curves[shape.quantity]),
            {key: getattr(shape, key) for key in about},
        )
        for name, shape in SHAPES.items()
        if shape.quantity in curves
    }
    return xr.Dataset(variables, {"positions": results["positions"].values})
