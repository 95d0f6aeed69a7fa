"""What a figure may read of a run: its table and its training log, with intervals and the words for
both.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import xarray as xr

from anisoscope.measurement.intervals import LEVEL
from anisoscope.plot import style
from anisoscope.results.averages import EMBEDDING
from anisoscope.results.excess import excess_of

POSITIONS = {
    "all": "all positions",
    "without_first": "without position 0",
    "without_special": "without special tokens",
}
NULLS = {
    "gaussian": "Gaussian cloud,\nsame spectrum",
    "shuffled": "shuffled input",
    "untrained": "same network,\nuntrained",
    "permuted": "windows of one cloud\nin another order",
}
ENDS = ("mean", "low", "high")
VISIBLE = 0.02  # of the height of a panel
SAME = (
    "Without position 0 the figure looks the same: no value moves by more than 2 % of their range."
)

Curve = tuple[np.ndarray, np.ndarray, np.ndarray]  # mean, low, high


@dataclass(frozen=True)
class Run:
    results: xr.Dataset  # results.nc
    log: list[dict[str, Any]]  # train.jsonl, one dict a line
    tangents: xr.Dataset | None = None  # tangents.nc, where that stage was done
    # hook_points/<name>/results.nc, if asked for
    hook_points: dict[str, xr.Dataset] = field(default_factory=dict)


def holding(runs: dict[str, Run], *variables: str) -> dict[str, Run]:
    """The runs whose tables have all these variables: a family may have been left out of a
    measurement.
    """
    return {
        label: run for label, run in runs.items() if all(name in run.results for name in variables)
    }


def words(runs: dict[str, Run], variable: str) -> str:
    """The variable's name, and its symbol or unit, for an axis: from its own attributes."""
    return style.words(next(iter(runs.values())).results[variable])


def interval(results: xr.Dataset, name: str, null: str = "", **where: Any) -> Curve:
    """Mean over batches and the ends of its interval, at these places: of the value, or of its
    excess over a `null`.
    """
    values = (excess_of(results, name, null) if null else results[name]).sel(where)
    return tuple(values.sel(statistic=statistic).values for statistic in ENDS)


def bands(runs: dict[str, Run], *names: str, what: str = "band") -> str:
    """What the bands of `interval` are, and the noise floor, a sentence each; nothing where no run
    has any.
    """
    ways, shown = set(), []
    for run in runs.values():
        for values in (run.results[name] for name in names if name in run.results):
            shown.append(values)
            if np.isfinite(values.sel(statistic="low")).any():
                resampled = (
                    run.results.attrs["folds"] > 1 and values.attrs.get("resampling") != "batches"
                )
                seeds = "seeds" in run.results.attrs and "seed" not in values.dims
                ways.add("seeds" if seeds else "windows resampled" if resampled else "over batches")
    intervals = " or ".join(sorted(ways - {"seeds"}))
    noise = [values.attrs["noise_floor"] for values in shown if "noise_floor" in values.attrs]
    said = [f"{LEVEL * 100:.0f} % interval, {intervals}"] * bool(intervals)
    said += ["range of seeds"] * ("seeds" in ways)
    sentences = [f"{what.capitalize()}: {'; or '.join(said)}."] * bool(said)
    sentences += [
        f"Batch size and kernels move no value by more than {max(noise, default=0):.1g}."
    ] * bool(noise)
    return " ".join(sentences)


def at_last(runs: dict[str, Run]) -> str:
    """For titles of what is drawn of the last checkpoint, where there are others."""
    return (
        ", last checkpoint" if any(run.results.sizes["step"] > 1 for run in runs.values()) else ""
    )


def layers(runs: dict[str, Run], words: str) -> str:
    """An axis over layers: whether the first is an embedding, vectors of a file do not tell."""
    return words if embedded(runs) else words.partition(" (")[0]


def embedded(runs: dict[str, Run]) -> bool:
    """Whether layer 0 is the embedding in all of them."""
    return all(run.results.attrs.get("layer_0", EMBEDDING) == EMBEDDING for run in runs.values())


def last_step(runs: dict[str, Run]) -> int:
    return max(int(run.results.step[-1]) for run in runs.values())


def positions(runs: dict[str, Run], *names: str, steps: slice = slice(-1, None)) -> list[str]:
    """The sets of positions to draw of these quantities: all, and without the first only where that
    can be seen.
    """
    sets = sets_of_all(runs)
    for name in names:
        shown = [
            run.results[name].isel(step=steps).sel(statistic="mean", positions=sets)
            for run in runs.values()
        ]
        values = np.concatenate(
            [one.transpose("positions", ...).values.reshape(len(sets), -1) for one in shown], axis=1
        )
        values = values[:, np.isfinite(values).all(axis=0)]
        if values.size and abs(values[1:] - values[0]).max(initial=0) > VISIBLE * np.ptp(values):
            return sets
    return sets[:1]


def sets_of_all(runs: dict[str, Run]) -> list[str]:
    """The sets of positions that every run was measured on."""
    first, *others = (run.results.positions.values.tolist() for run in runs.values())
    return [one for one in first if all(one in other for other in others)]


def same(runs: dict[str, Run], sides: list[str]) -> list[str]:
    """For the caption, where further sets of positions are there and not drawn."""
    return [SAME] * (len(sides) == 1 < len(sets_of_all(runs)))
