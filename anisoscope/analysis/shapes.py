"""The words bell, growth and phases as numbers: what a run's results are asked when runs are
compared.

The papers show these as curves and give no formula: every definition here is this project's. Each
reads means over batches, per set of positions; "over blocks" is the mean over block outputs (layers
1 .. N, the embedding left out), for attention over blocks and heads. "First" is step 0 and "last"
the last checkpoint at hand. NaN where the number is not defined: a table without step 0, fewer than
3 blocks for a bell, a layer without a dimension. DEFINITIONS has what the words of findings mean,
each a shape above a threshold.

Two nearest neighbours see one scale: while a layer has no plateau of dimension (`plateau`), as
early in training, an expansion may be a change of scale.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import xarray as xr

from anisoscope.measurement.families.attention_family import SINK_FROM
from anisoscope.measurement.quantity import HERE, INHERENT, SHAPE_OF_LEARNING

READING_SHAPE, READING_INHERENT = (
    f"this project, reading {SHAPE_OF_LEARNING}",
    f"this project, reading {INHERENT}",
)

READING_STRAIGHTENING = f"{HERE}, reading Hosseini and Fedorenko 2023"
READING_LINEAR = f"{HERE}, reading Razzhigaev et al. 2024, Your Transformer is Secretly Linear"


@dataclass(frozen=True, slots=True)
class Shape:
    quantity: str
    # (step, positions, layer) or (step, positions, block, head)
    read: Callable[[xr.DataArray], xr.DataArray]
    long_name: str
    units: str
    formula: str
    source: str


def over_depth(values: xr.DataArray) -> xr.DataArray:
    """Mean over block outputs, or over blocks and heads; NaN where any of them is."""
    if "layer" in values.dims:
        return values.isel(layer=slice(1, None)).mean("layer", skipna=False)
    return values.mean(
        [dim for dim in ("block", "head", "kernel") if dim in values.dims], skipna=False
    )


def _last(values: xr.DataArray) -> xr.DataArray:
    return over_depth(values).isel(step=-1, drop=True)


def _first(values: xr.DataArray) -> xr.DataArray:
    return over_depth(values).reindex(step=[0]).isel(step=0, drop=True)


def _largest(values: xr.DataArray) -> xr.DataArray:
    over = over_depth(values)
    return over.where(np.isfinite(over)).max("step")


def _largest_of_last(values: xr.DataArray) -> xr.DataArray:
    last = values.isel(step=-1, drop=True)
    if "layer" in last.dims:
        return last.isel(layer=slice(1, None)).max("layer", skipna=False)
    return last.max([dim for dim in ("block", "head") if dim in last.dims], skipna=False)


def _inner_against_ends(
    first: int, of_inner: str, of_ends: str
) -> Callable[[xr.DataArray], xr.DataArray]:
    """Of the layers strictly between `first` and the last, and of these two ends: mean or max."""

    def read(values: xr.DataArray) -> xr.DataArray:
        last = values.isel(step=-1, drop=True)
        if last.sizes["layer"] < first + 3:
            return xr.full_like(last.isel(layer=0, drop=True), np.nan)
        ends, inner = last.isel(layer=[first, -1]), last.isel(layer=slice(first + 1, -1))
        return getattr(inner, of_inner)("layer", skipna=False) - getattr(ends, of_ends)(
            "layer", skipna=False
        )

    return read


def sink_head_share(values: xr.DataArray, above: float = SINK_FROM) -> xr.DataArray:
    """Share of all heads of all blocks whose mean attention on token 0, last checkpoint, exceeds a
    threshold.
    """
    last = values.isel(step=-1, drop=True)
    share = (last > above).mean(("block", "head"))
    return share.where(last.notnull().all(("block", "head")))


def _sink_token(values: xr.DataArray) -> xr.DataArray:
    return values.isel(step=-1, drop=True).mean("head", skipna=False).max("block", skipna=False)


def _unevenness(values: xr.DataArray) -> xr.DataArray:
    return values.isel(step=-1, layer=slice(1, None), drop=True).std("layer", skipna=False)


def _straightening(values: xr.DataArray, first: int) -> xr.DataArray:
    last = values.isel(step=-1, drop=True)
    fewer = last.isel(layer=first, drop=True) - last.isel(layer=-1, drop=True)
    return fewer.where(last.sizes["layer"] > first + 1)


def _growth(values: xr.DataArray) -> xr.DataArray:
    return _last(values) - _first(values)


def _fall(values: xr.DataArray) -> xr.DataArray:
    return _largest(values) - _last(values)


@np.errstate(invalid="ignore", divide="ignore")
def _log_ratio(above: xr.DataArray, below: xr.DataArray) -> xr.DataArray:
    """In doublings; NaN where either is 0, infinite or missing."""
    ratio = np.log2(above / below)
    return ratio.where(np.isfinite(ratio))


def _expansion(dimension: str, rule: str) -> dict[str, Shape]:
    names = f" ({rule})" if rule else ""
    d = "dimension over blocks"
    return {
        f"expansion{'_' * bool(rule)}{rule}": Shape(
            *(dimension, lambda v: _log_ratio(_largest(v), _first(v))),
            *(
                f"expansion of the dimension{names}",
                "doublings",
                f"log2(largest / first), {d}",
                READING_SHAPE,
            ),
        ),
        f"compression{'_' * bool(rule)}{rule}": Shape(
            *(dimension, lambda v: _log_ratio(_largest(v), _last(v))),
            *(
                f"compression of the dimension{names}",
                "doublings",
                f"log2(largest / last), {d}",
                READING_SHAPE,
            ),
        ),
    }


def _level(quantity: str, words: str) -> Shape:
    """Of what has a scale of its own the logarithm: a change is then a ratio."""
    return Shape(
        *(quantity, lambda v: _log_ratio(_last(v), xr.ones_like(_last(v)))),
        *(words, "doublings", "log2 of the mean over blocks (and heads, or matrices), last", HERE),
    )


SHAPES = {
    "bell_blocks": Shape(
        *("anisotropy", _inner_against_ends(1, "max", "max"), "bell of anisotropy", "1"),
        "last: largest of blocks 2 .. N-1 less the larger of blocks 1 and N; a slope or a valley gives < 0",
        READING_SHAPE,
    ),
    "bell_whole": Shape(
        *(
            "anisotropy",
            _inner_against_ends(0, "max", "max"),
            "bell of anisotropy, with the embedding",
            "1",
        ),
        "last: largest of blocks 1 .. N-1 less the larger of the embedding and block N; a slope or a valley gives < 0",
        READING_SHAPE,
    ),
    "middle_less_ends": Shape(
        *(
            "anisotropy",
            _inner_against_ends(1, "mean", "mean"),
            "middle of anisotropy less its ends",
            "1",
        ),
        "last: mean over blocks 2 .. N-1 less mean of blocks 1 and N; a straight slope gives 0, a valley < 0, and so "
        "does a peak in block 1",
        READING_SHAPE,
    ),
    "unevenness": Shape(
        *("anisotropy", _unevenness, "unevenness of anisotropy", "1"),
        "last: standard deviation over blocks 1 .. N (ddof 0); 0 is flat",
        READING_SHAPE,
    ),
    "growth": Shape(
        *(
            "anisotropy",
            _growth,
            "growth of anisotropy",
            "1",
            "last less first, over blocks",
            READING_SHAPE,
        )
    ),
    "fall": Shape(
        *("anisotropy", _fall, "fall of anisotropy from its peak", "1"),
        "largest over checkpoints less last, over blocks; 0 where it grows and stabilises, and never below",
        READING_SHAPE,
    ),
    **_expansion("twonn", ""),
    **_expansion("twonn_microscope", "microscope"),
    "cosine_growth": Shape(
        *(
            "mean_cosine",
            _growth,
            "growth of the mean cosine",
            "1",
            "last less first, over blocks",
            READING_INHERENT,
        )
    ),
    "drift_growth": Shape(
        *("drift", lambda v: _log_ratio(_last(v), _first(v)), "growth of the drift", "doublings"),
        "log2(last / first), over blocks",
        READING_INHERENT,
    ),
    "sharpening": Shape(
        *("attention_entropy", lambda v: -_growth(v), "sharpening of attention", "nat"),
        "entropy at first less at last, over blocks and heads: what a mask allows at most is taken off",
        READING_INHERENT,
    ),
    "alignment_growth": Shape(
        *(
            "query_key_alignment",
            lambda v: _growth(abs(v)),
            "growth of the alignment of query and key drift",
            "1",
        ),
        "last less first, over blocks and heads, of |cos(E q, E k)|: the sign of a head's scores does not count",
        READING_INHERENT,
    ),
    "sink": Shape(
        *(
            "attention_first",
            _last,
            "attention on position 0",
            "1",
            "last, over blocks and heads",
            READING_INHERENT,
        )
    ),
    "sink_head_share": Shape(
        *("attention_first", sink_head_share, "share of the heads with an attention sink", "1"),
        f"last: share of all heads of all blocks with a mean attention on token 0 above {SINK_FROM}",
        f"{HERE}, after Gu et al. 2025",
    ),
    "sink_token": Shape(
        *("attention_first", _sink_token, "attention of a block on token 0", "1"),
        "last: largest over blocks of the mean over heads of the attention on token 0",
        HERE,
    ),
    "largest_attention_first": Shape(
        *("attention_first", _largest_of_last, "attention on token 0 of the head with most", "1"),
        *("last: largest over blocks and heads", HERE),
    ),
    "largest_norm_ratio": Shape(
        *(
            "norm_ratio",
            _largest_of_last,
            "largest norm over the median",
            "1",
            "last: largest over blocks",
            HERE,
        )
    ),
    "largest_anisotropy": Shape(
        *(
            "anisotropy",
            _largest_of_last,
            "largest anisotropy",
            "1",
            "last: largest over blocks",
            HERE,
        )
    ),
    "last_anisotropy": Shape(
        *("anisotropy", _last, "anisotropy over blocks", "1", "last, over blocks", HERE)
    ),
    "last_dimension": _level("twonn", "dimension over blocks"),
    "last_drift": _level("drift", "drift over blocks"),
    "last_outliers": _level("coordinate_kurtosis", "kurtosis across coordinates"),
    "last_query_drift": _level("query_drift", "drift of queries"),
    "last_key_drift": _level("key_drift", "drift of keys"),
    "straightening_blocks": Shape(
        *(
            "turning_angle",
            lambda v: _straightening(v, 1),
            "straightening of trajectories from block to block",
            "rad",
        ),
        *("last: turning angle of block 1 less that of block N", READING_STRAIGHTENING),
    ),
    "straightening_whole": Shape(
        *(
            "turning_angle",
            lambda v: _straightening(v, 0),
            "straightening of trajectories from the embedding",
            "rad",
        ),
        *("last: turning angle of the embedding less that of block N", READING_STRAIGHTENING),
    ),
    "last_linearity": Shape(
        *(
            "linearity",
            _last,
            "linearity of a layer in the one before",
            "1",
            "last, over blocks",
            READING_LINEAR,
        )
    ),
    "last_linearity_update": Shape(
        *(
            "linearity_update",
            _last,
            "linearity of what a block adds",
            "1",
            "last, over blocks",
            READING_LINEAR,
        )
    ),
    "entropy_valley": Shape(
        *(
            "window_entropy",
            _inner_against_ends(1, "min", "min"),
            "inner entropy of windows less that of the ends",
        ),
        *(
            "nat",
            "last: least of blocks 2 .. N-1 less the lesser of blocks 1 and N; a valley gives < 0",
        ),
        f"{HERE}, reading Skean et al. 2025",
    ),
}


class Definition(NamedTuple):
    """A word of the findings: its shape lies above a threshold. The glossary has the same
    sentence.
    """

    shape: str
    above: float
    sentence: str


DEFINITIONS = {
    "bell": Definition(
        "bell_blocks",
        0.0,
        "a block between has a higher anisotropy than block 1 and the last block",
    ),
    "bell with the embedding": Definition(
        "bell_whole",
        0.0,
        "a block between has a higher anisotropy than the embedding and the last block",
    ),
    "sink head": Definition(
        "sink_head_share", 0.0, f"a head with a mean attention above {SINK_FROM} on token 0"
    ),
    "sink token": Definition(
        *("sink_token", SINK_FROM),
        f"token 0, where the heads of some block give it a mean attention above {SINK_FROM} together",
    ),
    "massive vector": Definition(
        "largest_norm_ratio",
        10.0,
        "an activation more than 10 times as long as the median of its cloud",
    ),
    "growth": Definition(
        "growth", 0.0, "anisotropy over blocks is higher at the last checkpoint than at step 0"
    ),
    "expansion": Definition(
        "expansion",
        0.2,
        "the largest dimension over checkpoints is more than 0.2 doublings above that at step 0",
    ),
    "contraction": Definition(
        *("compression", 0.2),
        "the dimension at the last checkpoint is more than 0.2 doublings below its largest over checkpoints",
    ),
}


def shows(read: xr.Dataset, name: str) -> xr.DataArray:
    """Whether a run's shapes (as `shapes` gives them) have what the word says; False where there is
    no number.
    """
    return read[DEFINITIONS[name].shape] > DEFINITIONS[name].above


def _means(results: xr.Dataset, quantity: str) -> xr.DataArray:
    """What is of parameters, and not of a cloud, is the same whatever the positions."""
    values = results[quantity]
    if "positions" not in values.dims:
        return values.expand_dims(positions=results["positions"].values)
    return values.sel(statistic="mean", drop=True)


def shapes(results: xr.Dataset) -> xr.Dataset:
    """Every shape whose quantity was measured, of one run: variables (positions), formula and
    source as attributes.

    `largest` is taken over the checkpoints that have a number, so expansion, compression and fall
    are never negative and noise makes them larger: compare them between runs, not with 0.
    """
    by_name = {}
    for name, shape in SHAPES.items():
        if shape.quantity in results:
            value = shape.read(_means(results, shape.quantity))
            value = value.drop_vars([name for name in value.coords if name != "positions"])
            value.attrs = {
                "long_name": shape.long_name,
                "units": shape.units,
                "formula": shape.formula,
            }
            value.attrs |= {"quantity": shape.quantity, "source": shape.source}
            by_name[name] = value
    return xr.Dataset(by_name)
