"""Contrasts between the conditions of an experiment, paired by seed.

A condition is a set of runs that differ only in seeds. The model is y = condition + seed + noise:
an effect of a seed on all conditions cancels in a contrast. Intervals are not corrected for the
number of contrasts.

*Pooling*: with few seeds, noise is pooled over all conditions, as if its variance were equal.
Conditions that share at least TELLING seeds of each kind have the interval of a paired t-test.

*Paired seeds*: each run of a condition has its own weight seed and its own data seed, or either
seed is the same in all runs. Least squares over all runs.

*Crossed seeds*: W weight seeds × S data seeds. The variance of a contrast of two means over the
grid is 2 (MS_w + MS_s - MS_e) / (W S), and at least 2 MS_e / (W S), from the mean squares of
condition × weights, × data and × both. In the interval each mean square is multiplied by the square
of its own Student quantile, as Banerjee 1960 does for sums of variances; its use for a difference
is this project's. docs/reference/several_runs.md has the simulated coverage.

*Otherwise*, if seeds are shared without a full grid, a contrast has no interval.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import xarray as xr
from scipy import stats

from anisoscope.analysis.run_summaries import CORPUS, compared_values, pairing, varied
from anisoscope.engine.intervals import LEVEL
from anisoscope.models import masks

# settings whose change makes a number incomparable
TASK = {"test_bits": ("objective", CORPUS), "test_gain_over_unigram": (CORPUS,)}
RATES = ("train.learning_rate", "train.other_learning_rate")
TELLING = 4  # seeds of each kind with which the noise of two conditions needs no pooling
STEPS = "steps_to_gain_over_unigram"  # a quantity of loss-matched contrasts
CONTRAST_COLUMNS = ("setting", "before", "after", "held", "quantity", "positions")


class Change(NamedTuple):
    change: float  # after minus before; the mean paired difference if no run is missing
    low: float  # Student's 95 % interval; NaN if undefined
    high: float
    error: float  # standard error
    freedom: int  # degrees of freedom; with crossed seeds, those of the rarer kind
    pairs: int  # pairs of runs with equal seeds


class RunPair(NamedTuple):
    labels: tuple[str, str]  # the two conditions
    changed: frozenset[str]  # the settings in which they differ
    attributes: dict[str, str]  # names of that setting, before, after, and the settings held equal


def contrast_conditions(runs: xr.Dataset, several: bool = False) -> pd.DataFrame:
    """Contrast every pair of conditions that differ in a single setting, in every shape and score.

    Args:
        runs: The contents of runs.nc.
        several: Whether pairs that differ in several settings are contrasted too.

    Returns:
        A row for each pair, quantity and set of positions: CONTRAST_COLUMNS and `Change`. A mask and its own
        setting count as a single setting. `before` is the condition that comes first in the
        experiment, `held` the values of the settings that vary between runs but not in the pair.
    """
    labels = list(_settings_of(runs))
    condition = np.array([labels.index(label) for label in runs["condition"].values])
    seeds, rows = pairing(runs), []
    for pair in pairs(runs, several):
        for quantity, positions, values in compared_values(runs):
            if not pair.changed.intersection(TASK.get(quantity, ())):
                change = change_between(values, condition, seeds, *map(labels.index, pair.labels))
                attributes = pair.attributes | {"quantity": quantity, "positions": positions}
                rows.append(attributes | change._asdict())
    return pd.DataFrame(rows, columns=[*CONTRAST_COLUMNS, *Change._fields])


def pairs(runs: xr.Dataset, several: bool = False) -> Iterator[RunPair]:
    """Yield every pair of conditions that differ in a single setting (but see `contrast_conditions`)."""
    conditions = _settings_of(runs)
    for (first, before), (second, after) in combinations(conditions.items(), 2):
        changed = [setting for setting in before if before[setting] != after[setting]]
        if len(changed) == 1 or (several and changed):
            attributes = {
                "setting": ", ".join(changed),
                "before": ", ".join(before[setting] for setting in changed),
                "after": ", ".join(after[setting] for setting in changed),
                "held": ", ".join(before[name] for name in before if name not in changed),
            }
            yield RunPair((first, second), frozenset(changed), attributes)


def change_between(
    values: np.ndarray, condition: np.ndarray, seeds: np.ndarray, before: int, after: int
) -> Change:
    """Estimate the change of a number per run from condition `before` to `after`.

    Args:
        values: A number per run; runs without a number are skipped.
        condition: The index of each run's condition.
        seeds: (run, kind of seed).
        before: The index of a condition.
        after: The index of another condition.

    Returns:
        NaN if the conditions share no seed, directly or through other conditions.

    Raises:
        ValueError: Two runs of a condition have all seeds in common.
    """
    blocks, block = np.unique(seeds, axis=0, return_inverse=True)
    if len(set(zip(condition, block.ravel(), strict=True))) < len(condition):
        raise ValueError("two runs of a condition have all seeds in common; give each its own")
    table_CB = np.full((max(before, after, *condition) + 1, len(blocks)), np.nan)
    table_CB[condition, block.ravel()] = np.where(np.isfinite(values), values, np.nan)
    shared = blocks[np.isfinite(table_CB[[before, after]]).all(axis=0)]
    kinds = factors(shared)
    if kinds and min(kind.max() + 1 for kind in kinds) >= TELLING:
        table_CB, before, after = table_CB[[before, after]], 0, 1
    else:
        kinds = factors(blocks)  # of all conditions
    if len(kinds) > 1:
        return _crossed(table_CB, blocks, before, after)
    return _least_squares(table_CB, before, after)


def factors(seeds: np.ndarray) -> list[np.ndarray]:
    """Encode each kind of seed in `seeds` (run, kind) that varies as integers from 0.

    Kinds that vary in parallel count once.
    """
    numbered = dict.fromkeys(tuple(pd.factorize(kind)[0].tolist()) for kind in seeds.T)
    return [np.array(kind) for kind in numbered if any(kind)]


def _least_squares(table_CB: np.ndarray, before: int, after: int) -> Change:
    """Fit y = condition + seed + noise to all runs with a number."""
    known_CB = np.isfinite(table_CB)
    condition, seed = np.nonzero(known_CB)
    values, pairs = table_CB[known_CB], int(known_CB[[before, after]].all(axis=0).sum())
    conditions = np.unique(condition)
    effects = condition[:, None] == conditions, seed[:, None] == np.unique(seed)[1:]
    design = np.concatenate(effects, axis=1).astype(float)
    contrast = np.zeros(design.shape[1])
    contrast[: len(conditions)] = 1.0 * (conditions == after) - (conditions == before)
    inverse = np.linalg.pinv(design)
    weights = contrast @ inverse
    estimable = np.allclose(weights @ design, contrast, atol=1e-9)
    if not {before, after} <= set(conditions) or not estimable:
        return _change(np.nan, np.nan, np.nan, 0, pairs)
    freedom = int(len(values) - np.linalg.matrix_rank(design))
    residual = np.square(values - design @ (inverse @ values)).sum()
    variance = residual / freedom * (weights @ weights) if freedom else np.nan
    return _change(weights @ values, variance, variance * _quantile(freedom) ** 2, freedom, pairs)


def _crossed(table_CB: np.ndarray, blocks: np.ndarray, before: int, after: int) -> Change:
    """Average the paired differences; pool noise over conditions with all runs of their grid."""
    shared = np.isfinite(table_CB[[before, after]]).all(axis=0)
    pairs = int(shared.sum())
    change = (table_CB[after] - table_CB[before])[shared].mean() if pairs else np.nan
    grid = factors(blocks[shared])
    shape = [kind.max() + 1 for kind in grid]
    if len(grid) != 2 or np.prod(shape) != pairs:
        return _change(change, np.nan, np.nan, 0, pairs)
    values_CB = table_CB[:, shared][np.isfinite(table_CB[:, shared]).all(axis=1)]
    noise_CWS = np.empty((len(values_CB), *shape))
    noise_CWS[:, grid[0], grid[1]] = values_CB - values_CB.mean(axis=0)
    others = len(values_CB) - 1
    squares = np.array([kind.sum() / others for kind in mean_squares(noise_CWS)])
    freedoms = others * np.array([shape[0] - 1, shape[1] - 1, (shape[0] - 1) * (shape[1] - 1)])
    both = squares, squares * _quantile(freedoms) ** 2
    sums = [2 / pairs * max(weights + data - rest, rest) for weights, data, rest in both]
    return _change(change, *sums, int(min(freedoms)), pairs)


def mean_squares(values_WS: np.ndarray) -> tuple[np.ndarray, ...]:
    """Return MS_w, MS_s and MS_e of each table of W weight × S data seeds (the last two axes)."""
    weight_seeds, data_seeds = values_WS.shape[-2:]
    mean = values_WS.mean(axis=(-2, -1), keepdims=True)
    weights, data = (values_WS.mean(axis=axis, keepdims=True) - mean for axis in (-1, -2))
    residual = values_WS - mean - weights - data
    sums = (data_seeds * np.square(weights), weight_seeds * np.square(data), np.square(residual))
    freedoms = (weight_seeds - 1, data_seeds - 1, (weight_seeds - 1) * (data_seeds - 1))
    return tuple(
        squares.sum(axis=(-2, -1)) / freedom
        for squares, freedom in zip(sums, freedoms, strict=True)
    )


def _quantile(freedom: int | np.ndarray) -> float | np.ndarray:
    return stats.t.ppf(0.5 + LEVEL / 2, freedom)


def _change(
    change: float, variance: float, half_squared: float, freedom: int, pairs: int
) -> Change:
    error, half = np.sqrt([variance, half_squared])
    return Change(change, change - half, change + half, error, freedom, pairs)


def _settings_of(runs: xr.Dataset) -> dict[str, dict[str, str]]:
    """Return the settings of each condition, in order, that differ between runs, in words."""
    settings = varied(runs)
    groups = {  # settings that count as a single setting, by its name
        "model.mask": ["model.mask", *(f"model.{name}" for name in masks.mask_settings())],
        "train.penalty": ["train.penalty", "train.penalty_layers"],
    }
    # an optimizer's learning rates are not named if it always has the same
    if "train.optimizer" in settings:
        own = ["train.optimizer", *(name for name in RATES if name in settings)]
        rates = pd.DataFrame({name: runs[name].values for name in own}).drop_duplicates()
        groups["train.optimizer"] = own[:1] if rates["train.optimizer"].is_unique else own
        settings = [name for name in settings if name not in RATES]
    parts = {
        name: [part for part in group if part in settings or part in RATES]
        for name, group in groups.items()
    }
    grouped = {part for group in parts.values() for part in group}
    parts |= {name: [name] for name in settings if name not in grouped}
    parts = {name: group for name, group in parts.items() if group}
    labels = runs["condition"].values.tolist()
    return {
        label: {
            name: format_setting({part: runs[part].values[labels.index(label)] for part in group})
            for name, group in parts.items()
        }
        for label in dict.fromkeys(labels)
    }


def format_setting(values: dict[str, Any]) -> str:
    """Format a setting, or several that count as one: "window 16", "no qk_norm", "penalty -1"."""
    parts = []
    for name, value in values.items():
        leaf = name.rpartition(".")[2]
        if isinstance(value, str):
            parts.append(value)
        elif isinstance(value, np.bool_):
            parts.append(leaf if value else f"no {leaf}")
        elif leaf in parts:  # the mask's own
            parts[parts.index(leaf)] = f"{leaf} {value:g}"
        elif value or len(values) == 1:
            parts.append(f"{leaf} {value:g}")
    return ", ".join(parts)
