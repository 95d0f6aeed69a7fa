"""What the tables of the runs that are shown say, in a handful of sentences: nothing that was not
measured.
"""

import itertools
import math
from collections.abc import Iterable, Iterator

import numpy as np
import xarray as xr

from anisoscope.results.excess import excess_of, nulls_in
from anisoscope.training.objective import OBJECTIVES

POSITIONS = {"all": "all positions", "without_first": "without token 0 of each window"}
FEW = 2  # runs that have sentences of their own; of more, the lowest and the highest are named


def sentences(results: dict[str, xr.Dataset], bits: dict[str, dict[str, float]]) -> Iterator[str]:
    """Lines on bits per character, the peak of anisotropy over depth, and the dimension, at the
    last checkpoint.
    """
    yield from _bits(results, bits)
    for name, read, what, where in (
        ("anisotropy", _peak, "anisotropy is highest at", "anisotropy at its highest over depth"),
        (
            "twonn",
            _dimension,
            "dimension at the last layer (TwoNN)",
            "dimension at the last layer (TwoNN)",
        ),
    ):
        held = {run: table for run, table in results.items() if name in table}
        if len(held) <= FEW:
            for run, table in held.items():
                sets = [
                    f"{read(table, at)}, {words}"
                    for at, words in POSITIONS.items()
                    if at in table.positions
                ]
                at_step = f", step {int(table.step[-1]):,}" if table.sizes["step"] > 1 else ""
                yield f"{run}{at_step}: {what} {'; '.join(sets)}"
        elif values := _finite({run: _value(table, name) for run, table in held.items()}):
            yield f"{where}{_last_step(held[run] for run in values)}, all positions: {_range(values)}"


def _last_step(tables: Iterable[xr.Dataset]) -> str:
    """The step at which all were read; nothing where each has one alone, as pretrained models
    have.
    """
    sizes, steps = zip(
        *((table.sizes["step"], int(table.step[-1])) for table in tables), strict=True
    )
    if max(sizes) == 1:
        return ""
    return f", step {steps[0]:,}" if len({*steps}) == 1 else ", last step of each"


def _bits(results: dict[str, xr.Dataset], bits: dict[str, dict[str, float]]) -> Iterator[str]:
    """Only runs of one objective are set beside one another."""
    scores = []
    for kind, entry in OBJECTIVES.items():
        members = [run for run in results if results[run].attrs.get("objective") == kind]
        of_kind, said = (
            _finite({run: bits[run]["test_bits"] for run in members}),
            f"predicting {entry.label}",
        )
        if len(of_kind) > FEW:
            gains = {
                run: bits[run]["test_context_gain"]
                for run in of_kind
                if "test_context_gain" in bits[run]
            }
            scores.append(
                f"{said}, {_range(of_kind)}" + (f", context gain {_range(gains)}" if gains else "")
            )
        else:
            scores += [
                f"{run} {value:.2f} ({said}{_beside(bits[run])})" for run, value in of_kind.items()
            ]
    if scores and any("test_context_gain" in own for own in bits.values()):
        scores[-1] += (
            ". Context gain: bits less than the best answer without context needs on the same characters"
        )
    if scores:
        yield f"bits per character on the test split: {'; '.join(scores)}"


def _beside(bits: dict[str, float]) -> str:
    """What makes scores of two objectives comparable; runs of old do not tell it."""
    masked = f"; {bits['test_mask_bits']:.2f} under [MASK]" if "test_mask_bits" in bits else ""
    return masked + (
        f"; context gain {bits['test_context_gain']:.2f}" if "test_context_gain" in bits else ""
    )


def _last(table: xr.Dataset, name: str, positions: str = "all", **where: str) -> xr.DataArray:
    """Of the last checkpoint, over layers."""
    return table[name].sel({"statistic": "mean"} | where).isel(step=-1).sel(positions=positions)


def _value(table: xr.Dataset, name: str) -> float:
    values = _last(table, name)
    return float(values.max(skipna=False)) if name == "anisotropy" else float(values[-1])


def _with_interval(
    table: xr.Dataset, name: str, positions: str, layer: int, beside: str = ""
) -> str:
    mean, low, high = (
        float(_last(table, name, positions, statistic=end)[layer])
        for end in ("mean", "low", "high")
    )
    if not math.isfinite(mean):
        return "not defined"
    digits = ".2f" if abs(mean) < 2 else ".1f"
    interval = (
        f"95 % interval {low:{digits}} to {high:{digits}}"
        if math.isfinite(low + high)
        else "no interval"
    )
    return f"{mean:{digits}} ({interval}{beside})"


def _peak(table: xr.Dataset, positions: str) -> str:
    """The layer where it is largest, and those that may be as large by their intervals."""
    mean, low, high = (
        _last(table, "anisotropy", positions, statistic=end).values
        for end in ("mean", "low", "high")
    )
    if lacking := [layer for layer in range(mean.size) if not np.isfinite(mean[layer])]:
        where = f" ({_places(table, lacking)} without a value)" if len(lacking) < mean.size else ""
        return f"an unknown layer{where}"
    top = int(np.argmax(mean))
    alike = [layer for layer in range(mean.size) if layer != top and high[layer] >= low[top]]
    beside = f", overlapping that of {_places(table, alike)}" if alike else ""
    return f"{_place(table, top)}, {_with_interval(table, 'anisotropy', positions, top, beside)}"


def _place(table: xr.Dataset, layer: int) -> str:
    if "objective" not in table.attrs:  # your own activations
        return f"layer {layer}"
    return f"block {layer}" if layer else "the embeddings"


def _places(table: xr.Dataset, layers: list[int]) -> str:
    """Runs of three layers or more by their ends: the embeddings, block 2, blocks 4 to 9."""
    begins = [
        i for i, layer in enumerate(layers) if i == 0 or layer != layers[i - 1] + 1 or layer == 1
    ]
    places = []
    for begin, end in itertools.pairwise([*begins, len(layers)]):
        first, *more = (_place(table, layer) for layer in layers[begin:end])
        few = end - begin < 3
        places += [first, *more] if few else [f"{first.replace(' ', 's ')} to {layers[end - 1]}"]
    return ", ".join(places)


def _dimension(table: xr.Dataset, positions: str) -> str:
    """With that of the Gaussian null model beside it, which is the value less its excess; or why
    there is none.
    """
    sentence = _with_interval(table, "twonn", positions, -1)
    if not math.isfinite(_last(table, "twonn", positions)[-1]) and "duplicate_points" in table:
        duplicates = float(_last(table, "duplicate_points", positions)[-1])
        return f"{sentence} ({duplicates:,.0f} vectors of a cloud are duplicates)"
    if "gaussian" in nulls_in(table):
        excess = (
            excess_of(table, "twonn", "gaussian")
            .sel(statistic="mean", positions=positions)
            .isel(step=-1)[-1]
        )
        null = float(_last(table, "twonn", positions)[-1] - excess)
        sentence += (
            f" against {null:.1f} of a Gaussian cloud with the same spectrum"
            if math.isfinite(null)
            else ""
        )
    return sentence


def _finite(values: dict[str, float]) -> dict[str, float]:
    return {run: value for run, value in values.items() if math.isfinite(value)}


def _range(values: dict[str, float]) -> str:
    low, high = min(values, key=values.get), max(values, key=values.get)
    return f"from {values[low]:.2f} ({low}) to {values[high]:.2f} ({high}) over {len(values)} runs"
