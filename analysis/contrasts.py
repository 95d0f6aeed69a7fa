"""What changes when one setting changes: contrasts between the cells of an experiment, paired by seed.

A value is taken as y = cell + seed + noise, the noise independent and of one variance in all cells, and no interaction
between cell and seed. Each cell has two or three seeds: alone it would have one or two degrees of freedom, all cells
together have (cells - 1)(seeds - 1). Where some cells scatter more than others, their intervals are too narrow and the
others' too wide. Each interval is for its own contrast: of many, one in twenty misses.
"""

from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from analysis.runs import SEEDS, varied
from analysis.shapes import SHAPES
from analysis.uncertainty import LEVEL

ONE = {  # settings that make up one, the first of which gives it its name
    "model.mask": ("model.mask", "model.prefix", "model.window", "model.leak"),
    "train.penalty": ("train.penalty", "train.penalty_layers"),
}
COLUMNS = ("setting", "before", "after", "held", "quantity", "positions")


class Change(NamedTuple):
    change: float  # after less before; where seeds are complete, the mean over them of the paired difference
    low: float  # Student's 95 % interval; NaN without a degree of freedom
    high: float
    error: float  # standard error
    freedom: int
    seeds: int  # in both cells


def contrasts(runs: xr.Dataset) -> pd.DataFrame:
    """Every pair of cells that differ in one setting, for every shape and, of one objective, bits per character.

    `runs` is what runs.nc holds. A mask and its own setting are one. `before` is the cell that comes first in the
    experiment, `held` what both have of the other settings that differ between runs.
    """
    cells = _cells(runs)
    cell = np.array([list(cells).index(label) for label in runs["cell"].values])
    seeds = np.stack([runs[name].values for name in SEEDS if name in runs.coords], axis=1)
    seed = np.unique(seeds, axis=0, return_inverse=True)[1].ravel()
    found = []
    for (i, before), (j, after) in combinations(enumerate(cells.values()), 2):
        changed = [setting for setting in before if before[setting] != after[setting]]
        if len(changed) != 1:
            continue
        held = ", ".join(words for setting, words in before.items() if setting != changed[0])
        about = (changed[0], before[changed[0]], after[changed[0]], held)
        for quantity, positions, values in numbers(runs):
            if quantity != "test_bits" or changed != ["objective"]:  # bits of two objectives measure two things
                change = compare(values, cell, seed, i, j)
                found.append(dict(zip(COLUMNS, (*about, quantity, positions), strict=True)) | change._asdict())
    return pd.DataFrame(found, columns=[*COLUMNS, *Change._fields])


def numbers(runs: xr.Dataset) -> list[tuple[str, str, np.ndarray]]:
    """What runs are compared by: (quantity, positions, a value per run)."""
    found = [("test_bits", "all", runs["test_bits"].values)]
    for name in (name for name in SHAPES if name in runs):
        found += [(name, str(p), runs[name].sel(positions=p).values) for p in runs.positions.values]
    return found


def compare(values: np.ndarray, cell: np.ndarray, seed: np.ndarray, before: int, after: int) -> Change:
    """Least squares over all runs with a number; NaN where the two cells share no seed, directly or through others."""
    here = np.isfinite(values)
    values, cell, seed = values[here], cell[here], seed[here]
    shared = len(np.intersect1d(seed[cell == before], seed[cell == after]))
    cells = np.unique(cell)
    design = np.concatenate([cell[:, None] == cells, seed[:, None] == np.unique(seed)[1:]], axis=1).astype(float)
    contrast = np.zeros(design.shape[1])
    contrast[: len(cells)] = 1.0 * (cells == after) - (cells == before)
    inverse = np.linalg.pinv(design)
    weights = contrast @ inverse
    freedom = int(len(values) - np.linalg.matrix_rank(design)) if len(values) else 0
    if not {before, after} <= set(cells) or not np.allclose(weights @ design, contrast, atol=1e-9):
        return Change(*[np.nan] * 4, freedom, shared)
    change = weights @ values
    if freedom == 0:
        return Change(change, *[np.nan] * 3, 0, shared)
    error = np.sqrt(np.square(values - design @ (inverse @ values)).sum() / freedom * (weights @ weights))
    half = stats.t.ppf(0.5 + LEVEL / 2, freedom) * error
    return Change(change, change - half, change + half, error, freedom, shared)


def _cells(runs: xr.Dataset) -> dict[str, dict[str, str]]:
    """Of each cell, in order: the settings that differ between runs, in words."""
    settings = varied(runs)
    parts = {name: [part for part in group if part in settings] for name, group in ONE.items()}
    grouped = {part for group in parts.values() for part in group}
    parts = {name: group for name, group in parts.items() if group} | {
        name: [name] for name in settings if name not in grouped
    }
    found = {}
    for i, label in enumerate(runs["cell"].values):
        if label not in found:
            found[label] = {name: words({p: runs[p].values[i] for p in group}) for name, group in parts.items()}
    return found


def words(values: dict[str, Any]) -> str:
    """One setting, or several that make up one: "window 16", "no qk_norm", "penalty -1"."""
    found = []
    for name, value in values.items():
        leaf = name.rpartition(".")[2]
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, np.bool_):
            found.append(leaf if value else f"no {leaf}")
        elif leaf in found:  # the mask's own
            found[found.index(leaf)] = f"{leaf} {value:g}"
        elif value or len(values) == 1:
            found.append(f"{leaf} {value:g}")
    return ", ".join(found)
