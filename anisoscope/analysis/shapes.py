"""Shapes: the bell, growth and phases of the papers as numbers, to compare runs.

The papers show them as curves without a formula, so every definition here is this project's. Each
reads means over batches for each set of positions. "Over blocks" is the mean over block outputs
(layers 1 .. N, without the embedding), for attention over blocks and heads. "First" is step 0,
"last" the last measured checkpoint. A shape is NaN if undefined: a table without step 0, fewer
than 3 blocks for a bell, a layer without a dimension.

Two nearest neighbors see a single scale. While a layer has no plateau of dimension (`plateau`), as
early in training, an expansion may be a change of scale.
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
Values = xr.DataArray  # (step, positions, layer) or (step, positions, block, head)


class Shape(NamedTuple):
    quantity: str
    read: Callable[[Values], xr.DataArray]
    long_name: str
    formula: str
    units: str = "1"
    source: str = HERE


def over_depth(values: Values) -> xr.DataArray:
    """Average over block outputs, or over blocks and heads; NaN if any value is."""
    return _blocks(values).mean(_depth(values), skipna=False)


def _depth(values: Values) -> list[str]:
    return [dim for dim in ("layer", "block", "head", "kernel") if dim in values.dims]


def _blocks(values: Values) -> xr.DataArray:
    return values.isel(layer=slice(1, None)) if "layer" in values.dims else values


def _at_last(values: Values) -> xr.DataArray:
    return values.isel(step=-1, drop=True)


def _last(values: Values) -> xr.DataArray:
    return over_depth(_at_last(values))


def _first(values: Values) -> xr.DataArray:
    return over_depth(values).reindex(step=[0]).isel(step=0, drop=True)


def _largest(values: Values) -> xr.DataArray:
    means = over_depth(values)
    return means.where(np.isfinite(means)).max("step")


def _largest_of_last(values: Values) -> xr.DataArray:
    return _at_last(_blocks(values)).max(_depth(values), skipna=False)


def _inner_minus_ends(values: Values, first: int = 1, reduction: str = "max") -> xr.DataArray:
    """Subtract the reduced ends (layer `first` and the last) from the reduced layers between."""
    last = _at_last(values)
    if last.sizes["layer"] < first + 3:
        return xr.full_like(last.isel(layer=0, drop=True), np.nan)
    inner, ends = last.isel(layer=slice(first + 1, -1)), last.isel(layer=[first, -1])
    return getattr(inner, reduction)("layer", skipna=False) - getattr(ends, reduction)(
        "layer", skipna=False
    )


def sink_head_share(values: Values, above: float = SINK_FROM) -> xr.DataArray:
    """Return the share of heads whose mean attention on the first token is above a threshold."""
    last = _at_last(values)
    share = (last > above).mean(("block", "head"))
    return share.where(last.notnull().all(("block", "head")))


def _sink_token(values: Values) -> xr.DataArray:
    return _at_last(values).mean("head", skipna=False).max("block", skipna=False)


def _std_over_layers(values: Values) -> xr.DataArray:
    return _at_last(_blocks(values)).std("layer", skipna=False)


def _straightening(values: Values, first: int) -> xr.DataArray:
    last = _at_last(values)
    decrease = last.isel(layer=first, drop=True) - last.isel(layer=-1, drop=True)
    return decrease.where(last.sizes["layer"] > first + 1)


def _growth(values: Values) -> xr.DataArray:
    return _last(values) - _first(values)


def _fall(values: Values) -> xr.DataArray:
    return _largest(values) - _last(values)


@np.errstate(invalid="ignore", divide="ignore")
def _log2(values: xr.DataArray) -> xr.DataArray:
    """Take the base-2 logarithm; NaN for 0, infinity or NaN."""
    logarithm = np.log2(values)
    return logarithm.where(np.isfinite(logarithm))


@np.errstate(invalid="ignore", divide="ignore")
def _log_ratio(above: xr.DataArray, below: xr.DataArray) -> xr.DataArray:
    return _log2(above / below)


def _expansion(quantity: str, suffix: str = "", rule: str = "") -> dict[str, Shape]:
    """Return the two phases of a dimension, by an estimator's rule."""
    shape = partial(Shape, quantity, units="log2 units", source=PAPER)
    return {
        f"expansion{suffix}": shape(
            lambda v: _log_ratio(_largest(v), _first(v)),
            f"expansion of the dimension{rule}",
            "log2(largest / first), dimension over blocks",
        ),
        f"compression{suffix}": shape(
            lambda v: _log_ratio(_largest(v), _last(v)),
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
        partial(_inner_minus_ends, reduction="mean"),
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
        lambda v: _log_ratio(_last(v), _first(v)),
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
        lambda v: _growth(abs(v)),
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
        partial(_inner_minus_ends, reduction="min"),
        "inner entropy of windows minus that of the ends",
        "last: smallest of blocks 2 .. N-1 minus the smaller of blocks 1 and N; a valley gives < 0",
        "nat",
        f"{HERE}, reading {LAYERS}",
    ),
}


def shapes(results: xr.Dataset) -> xr.Dataset:
    """Compute every shape whose quantity was measured in a run, as variables (positions).

    `largest` is taken over checkpoints with a number, so expansion, compression and fall are never
    negative and noise makes them larger: compare them between runs, not with 0.
    """
    variables = {}
    for name, shape in SHAPES.items():
        if shape.quantity not in results:
            continue
        values = results[shape.quantity]
        if "positions" in values.dims:
            values = values.sel(statistic="mean", drop=True)
        else:  # a quantity of parameters, not of a cloud
            values = values.expand_dims(positions=results["positions"].values)
        value = shape.read(values)
        value = value.drop_vars(
            [coordinate for coordinate in value.coords if coordinate != "positions"]
        )
        value.attrs = {
            key: getattr(shape, key)
            for key in ("long_name", "units", "formula", "quantity", "source")
        }
        variables[name] = value
    return xr.Dataset(variables)
